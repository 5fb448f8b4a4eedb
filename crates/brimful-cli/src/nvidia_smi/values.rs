//! What the forms share: values, how they are written, and refusals.

use std::time::{SystemTime, UNIX_EPOCH};

use brimful::calendar::civil;
use brimful_probe::DriverStatus;

/// The exit codes of `nvidia-smi`, from its manual.
pub(super) mod codes {
    pub(in crate::nvidia_smi) const INVALID_ARGUMENT: u8 = 2;
    pub(in crate::nvidia_smi) const NOT_AVAILABLE: u8 = 3;
    pub(in crate::nvidia_smi) const NOT_FOUND: u8 = 6;
    pub(in crate::nvidia_smi) const NO_DRIVER: u8 = 9;
    pub(in crate::nvidia_smi) const OTHER: u8 = 255;
}

pub(super) const NOT_KNOWN: &str = "N/A";

/// What `nvidia-smi` prints in place of an answer, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SmiRefusal {
    pub(super) message: String,
    pub(super) code: u8,
}

impl SmiRefusal {
    pub(super) fn invalid(message: impl Into<String>) -> SmiRefusal {
        SmiRefusal {
            message: message.into(),
            code: codes::INVALID_ARGUMENT,
        }
    }

    pub(super) fn no_devices() -> SmiRefusal {
        SmiRefusal {
            message: "No devices were found".into(),
            code: codes::NOT_FOUND,
        }
    }
}

pub(super) fn driver_version(status: &DriverStatus) -> &str {
    status.driver_version.as_deref().unwrap_or(NOT_KNOWN)
}

pub(super) fn cuda_version(status: &DriverStatus) -> String {
    status.cuda_version.map_or_else(
        || NOT_KNOWN.into(),
        |(major, minor)| format!("{major}.{minor}"),
    )
}

pub(super) fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOT_KNOWN.into(), |value| value.to_string())
}

/// Domain, bus, device and function of `0000:00:04.0`; the domain may be left out.
pub(super) fn bus_address(text: &str) -> Option<[u32; 4]> {
    let (place, function) = text.split_once('.').unwrap_or((text, "0"));
    let hexadecimal = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let parts: Option<Vec<u32>> = place.split(':').map(hexadecimal).collect();
    let function = hexadecimal(function)?;
    match parts?[..] {
        [domain, bus, device] => Some([domain, bus, device, function]),
        [bus, device] => Some([0, bus, device, function]),
        _ => None,
    }
}

/// A time of the day, in UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) days: u64,
    pub(super) milliseconds: u64,
}

impl Moment {
    pub(super) fn now() -> Moment {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let milliseconds = u64::try_from(since.as_millis()).unwrap_or(0);
        Moment {
            days: milliseconds / 86_400_000,
            milliseconds: milliseconds % 86_400_000,
        }
    }

    /// `08:54:01`.
    fn clock(self) -> String {
        let seconds = self.milliseconds / 1000;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
    }

    /// `Fri Aug 21 08:54:01 2026`.
    pub(super) fn words(self) -> String {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        // 1 January 1970 was a Thursday.
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        let (year, month, day) = civil(self.days);
        let of = |names: &[&'static str], at: u64| {
            let place = usize::try_from(at).unwrap_or(0);
            names.get(place).copied().unwrap_or_default()
        };
        format!(
            "{} {} {day:>2} {} {year}",
            of(&WEEKDAYS, self.days % 7),
            of(&MONTHS, month.saturating_sub(1)),
            self.clock(),
        )
    }

    /// `2026/08/21 08:54:01.740`.
    pub(super) fn stamp(self) -> String {
        let (year, month, day) = civil(self.days);
        format!(
            "{year}/{month:02}/{day:02} {}.{:03}",
            self.clock(),
            self.milliseconds % 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_written_in_two_forms() {
        let moment = Moment {
            days: 20_686,
            milliseconds: 32_041_740,
        };
        assert_eq!(moment.words(), "Fri Aug 21 08:54:01 2026");
        assert_eq!(moment.stamp(), "2026/08/21 08:54:01.740");
    }

    #[test]
    fn a_bus_address_has_a_domain_or_none() {
        assert_eq!(bus_address("00000000:3B:04.1"), Some([0, 0x3b, 4, 1]));
        assert_eq!(bus_address("3b:04.1"), bus_address("0000:3B:04.1"));
        for malformed in ["", "4", "04.0", "x:04.0", "0:0:0:0.0", "00:04.x"] {
            assert_eq!(bus_address(malformed), None, "{malformed}");
        }
    }
}

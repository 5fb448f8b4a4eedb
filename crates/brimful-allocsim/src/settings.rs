//! The allocator's settings, as `PYTORCH_CUDA_ALLOC_CONF` writes them.

use std::fmt;

use crate::version::TorchVersion;

const MIB: u64 = 1 << 20;
/// `roundup_power2_divisions` knows sixteen size classes: 1 MiB, 2 MiB, … 32 GiB and more.
const SIZE_CLASSES: usize = 16;

/// What the user may set. [`AllocatorSettings::default`] is PyTorch's default.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatorSettings {
    /// Blocks from this size on are never split.
    pub max_split_size: Option<u64>,
    /// An unsplittable block may serve a request this much smaller.
    pub max_non_split_rounding: u64,
    /// Divisions between two powers of two, per size class; 0 and 1 mean no such rounding.
    pub roundup_power2_divisions: [u64; SIZE_CLASSES],
    pub expandable_segments: bool,
    /// Begin to free cached blocks above this part of the allowed memory. Works only with a memory fraction.
    pub garbage_collection_threshold: f64,
    /// Segments for requests of 1 to 10 MiB.
    pub large_segment_size: u64,
    /// The part of the card that this process may take.
    pub per_process_memory_fraction: Option<f64>,
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        AllocatorSettings {
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            roundup_power2_divisions: [0; SIZE_CLASSES],
            expandable_segments: false,
            garbage_collection_threshold: 0.0,
            large_segment_size: 20 * MIB,
            per_process_memory_fraction: None,
        }
    }
}

/// A settings text that PyTorch would refuse, or that this model cannot follow.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error("allocator setting `{0}`: expected `name:value`, with commas between settings")]
    Form(String),
    #[error("allocator setting `{name}`: expected {expected}, found `{found}`")]
    Value {
        name: String,
        expected: &'static str,
        found: String,
    },
    #[error("unknown allocator setting `{0}`, which PyTorch rejects")]
    Unknown(String),
    #[error("allocator setting `{name}` requires PyTorch {since}; PyTorch {version} rejects it")]
    TooNew {
        name: String,
        since: TorchVersion,
        version: TorchVersion,
    },
    #[error(
        "`backend:{0}` is another allocator than the one modelled here; expected `backend:native`"
    )]
    Backend(String),
}

/// Options that exist since a release, and those that decide nothing about memory on the card.
const OPTIONS: &[(&str, TorchVersion)] = &[
    ("max_split_size_mb", TorchVersion::new(1, 10)),
    ("garbage_collection_threshold", TorchVersion::new(1, 12)),
    ("roundup_power2_divisions", TorchVersion::new(1, 12)),
    ("backend", TorchVersion::new(2, 0)),
    ("expandable_segments", TorchVersion::new(2, 1)),
    ("release_lock_on_cudamalloc", TorchVersion::new(2, 2)),
    ("pinned_use_cuda_host_register", TorchVersion::new(2, 2)),
    ("pinned_num_register_threads", TorchVersion::new(2, 2)),
    ("max_non_split_rounding_mb", TorchVersion::new(2, 6)),
    ("pinned_use_background_threads", TorchVersion::new(2, 6)),
    ("graph_capture_record_stream_reuse", TorchVersion::new(2, 9)),
    ("per_process_memory_fraction", TorchVersion::new(2, 10)),
    ("pinned_reserve_segment_size_mb", TorchVersion::new(2, 10)),
    ("large_segment_size_mb", TorchVersion::new(2, 11)),
    ("throw_on_cudamalloc_oom", TorchVersion::new(2, 12)),
    ("pinned_free_catch_all", TorchVersion::new(2, 12)),
    ("pinned_max_round_threshold_mb", TorchVersion::new(2, 13)),
    ("pinned_max_cached_size_mb", TorchVersion::new(2, 13)),
];

impl AllocatorSettings {
    /// Reads what would stand in `PYTORCH_CUDA_ALLOC_CONF` for that release.
    pub fn parse(text: &str, version: TorchVersion) -> Result<Self, SettingsError> {
        let mut settings = AllocatorSettings::default();
        for part in split_outside_brackets(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let Some((name, value)) = part.split_once(':') else {
                return Err(SettingsError::Form(part.to_owned()));
            };
            let (name, value) = (name.trim(), value.trim());
            match OPTIONS.iter().find(|(known, _)| *known == name) {
                None => return Err(SettingsError::Unknown(name.to_owned())),
                Some(&(_, since)) if since > version => {
                    return Err(SettingsError::TooNew {
                        name: name.to_owned(),
                        since,
                        version,
                    });
                }
                Some(_) => settings.set(name, value, version)?,
            }
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str, version: TorchVersion) -> Result<(), SettingsError> {
        match name {
            "max_split_size_mb" => {
                // 2.10 began to accept the size of a large segment itself.
                let least = if version >= TorchVersion::new(2, 10) {
                    20
                } else {
                    21
                };
                self.max_split_size = Some(mebibytes(
                    name,
                    value,
                    least,
                    "a whole number of MiB of 20 or more (21 before PyTorch 2.10)",
                )?);
            }
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding =
                    mebibytes(name, value, 21, "a whole number of MiB above 20")?;
            }
            "large_segment_size_mb" => {
                self.large_segment_size =
                    mebibytes(name, value, 11, "a whole number of MiB above 10")?;
            }
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold = fraction(name, value)?;
            }
            "per_process_memory_fraction" => {
                let part = fraction(name, value)?;
                self.per_process_memory_fraction = Some(part);
            }
            "expandable_segments" => self.expandable_segments = truth(name, value)?,
            "roundup_power2_divisions" => {
                self.roundup_power2_divisions = divisions(name, value, version)?;
            }
            "backend" if value != "native" => return Err(SettingsError::Backend(value.to_owned())),
            // The rest is about host memory, locks and messages.
            _ => {}
        }
        Ok(())
    }

    /// The divisions that apply to a request of `size` bytes.
    pub(crate) fn divisions(&self, size: u64) -> u64 {
        let class = (size | 1).ilog2().saturating_sub(20) as usize;
        self.roundup_power2_divisions[class.min(SIZE_CLASSES - 1)]
    }
}

/// In the order and form that PyTorch accepts; nothing for the default.
impl fmt::Display for AllocatorSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = AllocatorSettings::default();
        let mut parts = Vec::new();
        if self.expandable_segments {
            parts.push("expandable_segments:True".to_owned());
        }
        if let Some(size) = self.max_split_size {
            parts.push(format!("max_split_size_mb:{}", size / MIB));
        }
        if self.max_non_split_rounding != default.max_non_split_rounding {
            parts.push(format!(
                "max_non_split_rounding_mb:{}",
                self.max_non_split_rounding / MIB
            ));
        }
        if self.large_segment_size != default.large_segment_size {
            parts.push(format!(
                "large_segment_size_mb:{}",
                self.large_segment_size / MIB
            ));
        }
        if self.garbage_collection_threshold > 0.0 {
            parts.push(format!(
                "garbage_collection_threshold:{}",
                self.garbage_collection_threshold
            ));
        }
        if let Some(part) = self.per_process_memory_fraction {
            parts.push(format!("per_process_memory_fraction:{part}"));
        }
        let classes = &self.roundup_power2_divisions;
        if classes.iter().all(|d| *d == classes[0]) {
            if classes[0] > 0 {
                parts.push(format!("roundup_power2_divisions:{}", classes[0]));
            }
        } else {
            let list: Vec<String> = classes
                .iter()
                .enumerate()
                .map(|(i, d)| format!("{}:{d}", 1_u64 << i))
                .collect();
            parts.push(format!("roundup_power2_divisions:[{}]", list.join(",")));
        }
        f.write_str(&parts.join(","))
    }
}

fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    })
}

fn wrong(name: &str, expected: &'static str, found: &str) -> SettingsError {
    SettingsError::Value {
        name: name.to_owned(),
        expected,
        found: found.to_owned(),
    }
}

fn mebibytes(
    name: &str,
    value: &str,
    least: u64,
    expected: &'static str,
) -> Result<u64, SettingsError> {
    let number: u64 = value.parse().map_err(|_| wrong(name, expected, value))?;
    // Beyond what any card will have; PyTorch caps it the same way.
    if number < least {
        Err(wrong(name, expected, value))
    } else {
        Ok(number.min(u64::MAX >> 21) * MIB)
    }
}

fn fraction(name: &str, value: &str) -> Result<f64, SettingsError> {
    const EXPECTED: &str = "a number above 0 and up to 1";
    match value.parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err(wrong(name, EXPECTED, value)),
    }
}

fn truth(name: &str, value: &str) -> Result<bool, SettingsError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(wrong(name, "`True` or `False`, in this spelling", value)),
    }
}

/// `4`, or `[256:1,512:2,1024:4,>:8]`: sizes in MiB, each class keeps its own number.
fn divisions(
    name: &str,
    value: &str,
    version: TorchVersion,
) -> Result<[u64; SIZE_CLASSES], SettingsError> {
    const EXPECTED: &str =
        "a power of two, or a list such as [256:1,512:2,>:4] of sizes in MiB and powers of two";
    let error = || wrong(name, EXPECTED, value);
    let number = |text: &str| -> Result<u64, SettingsError> {
        let number: u64 = text.trim().parse().map_err(|_| error())?;
        if number == 0 || number.is_power_of_two() {
            Ok(number)
        } else {
            Err(error())
        }
    };
    let Some(entries) = value.strip_prefix('[') else {
        return Ok([number(value)?; SIZE_CLASSES]);
    };
    let entries = entries.strip_suffix(']').ok_or_else(error)?;
    let mut classes = [0; SIZE_CLASSES];
    let mut last = None;
    for entry in entries.split(',') {
        let (size, divisions) = entry.split_once(':').ok_or_else(error)?;
        let divisions = number(divisions)?;
        if size.trim() == ">" {
            // Before 2.10 the class named last was overwritten too.
            let keeps_last = version >= TorchVersion::new(2, 10);
            classes[last.map_or(0, |last: usize| last + usize::from(keeps_last))..].fill(divisions);
            continue;
        }
        let size = number(size)?;
        if size == 0 {
            return Err(error());
        }
        let class = (size.ilog2() as usize).min(SIZE_CLASSES - 1);
        if last.is_none() {
            classes[..class].fill(divisions);
        }
        classes[class] = divisions;
        last = Some(class);
    }
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: TorchVersion = TorchVersion::NEWEST_CHECKED;

    #[test]
    fn settings_read_what_they_print() {
        for text in [
            "",
            "expandable_segments:True",
            "max_split_size_mb:128",
            "max_split_size_mb:64,garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
            "large_segment_size_mb:40,roundup_power2_divisions:4",
        ] {
            let settings = AllocatorSettings::parse(text, V).expect(text);
            let printed = settings.to_string();
            assert_eq!(
                AllocatorSettings::parse(&printed, V),
                Ok(settings),
                "{text}"
            );
        }
    }

    #[test]
    fn the_list_form_fills_as_torch_does() {
        let settings =
            AllocatorSettings::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", V)
                .expect("valid");
        let mut expected = [1; SIZE_CLASSES];
        expected[9] = 2;
        expected[10] = 4;
        expected[11..].fill(8);
        assert_eq!(settings.roundup_power2_divisions, expected);
        assert_eq!(settings.divisions(700 << 20), 2);
        assert_eq!(settings.divisions(1), 1);
    }

    #[test]
    fn what_torch_refuses_is_refused() {
        for (text, part) in [
            ("max_split_size_mb", "name:value"),
            ("max_split_size_mb:19", "20 or more"),
            ("max_split_size_mb:many", "found `many`"),
            ("large_segment_size_mb:10", "above 10"),
            ("expandable_segments:true", "this spelling"),
            ("garbage_collection_threshold:1.5", "up to 1"),
            ("roundup_power2_divisions:3", "power of two"),
            ("no_such:1", "unknown allocator setting `no_such`"),
            ("backend:cudaMallocAsync", "another allocator"),
        ] {
            let message = AllocatorSettings::parse(text, V)
                .expect_err(text)
                .to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let error = AllocatorSettings::parse("large_segment_size_mb:40", TorchVersion::new(2, 9))
            .expect_err("too new");
        assert!(
            error.to_string().contains("requires PyTorch 2.11"),
            "{error}"
        );
    }
}

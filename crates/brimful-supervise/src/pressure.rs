//! How short memory is, told to the training: the file `pressure` beside the gauges.
//!
//! Its one line is the pressure in thousandths, four digits. `brimful.data` looks at it now and then and makes fewer
//! batches ahead. A file that nobody reads costs nothing, and one that cannot be written is no reason to stop watching.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Smaller changes are not told.
const STEP: u64 = 50;

/// Writes when there is something new to say.
#[derive(Debug, Default)]
pub(crate) struct PressureFile {
    file: Option<File>,
    told: Option<u64>,
}

impl PressureFile {
    pub(crate) fn create(gauges: &Path) -> PressureFile {
        let path = gauges.join("pressure");
        // One of an earlier attempt.
        let _ = std::fs::remove_file(&path);
        let file = brimful_private::create_new(&path);
        PressureFile {
            file: file.ok(),
            told: None,
        }
    }

    pub(crate) fn tell(&mut self, pressure: f64) {
        let Some(file) = &self.file else { return };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1000"
        )]
        let now = (pressure.clamp(0.0, 1.0) * 1000.0) as u64;
        let is_an_end = now == 0 || now == 1000;
        let is_new = self
            .told
            .is_none_or(|told| told != now && (is_an_end || told.abs_diff(now) >= STEP));
        if is_new
            && file
                .write_all_at(format!("{now:04}\n").as_bytes(), 0)
                .is_ok()
        {
            self.told = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_last_pressure_that_was_worth_telling() {
        let directory = tempfile::tempdir().unwrap();
        let mut pressure = PressureFile::create(directory.path());
        let told = || std::fs::read_to_string(directory.path().join("pressure")).unwrap();
        for (now, expected) in [
            (0.0, "0000\n"),
            (0.3, "0300\n"),
            (0.32, "0300\n"),
            (1.7, "1000\n"),
            (0.99, "1000\n"),
            (0.0, "0000\n"),
        ] {
            pressure.tell(now);
            assert_eq!(told(), expected);
        }
    }

    #[test]
    fn nothing_is_told_where_there_is_no_directory() {
        let mut pressure = PressureFile::create(Path::new("/nonexistent"));
        pressure.tell(1.0);
    }
}

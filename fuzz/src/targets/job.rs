//! A job file of anyone's making: read and rendered, or refused with a message fit to show.
use brimful::job::forms::Form;
use brimful::job::{Override, Settings, read, read_pyproject};

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for file in [read(&text).map(Some), read_pyproject(&text)] {
        match file {
            Ok(Some(file)) => {
                for mode in std::iter::once(None).chain(file.modes().map(Some)) {
                    let job = file.job(mode, &[]).expect("modes were checked");
                    job.problems();
                    let rendered = job.render(&Settings::default(), Some("last.pt"));
                    assert!(rendered.command.iter().all(|word| !word.contains('\0')));
                    for form in Form::ALL {
                        form.write(&job, &Settings::default(), false);
                    }
                }
            }
            Ok(None) => {}
            Err(error) => {
                assert!(!error.to_string().chars().any(char::is_control), "{error}");
                error.hints();
            }
        }
    }
    for line in text.lines() {
        let _ = line.parse::<Override>();
    }
}

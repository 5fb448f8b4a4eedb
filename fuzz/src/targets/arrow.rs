//! An Arrow file or stream of anyone's making: read within bounds or refused.

use brimful_load::sources::ArrowFile;

use crate::input;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let path = input::file_of(data);
    let paths = [path];
    let some = ["id".to_owned(), "image".to_owned()];
    for headroom in input::HEADROOMS {
        for columns in [None, Some(&some[..1]), Some(&some[1..])] {
            input::read(|| Ok(Box::new(ArrowFile::open(&paths, columns, headroom)?)));
        }
    }
}

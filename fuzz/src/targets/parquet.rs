//! A Parquet file of anyone's making: read within bounds or refused.

use brimful::units::Bytes;
use brimful_load::sources::Parquet;

use crate::input;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let path = input::file_of(data);
    let paths = [path];
    let some = ["id".to_owned()];
    for headroom in input::HEADROOMS {
        for (columns, cache) in [(None, Bytes::from_mib(16)), (Some(&some[..]), Bytes(4096))] {
            input::read(|| Ok(Box::new(Parquet::open(&paths, columns, cache, headroom)?)));
        }
    }
}

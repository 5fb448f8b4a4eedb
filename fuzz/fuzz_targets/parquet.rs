//! A Parquet file of anyone's making: read within bounds or refused.
#![no_main]

mod input;

use brimful::units::Bytes;
use brimful_load::sources::Parquet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: input::quiet_panics(), |data: &[u8]| {
    let path = input::file_of(data);
    let paths = [path];
    let some = ["id".to_owned()];
    for headroom in input::HEADROOMS {
        for (columns, cache) in [(None, Bytes::from_mib(16)), (Some(&some[..]), Bytes(4096))] {
            input::read(|| Ok(Box::new(Parquet::open(&paths, columns, cache, headroom)?)));
        }
    }
});

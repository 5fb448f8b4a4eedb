//! A NumPy file of anyone's making, as arrays and as token ids: read within bounds or refused.
#![no_main]

mod input;

use brimful_load::DType;
use brimful_load::sources::{Npy, TokenForm, Tokens};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: input::quiet_panics(), |data: &[u8]| {
    let path = input::file_of(data);
    for headroom in input::HEADROOMS {
        input::read(|| {
            let source = Npy::open(&[("x".to_owned(), path.clone())], headroom)?;
            Ok(Box::new(source))
        });
        for (stored, as_i64) in [(None, true), (None, false), (Some(DType::U16), true)] {
            let form = TokenForm {
                stored,
                block: 16,
                as_i64,
            };
            input::read(|| Ok(Box::new(Tokens::open(&path, form, headroom)?)));
        }
    }
});

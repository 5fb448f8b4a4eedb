//! A NumPy file of anyone's making, as arrays and as token ids: read within bounds or refused.

use brimful_load::DType;
use brimful_load::sources::{Npy, TokenForm, Tokens};

use crate::input;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
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
}

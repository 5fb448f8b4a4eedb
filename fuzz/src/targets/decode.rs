//! An image of anyone's making: pixels within the memory that was said, or refused.

use brimful_load::ops::DecodeImage;
use brimful_load::{Encoding, FieldSpec, Op, Out, SampleKey, Scratch, Value};

use crate::input;

const KEY: SampleKey = SampleKey {
    seed: 0,
    epoch: 0,
    index: 0,
};

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let op = DecodeImage {
        max_pixels: 1 << 18,
        ..DecodeImage::default()
    };
    let promised = op.scratch_bytes(&FieldSpec::Encoded(Encoding::Image)) + 3 * op.max_pixels;
    let mut file = Value::default();
    file.set_encoded(data.len())
        .own(data.len())
        .copy_from_slice(data);
    let mut image = Value::default();
    let mut scratch = Scratch::default();
    let peak =
        input::peak_of(
            || match op.apply(KEY, &file, Out::Value(&mut image), &mut scratch) {
                Ok(()) => assert_eq!(image.bytes().len(), image.shape.iter().product::<usize>()),
                Err(error) => assert!(error.to_string().len() < 2000, "a message, not a page"),
            },
        );
    assert!(
        peak as u64 <= promised + 8192,
        "{peak} bytes were held, {promised} promised"
    );
}

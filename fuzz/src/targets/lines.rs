//! Text of anyone's making, plain and as JSON Lines: its lines are samples, or it is refused.

use brimful_load::sources::Lines;

use crate::input;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let paths = [input::file_of(data)];
    for headroom in input::HEADROOMS {
        for field in [None, Some("text".to_owned())] {
            input::read(|| Ok(Box::new(Lines::open(&paths, field, &headroom.into())?)));
        }
    }
}

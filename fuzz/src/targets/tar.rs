//! A tar archive of anyone's making: its members are samples or it is refused.

use brimful_load::sources::{TarField, Tars};

use crate::input;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let paths = [input::file_of(data)];
    let image = TarField {
        name: "image".to_owned(),
        extensions: vec!["jpg".to_owned(), "seg.png".to_owned()],
    };
    let label = TarField::named("cls");
    for headroom in input::HEADROOMS {
        for wanted in [
            &[image.clone(), label.clone()][..],
            std::slice::from_ref(&label),
            &[],
        ] {
            input::read(|| Ok(Box::new(Tars::open(&paths, wanted, &headroom.into())?)));
        }
    }
}

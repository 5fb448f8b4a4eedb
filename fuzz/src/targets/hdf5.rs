//! An HDF5 file of anyone's making: every dataset that it tells of is read within bounds or refused.

use brimful_load::sources::{DatasetRequest, Hdf5};

use crate::input;

/// More datasets only repeat what these do.
const MOST: usize = 12;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let path = input::file_of(data);
    let Ok(listed) = Hdf5::datasets(&path) else {
        return;
    };
    for (at, one) in listed.iter().take(MOST).enumerate() {
        assert!(!one.to_string().is_empty());
        let wanted = [DatasetRequest {
            axis: at % 2,
            ..DatasetRequest::new(&one.dataset)
        }];
        let headroom = input::HEADROOMS[at / 2 % 2];
        input::read(|| Ok(Box::new(Hdf5::open(&path, &wanted, headroom)?)));
    }
    input::read(|| Ok(Box::new(Hdf5::open(&path, &[], None)?)));
}

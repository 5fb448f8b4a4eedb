//! Internal: fake machines, real control groups, and programs that misbehave on purpose.
//!
//! Read first: [`FakeMachine`], a recorded machine from `fixtures/machines/`, and [`TestGroup`], a control group of
//! the real kernel.
//!
//! ```
//! use brimful_testkit::FakeMachine;
//!
//! let colab = FakeMachine::load("colab-t4");
//! let machine = brimful_probe::probe(&colab.surroundings());
//! assert_eq!(machine.platform.name().id(), "colab");
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "makes files for tests, and writes to those of the kernel"
)]
#![expect(
    clippy::panic,
    reason = "a broken fixture must stop the test that uses it"
)]

mod cgroups;
mod machines;

pub use cgroups::{NoGroups, TestGroup};
pub use machines::{FakeMachine, machine_names};

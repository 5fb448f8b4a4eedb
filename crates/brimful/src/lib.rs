//! The vocabulary of brimful and every decision it takes, as functions of values.
//!
//! This crate opens no file, reads no clock and no environment variable, and starts no process.
//! What it needs is handed in; what it decides is handed out.
//! So a machine recorded yesterday gives the same answer today, and every incident can become a test.
//!
//! Read first: [`machine::Machine`], the facts of one machine, and [`findings::Finding`], what will bite there.
//!
//! ```
//! use brimful::{findings, profiles};
//!
//! let machine = profiles::find("colab-t4").expect("a recorded profile").machine();
//! let brim = machine.host.brim();
//! assert_eq!(brim.known().expect("recorded").limit.to_string(), "12.67 GiB");
//!
//! let found = findings::of(&machine);
//! assert!(found.iter().any(|finding| finding.id == "bf16_emulated"));
//! ```

pub mod units;

pub mod fact;
pub mod machine;

pub mod allocator;
pub mod cards;
pub mod explain;
pub mod findings;
pub mod fleet;
pub mod job;
pub mod kernels;
pub mod live;
pub mod nodes;
pub mod plan;
pub mod predict;
pub mod preview;
pub mod profiles;
pub mod record;
pub mod secrets;
pub mod speed;
pub mod watch;

pub mod calendar;
pub mod env_vars;
pub mod printable;
pub mod suggest;
pub mod user_error;

//! Fixtures that the tests and benchmarks of all crates share.
//!
//! [`SeededRng`] is the one generator of test data. [`ram_volume`] makes small volumes in memory,
//! [`LoopDevice`] makes an image a block device, and [`mount_table`] reads the mounts of this
//! process. A fixture that the machine cannot provide is `None`, and its reason is printed to
//! stderr as `skipped: ...`. A fixture undoes its effect on the machine when it is dropped.
//!
//! No program of SFS depends on this crate.
#![forbid(unsafe_code)]

mod loop_device;
pub mod mount_table;
pub mod ram_volume;
mod replay;
mod scratch;
mod seeded_rng;

pub use loop_device::LoopDevice;
pub use replay::{Replay, number_from_env};
pub use scratch::{scratch_directory, wait_until};
pub use seeded_rng::SeededRng;

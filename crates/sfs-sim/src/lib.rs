//! The deterministic simulator: the whole core on a device in memory, its crash states, and a reference
//! model of its contract.
//!
//! A [`case::Case`] is a run of operations, recorded by [`recorded_run`] and named by a string. [`crash`] makes the
//! states that a power cut could leave of the run, [`check`] verifies each state, and [`explore`] does this
//! for many cases. [`shrink`] reduces a failing case. A seed decides everything; neither the clock nor any
//! entropy influences a result. A failure prints the command that replays it.
#![forbid(unsafe_code)]

pub mod ace;
pub mod case;
pub mod check;
pub mod crash;
pub mod empty_volume;
pub mod explore;
pub mod image;
pub mod model;
pub mod panics;
pub mod recorded_run;
pub mod scenario;
pub mod shrink;
pub mod silent_faults;
pub mod two_devices;
pub mod version_1;
pub mod wear_floor;

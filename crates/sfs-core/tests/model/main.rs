//! Comparison of the volume with a reference: a simple filesystem in memory, which lives in `sfs-sim`.
//!
//! `SFS_SEED=n SFS_STEPS=m` repeats or lengthens the long random sequences, and `SFS_CASES=n` sets the number of the
//! short ones. A failure of a long sequence prints the command that repeats it.

mod allocation;
mod amplification;
mod caches;
mod contract;
mod failed_sync;
mod fill;
mod in_place;
mod limits;
mod races;
mod reservations;
mod sequences;
mod space;
mod unfinished_batch;
mod unnamed;
mod watchdog;

use sfs_sim::model::{compare, content, digest, fixture, operation, pair, random};

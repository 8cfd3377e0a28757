//! The volume against a reference: a filesystem in memory that is too simple to be wrong.
//!
//! `SFS_SEED=n SFS_STEPS=m` repeats or lengthens a random run, `SFS_CASES=n` sets the number of
//! generated ones. A failure prints the command that repeats it.

mod allocation;
mod amplification;
mod caches;
mod contract;
mod leader;
mod leftovers;
mod limits;
mod placed;
mod races;
mod sequences;
mod space;
mod unnamed;
mod watchdog;

use sfs_sim::model::{compare, content, digest, fixture, operation, pair, random};

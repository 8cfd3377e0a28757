//! The volume against a reference: a filesystem in memory that is too simple to be wrong.
//!
//! `SFS_SEED=n SFS_STEPS=m` repeats or lengthens a random run, `SFS_CASES=n` sets the number of
//! generated ones. A failure prints the command that repeats it.

mod allocation;
mod amplification;
mod caches;
mod compare;
mod content;
mod contract;
mod crash;
mod digest;
mod faults;
mod history;
mod leader;
mod leftovers;
mod limits;
mod namespace;
mod operation;
mod pair;
mod races;
mod random;
mod reference;
mod rig;
mod sequences;
mod space;
mod watchdog;

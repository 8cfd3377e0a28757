//! The FUSE benchmarks: a null filesystem as the ceiling ([`null`]), a load generator for rates
//! ([`load`]) and one for the latency of single requests ([`tail`]).
//!
//! Every filesystem under test gets exactly the same calls, with the same accounting of CPU time.
//! `cargo xtask bench fuse` mounts the filesystems and drives the load; this crate mounts only the
//! null filesystem.
#![forbid(unsafe_code)]

pub mod load;
pub mod null;
pub mod tail;

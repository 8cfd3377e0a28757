//! The FUSE benchmarks: a null filesystem as the ceiling ([`null`]) and a load generator
//! ([`load`]).
//!
//! Every filesystem under test gets exactly the same calls, with the same accounting of CPU time.
//! `cargo xtask bench fuse` mounts the filesystems and drives the load; this crate mounts only the
//! null filesystem.
#![forbid(unsafe_code)]

pub mod load;
pub mod null;

//! What the FUSE benchmarks are made of: the ceiling ([`null`]) and the load ([`load`]).
//!
//! Owns the measured calls and their CPU accounting. Every filesystem gets exactly the same calls.
//! Never mounts anything but the null filesystem: `cargo xtask bench fuse` is the driver.
#![forbid(unsafe_code)]

pub mod load;
pub mod null;

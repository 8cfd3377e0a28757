//! Data that the kernel has accepted beyond the space of the volume: its bound, and the programs
//! that are told of its loss.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

#[path = "mount_told/bound.rs"]
mod bound;
#[path = "mount_told/kernel.rs"]
mod kernel;
#[path = "mount_told/short.rs"]
mod short;
#[path = "mount_told/told.rs"]
mod told;

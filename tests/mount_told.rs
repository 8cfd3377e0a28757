//! How much the kernel holds of what was written, and whom a full volume is told to.

#[expect(dead_code, reason = "every test program uses a part of it")]
mod harness;

#[path = "mount_told/bound.rs"]
mod bound;
#[path = "mount_told/short.rs"]
mod short;
#[path = "mount_told/told.rs"]
mod told;

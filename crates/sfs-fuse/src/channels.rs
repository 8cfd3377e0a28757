//! Transports: the device file `/dev/fuse`, and io_uring.
//!
//! [`fuse_channel`] reads and writes whole messages on the device file; [`uring_slot`] exchanges
//! one reply for the next request in memory that is shared with the kernel. [`notifier`] sends
//! notifications, which are messages without a request.

pub(crate) mod cpu_affinity;
pub(crate) mod fuse_channel;
#[expect(unsafe_code, reason = "the modules that call the system")]
mod fuse_syscalls;
pub(crate) mod notifier;
mod page;
pub(crate) use fuse_syscalls::wake;
pub(crate) mod uring_slot;
pub(crate) mod uring_slots;

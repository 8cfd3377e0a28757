//! The protocol between Linux and a filesystem in user space (FUSE), and its transports `/dev/fuse` and io_uring.
//!
//! A filesystem is one function from a [`FuseRequest`] to a [`Reply`], with memory for data that is read. mount(2)
//! and `fusermount3` leave a descriptor of `/dev/fuse`, which a [`FuseSession`] serves:
//!
//! ```no_run
//! use std::os::fd::OwnedFd;
//! use std::time::Duration;
//!
//! use sfs_fuse::{
//!     Errno, FuseOperation, FuseRequest, FuseSession, NodeAttributes, Reply, SessionConfig,
//! };
//!
//! /// Serves an empty directory.
//! fn answer(request: &FuseRequest<'_>, _room: &mut [u8]) -> Result<Reply<Vec<u8>>, Errno> {
//!     match request.operation {
//!         FuseOperation::Getattr { .. } => {
//!             let root =
//!                 NodeAttributes { ino: 1, mode: 0o040_755, links: 2, ..NodeAttributes::default() };
//!             Ok(Reply::Attributes(root, Duration::from_secs(1)))
//!         }
//!         _ => Err(Errno::NOT_IMPLEMENTED),
//!     }
//! }
//!
//! fn serve(channel: OwnedFd) -> std::io::Result<()> {
//!     FuseSession::new(channel, &SessionConfig::default())?.run(answer, |_| {})
//! }
//! ```
//!
//! A reply is sent by the thread that called the handler, so a handler that waits occupies its thread. A [`Handler`] has requests
//! parked instead, which another thread answers later. No bytes of the kernel make the decoder panic or allocate more than their own length. Data of a WRITE, and data of a READ
//! that is replied in place, are copied only by the kernel. The crate neither mounts nor keeps any state of inodes.
//!
//! Layers, from the top; a module uses only layers below its own, or modules to its right:
//!
//! 1. `fuse_session`: the threads; `server`: the loop of reading, calling and replying; `pausing`; `parked`; `handler`;
//! 2. `channels`: `notifier`, `uring_slots`, `uring_slot`, `fuse_channel`, `cpu_affinity`, `fuse_syscalls` (all
//!    unsafe code), `page`;
//! 3. `protocol`: `message`, `reply`, `directory_listing`, `node_reply`; `fuse_request`, `decode`, `fuse_operation`,
//!    `init_features`, `argument_reader`; `timestamps`, `errno`, `abi`.
#![deny(unsafe_code)]

mod channels;
mod fuse_session;
mod handler;
mod parked;
mod pausing;
mod protocol;
#[cfg(test)]
mod protocol_tests;
mod server;

pub use channels::notifier::Notifier;
pub use channels::uring_slots::NoUring;
pub use fuse_session::FuseSession;
pub use handler::{Handler, WaitingChange};
pub use pausing::{Pause, Pauser, SessionChannels};
pub use protocol::argument_reader::Malformed;
pub use protocol::directory_listing::{DirectoryListing, ListingEntry};
pub use protocol::errno::Errno;
pub use protocol::fuse_operation::{
    CopyArgs, CreateArgs, Forgets, FuseOperation, IoctlArgs, LockArgs, ReadArgs, ReleaseArgs,
    SetattrArgs, WriteArgs,
};
pub use protocol::fuse_request::{FuseRequest, RequestExtensions};
pub use protocol::init_features::{Agreed, AsyncDio, InitFlags, SessionConfig};
pub use protocol::message::{reply_bytes, with_reply};
pub use protocol::node_reply::{NodeAttributes, NodeEntry, OpenReply, OpenReplyFlags, Statfs};
pub use protocol::reply::{Queue, Reply, Ticket};
pub use protocol::timestamps::{SetTime, Time};

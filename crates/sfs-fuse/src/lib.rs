//! The protocol between Linux and a filesystem in user space, and a transport over `/dev/fuse` and io_uring.
//!
//! Owns: the messages, by the kernel's own definitions, and the threads that read and answer them.
//! Promises: no bytes make it panic, or take more memory than they are long; what is written, and what is
//! read into the room that comes with a request, is copied by nobody but the kernel.
//! Never: mounts, keeps an inode, or decides what an operation does.
//!
//! A filesystem is one function from a [`Request`] to an [`Answer`], with room for what is read. Who has
//! mounted something, by mount(2) or through `fusermount3`, has a descriptor of `/dev/fuse`; a [`Session`]
//! serves it:
//!
//! ```no_run
//! use std::os::fd::OwnedFd;
//! use std::time::Duration;
//!
//! use sfs_fuse::{Answer, Attributes, Config, Errno, Operation, Request, Session};
//!
//! /// An empty directory.
//! fn answer(request: &Request<'_>, _room: &mut [u8]) -> Result<Answer<Vec<u8>>, Errno> {
//!     match request.operation {
//!         Operation::Getattr { .. } => {
//!             let root = Attributes { ino: 1, mode: 0o040_755, links: 2, ..Attributes::default() };
//!             Ok(Answer::Attributes(root, Duration::from_secs(1)))
//!         }
//!         _ => Err(Errno::NOT_IMPLEMENTED),
//!     }
//! }
//!
//! fn serve(door: OwnedFd) -> std::io::Result<()> {
//!     Session::new(door, &Config::default())?.run(answer, |_| {})
//! }
//! ```
//!
//! Answers are given from the thread that was asked; a handler that has to wait keeps that thread.
#![deny(unsafe_code)]

mod abi;
mod answer;
mod arguments;
mod directory;
mod door;
mod entry;
mod errno;
mod home;
mod init;
#[cfg(test)]
mod kernel;
mod message;
mod notify;
mod operation;
mod page;
mod request;
mod rings;
mod session;
#[expect(unsafe_code, reason = "the modules that call the system")]
mod sys;
mod time;

pub use answer::{Answer, Attributes, Entry, Opened, OpenedFlags, Statfs};
pub use arguments::Malformed;
pub use directory::{Directory, DirectoryEntry};
pub use errno::Errno;
pub use init::{Agreed, AsyncDio, Config, InitFlags};
pub use notify::Notifier;
pub use operation::{Copy, Create, Forgets, Ioctl, Lock, Operation, Read, Release, Setattr, Write};
pub use request::{Extensions, Request};
pub use rings::NoRings;
pub use session::Session;
pub use time::{SetTime, Time};

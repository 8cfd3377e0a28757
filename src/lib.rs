//! SFS in the kernel's tree: how a volume is mounted, served through FUSE, and unmounted.
//!
//! Owns: everything between the command line, the kernel and [`sfs_core::Volume`].
//! Promises: a mount that was announced answers; what ends it in order leaves a checkpoint.
//! Never: decides what an operation of the filesystem does; the volume does.
#![deny(unsafe_code)]

mod answers;
mod attributes;
mod background;
mod backing;
pub mod command;
mod control;
mod daemonize;
mod errno;
mod failure;
mod fuse;
mod inflight;
mod logging;
mod mount;
mod mountinfo;
pub mod options;
mod panics;
pub mod remount;
pub mod session;
pub mod stat;
#[expect(unsafe_code, reason = "the one module that calls the system")]
mod sys;
pub mod transport;
pub mod unmount;

pub use failure::{ExitStatus, Failure};

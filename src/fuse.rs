//! The FUSE shell, which turns each request of the kernel into calls of the volume, and the result
//! into a reply.
//!
//! [`dispatch`] maps operations to methods of [`FuseShell`], which are in `name_operations`,
//! `file_operations`, and for ioctl(2) in the files that `ioctl` names. The shell also decides which operations the kernel must not
//! request again (ENOSYS), when a file bypasses the kernel's cache ([`free_space`]), and which
//! writes are refused because of a loss. The shell records data that was lost in write-back
//! ([`lost_writeback`]) and reports the loss to every writer once ([`open_handles`]). [`latencies`] counts the time of
//! every request. [`waiting`] decides which requests wait without a thread. [`read_ahead`] has
//! content of files that are read in order before the kernel asks for it. [`following_shell`] goes on from one state of a volume to newer ones.

mod byte_ranges;
mod caching;
mod dispatch;
mod error_to_errno;
mod failure_log;
mod file_operations;
mod following_shell;
mod free_space;
mod fuse_shell;
mod held_notices;
mod inode_attributes;
mod inode_flags;
pub(crate) mod inode_paths;
mod invalidations;
mod ioctl;
mod journaled;
mod kernel_references;
mod latencies;
mod lost_writeback;
mod name_operations;
mod open_handles;
mod privileges;
mod range_operations;
mod read_ahead;
mod recorded_requests;
mod repeated_content;
mod repeated_notices;
mod replay;
#[cfg(test)]
mod replay_tests;
mod reply_result;
mod shutdown;
mod volume_ioctl;
mod waiting;

pub(crate) use dispatch::{WRITE_MAX, congestion_threshold};
pub(crate) use following_shell::{FollowingShell, StateOpener};
pub(crate) use fuse_shell::FuseShell;
pub(crate) use invalidations::AttributeInvalidations;
pub(crate) use latencies::{Latencies, LatencySnapshot};
pub(crate) use lost_writeback::{HandedLosses, LossReport, LostWriteback};
pub(crate) use open_handles::{HandedHandles, OpenHandles};
pub(crate) use read_ahead::{ReadAhead, ReadFigures};
pub(crate) use reply_result::ReplyResult;

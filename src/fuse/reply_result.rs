//! Results of operations on their way to the kernel.

use std::ops::Range;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::request::ReadBuffer;
use sfs_fuse::{Errno, Reply};

use super::read_ahead::Ahead;

/// Reply to a request, or the error number for it.
pub(crate) type ReplyResult = Result<Reply<ReplyBytes>, Errno>;

/// Result of an operation of the shell.
pub(super) type OperationResult = Result<Reply<ReplyBytes>, Refusal>;

/// Makes the reply of a command of ioctl(2) that returns `bytes`.
pub(super) fn returned(bytes: Vec<u8>) -> OperationResult {
    Ok(Reply::Ioctl(0, ReplyBytes::Value(bytes)))
}

/// Memory that holds the data of a reply.
#[derive(Debug)]
pub(crate) enum ReplyBytes {
    /// Data of a file.
    Content(ReadBuffer),
    /// Data of a file that was read ahead, and where in its window.
    Ahead(Arc<Ahead>, Range<usize>),
    /// Value of an attribute, or target of a symbolic link.
    Value(Vec<u8>),
}

impl AsRef<[u8]> for ReplyBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Content(buffer) => buffer.as_bytes(),
            Self::Ahead(ahead, range) => &ahead.content().bytes()[range.clone()],
            Self::Value(value) => value,
        }
    }
}

/// Reason why an operation was not done.
pub(super) enum Refusal {
    /// The volume has refused or failed.
    Failed(Error),
    /// The shell has refused; the volume was not asked.
    Errno(i32),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

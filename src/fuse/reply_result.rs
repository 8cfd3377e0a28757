//! Results of operations on their way to the kernel.

use sfs_core::Error;
use sfs_core::request::ReadBuffer;
use sfs_fuse::{Errno, Reply};

/// The answer to a request, or what the kernel is told instead.
pub(crate) type ReplyResult = Result<Reply<ReplyBytes>, Errno>;

/// What became of an operation.
pub(super) type OperationResult = Result<Reply<ReplyBytes>, Refusal>;

/// Memory that an answer is read from.
#[derive(Debug)]
pub(crate) enum ReplyBytes {
    /// Of a file.
    Content(ReadBuffer),
    /// Of something smaller.
    Value(Vec<u8>),
}

impl AsRef<[u8]> for ReplyBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Content(buffer) => buffer.as_bytes(),
            Self::Value(value) => value,
        }
    }
}

/// Why an operation was not done.
pub(super) enum Refusal {
    /// The volume has said so.
    Failed(Error),
    /// It never reached the volume.
    Errno(i32),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

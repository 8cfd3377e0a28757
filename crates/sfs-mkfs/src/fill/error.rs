//! Errors of filling a volume: the path of the entry, and the reason.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sfs_device::DeviceError;

/// An entry of the source that could not be copied.
#[derive(Debug, thiserror::Error)]
pub struct FillError {
    /// Path of the entry: below the directory, or in the archive.
    pub path: PathBuf,
    /// Reason.
    #[source]
    pub reason: FillReason,
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name of an archive must not break the line, or the terminal.
        let path = self.path.to_string_lossy();
        write!(f, "{}: {}", path.escape_debug(), self.reason)
    }
}

/// Reason why an entry could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum FillReason {
    /// The entry could not be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The volume is full.
    #[error("no space is left on the volume; give a larger --size, or --fit")]
    NoSpace,
    /// The volume refused the entry.
    #[error("{0}")]
    Refused(sfs_core::Error),
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The file changed while it was read.
    #[error("changed while it was copied")]
    Changed,
    /// The file is the image that is being made.
    #[error("is the image that is being made; make it elsewhere")]
    Itself,
    /// The name of an entry leads out of the archive.
    #[error("has '..' in its name")]
    Upward,
    /// The name of an entry is empty.
    #[error("has an empty name")]
    Unnamed,
    /// The target of a hard link is not in the archive before the link, or is a directory.
    #[error("is a hard link to '{0}', which is no earlier file of the archive")]
    LinkTarget(String),
    /// The parent of an entry is not a directory.
    #[error("its parent is not a directory")]
    Parent,
    /// The archive has a type of entry that a filesystem does not have.
    #[error("has the unknown type '{0}'")]
    Kind(char),
    /// A number of the entry does not fit.
    #[error("has a wrong {0}")]
    Number(&'static str),
    /// The archive is compressed.
    #[error("is compressed with {0}; decompress it first")]
    Compressed(&'static str),
    /// The form of a sparse file is unknown.
    #[error("is a sparse file in a form that is not read; archive it with tar --format=gnu")]
    Sparse,
}

impl FillError {
    /// Makes the error of the entry at `path`.
    pub(super) fn new(path: &Path, reason: impl Into<FillReason>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

impl From<sfs_core::Error> for FillReason {
    fn from(error: sfs_core::Error) -> Self {
        match error {
            sfs_core::Error::NoSpace => Self::NoSpace,
            sfs_core::Error::Device(error) => Self::Device(error),
            error => Self::Refused(error),
        }
    }
}

//! Reasons why a step of write-back did not happen.

use crate::Error;
use crate::format::{Corruption, DecodeError};
use crate::metadata::MetadataError;
use crate::tree::NodeNotCached;

/// Too few segments are Clean for this batch now. Reclaiming may make more segments Clean; users
/// see [`Error::NoSpace`] only after reclaiming has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage;

/// Reason why a commit or checkpoint did not happen. Unless writing has ended, the volume has not
/// changed, except for the ordered data that a checkpoint writes first and for dirty data of
/// damaged files, which is dropped.
#[derive(Debug)]
pub(crate) enum StepError {
    /// Segments are short.
    Shortage(Shortage),
    /// The step failed.
    Failed(Error),
}

impl StepError {
    /// Returns the error for a user who cannot be helped by more reclaiming.
    pub(crate) fn into_user_error(self) -> Error {
        match self {
            Self::Shortage(Shortage) => Error::NoSpace,
            Self::Failed(error) => error,
        }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Shortage> for StepError {
    fn from(shortage: Shortage) -> Self {
        Self::Shortage(shortage)
    }
}

/// Reason why no batch was built, and the file that the reason concerns, if there is one.
#[derive(Debug)]
pub(crate) struct BuildError {
    pub(crate) reason: BuildErrorReason,
    pub(crate) ino: Option<u64>,
}

/// Reason in a [`BuildError`].
#[derive(Debug)]
pub(crate) enum BuildErrorReason {
    /// A node has to be loaded first.
    NotCached(NodeNotCached),
    /// Segments are short.
    Shortage(Shortage),
    /// The metadata is damaged.
    Failed(Error),
}

impl From<Shortage> for BuildErrorReason {
    fn from(shortage: Shortage) -> Self {
        Self::Shortage(shortage)
    }
}

impl From<MetadataError> for BuildErrorReason {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::NotCached(node) => Self::NotCached(node),
            MetadataError::Error(error) => Self::Failed(error),
        }
    }
}

impl From<NodeNotCached> for BuildErrorReason {
    fn from(node: NodeNotCached) -> Self {
        Self::NotCached(node)
    }
}

impl From<Error> for BuildErrorReason {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<DecodeError> for BuildErrorReason {
    fn from(error: DecodeError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Corruption> for BuildErrorReason {
    fn from(damage: Corruption) -> Self {
        Self::Failed(damage.into())
    }
}

impl<T: Into<BuildErrorReason>> From<T> for BuildError {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), ino: None }
    }
}

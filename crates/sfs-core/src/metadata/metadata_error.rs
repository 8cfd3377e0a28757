//! Reasons why metadata cannot be read or changed right away.

use crate::format::{Corruption, DecodeError};
use crate::tree::NodeNotCached;

/// Reason why an operation could not be done right away.
#[derive(Debug)]
pub(crate) enum MetadataError {
    /// A node has to be loaded before the next attempt.
    NotCached(NodeNotCached),
    /// The operation failed.
    Error(crate::Error),
}

impl From<NodeNotCached> for MetadataError {
    fn from(node: NodeNotCached) -> Self {
        Self::NotCached(node)
    }
}

impl From<crate::Error> for MetadataError {
    fn from(error: crate::Error) -> Self {
        Self::Error(error)
    }
}

impl From<DecodeError> for MetadataError {
    fn from(error: DecodeError) -> Self {
        Self::Error(error.into())
    }
}

impl From<Corruption> for MetadataError {
    fn from(corruption: Corruption) -> Self {
        Self::Error(corruption.into())
    }
}

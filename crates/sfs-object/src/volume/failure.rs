//! Errors of an object volume.

use std::io;

use sfs_device::{DeviceError, Late, Operation};

use super::shape::Shape;
use crate::error::ObjectError;
use crate::store::Stopped;

/// Why nothing more is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The protocol, or the store.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The local cache.
    #[error("local cache: {0}")]
    Local(String),
    /// The use of the volume has ended.
    #[error("the volume is closed")]
    Closed,
    /// The store has not answered for a while, or refuses. What was written stays, and is uploaded when it does; a later flush makes sure.
    #[error(
        "the object store does not answer, or refuses; what was written is kept, and uploaded when it answers"
    )]
    Late,
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::Object(stopped.into())
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Local(error.to_string())
    }
}

impl Failure {
    /// Returns the error of a request of the device.
    pub(crate) fn of(self, operation: Operation, address: u64, count: u64) -> DeviceError {
        let source = match self {
            Self::Late => io::Error::new(io::ErrorKind::TimedOut, Late(self.to_string())),
            failure => io::Error::other(failure),
        };
        DeviceError::of_blocks(operation, address, count, source)
    }
}

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The protocol, the store or the local cache.
    #[error(transparent)]
    Failure(Failure),
    /// There is a volume already.
    #[error("there is a volume already")]
    Exists,
    /// Another writer has not released the volume.
    #[error(
        "{host} has the volume, or its machine has died; if it has died, mount with -o takeover: what it acknowledged with \
         durability=local and did not upload is lost"
    )]
    InUse {
        /// Name of the machine.
        host: String,
    },
    /// The local cache belongs to another volume.
    #[error(
        "the local cache belongs to another volume: give another one, or remove the cache file"
    )]
    ForeignCache,
    /// A volume cannot be made with a local cache that belongs to one already.
    #[error(
        "the local cache belongs to a volume already: remove the cache file, or make the volume with another one"
    )]
    UsedCache,
    /// Another writer has taken the volume over since the cache was used, and the cache has blocks that were never uploaded.
    #[error(
        "{host} has taken the volume over since this cache was used, and {regions} regions of the cache were never uploaded: they are \
         not part of the volume any more; '-o ro,local_state' shows what the cache has, for copying it soon; to use the volume, mount with another \
         cache file, and keep or remove this one"
    )]
    StaleCache {
        /// Name of the machine.
        host: String,
        /// Number of regions that were not uploaded.
        regions: usize,
    },
    /// The cache has nothing that was not uploaded.
    #[error(
        "everything that the local cache has was uploaded: leave out 'local_state', and give another cache file if this one is refused"
    )]
    NothingLeft,
    /// The cache was never used for a volume.
    #[error("the local cache belongs to no volume, or was never used")]
    UnusedCache,
    /// Objects of the state that the cache continues are deleted.
    #[error(
        "others have deleted objects of the state that this cache continues, which cannot be shown any more; {regions} regions in the cache \
         were never uploaded"
    )]
    StateDeleted {
        /// Number of regions that were not uploaded.
        regions: usize,
    },
    /// The store has an older state than this cache has seen.
    #[error(
        "the object store has an older state of the volume than this cache has seen: objects were deleted, or restored from a backup; \
         to go on with that state, mount with another cache, and keep or remove this cache file"
    )]
    RolledBack,
    /// The cache is smaller than the volume needs.
    #[error(
        "the local cache has {actual} blocks, and the volume needs {needed}: give a larger one, or a file that does not exist"
    )]
    SmallCache {
        /// Number of blocks.
        actual: u64,
        /// Number of blocks that are needed.
        needed: u64,
    },
    /// No volume can have this shape.
    #[error("a volume cannot have {} blocks in regions of {} blocks", .0.volume_blocks, .0.region_blocks)]
    Shape(Shape),
    /// The state in a manifest or a log object cannot be read.
    #[error("the state of the volume is damaged, or of a later version")]
    State,
}

impl<E: Into<Failure>> From<E> for OpenError {
    fn from(error: E) -> Self {
        Self::Failure(error.into())
    }
}

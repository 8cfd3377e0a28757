//! Errors of the protocol.

use crate::frame::Nonce;
use crate::name::{Epoch, ObjectName};
use crate::store::Stopped;

/// Why a step of the protocol has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Another writer has sealed this epoch. Log objects that were not acknowledged are not part of the volume, or the new
    /// writer has them.
    #[error("epoch {} was taken over by the writer of epoch {}", epoch.0, by.0)]
    TakenOver {
        /// The epoch that may not be written any more.
        epoch: Epoch,
        /// The epoch of the writer that has sealed it.
        by: Epoch,
        /// The nonce of that writer.
        nonce: Nonce,
    },
    /// A name of this epoch is taken and cannot be read: a later writer has deleted the object.
    #[error("epoch {} was taken over by a writer that has deleted its objects", .0.0)]
    Superseded(Epoch),
    /// An object is not what its name says.
    #[error("object {0} is damaged")]
    Damaged(ObjectName),
    /// The newest manifest needs an object that does not exist.
    #[error("object {0} is missing")]
    Missing(ObjectName),
    /// The objects up to this one have more bytes than a writer leaves.
    #[error("the log up to object {0} has more bytes than a writer leaves")]
    TooMuch(ObjectName),
    /// There is no manifest.
    #[error("there is no volume")]
    NoVolume,
    /// The caller has given up.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

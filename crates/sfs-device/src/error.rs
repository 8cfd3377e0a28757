//! Errors of requests to a device.

use std::fmt;
use std::io;

use crate::block::BLOCK_SIZE;

/// Kind of a request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Open the device.
    Open,
    /// Read blocks.
    Read,
    /// Write blocks.
    Write,
    /// Make writes durable.
    Flush,
    /// Discard blocks.
    Discard,
}

/// Error of a request that the device did not complete.
#[derive(Debug)]
pub struct DeviceError {
    /// Kind of the request.
    pub operation: Operation,
    /// Offset of the request in bytes; zero for open and flush.
    pub offset: u64,
    /// Length of the request in bytes; zero for open and flush.
    pub length: u64,
    /// Error that the system returned.
    pub source: io::Error,
}

/// Cause of an error of a request that a device has neither done nor lost, with a line for the user.
///
/// A flush that fails so may be repeated: a later one that succeeds makes durable what was written before both. A read may succeed later. No
/// write fails so.
#[derive(Debug)]
pub struct Late(pub String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

impl DeviceError {
    /// Returns whether the device has neither done nor lost what was asked for ([`Late`]).
    pub fn is_late(&self) -> bool {
        self.source.get_ref().is_some_and(|cause| cause.is::<Late>())
    }

    /// Makes the error of a request for `block_count` blocks from block `address` on.
    pub fn of_blocks(
        operation: Operation,
        address: u64,
        block_count: u64,
        source: io::Error,
    ) -> DeviceError {
        DeviceError {
            operation,
            offset: address.saturating_mul(BLOCK_SIZE as u64),
            length: block_count.saturating_mul(BLOCK_SIZE as u64),
            source,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            Operation::Open => return write!(f, "cannot open: {}", self.source),
            Operation::Flush => return write!(f, "flush failed: {}", self.source),
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Discard => "discard",
        };
        write!(
            f,
            "{verb} of {} bytes at offset {} failed: {}",
            self.length, self.offset, self.source
        )
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

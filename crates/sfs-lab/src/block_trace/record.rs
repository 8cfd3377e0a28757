//! One request of a trace.

use anyhow::{Context, Result};
use sfs_ssd::{HostRequest, RequestKind};

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Number of microseconds since the beginning; zero in a trace without times.
    pub at_us: u64,
    /// Kind of the request.
    pub kind: RequestKind,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; zero for a flush.
    pub len: u64,
    /// Stream that the host named; 0 if it named none.
    pub stream: u8,
}

impl TraceRecord {
    /// Returns a request without a stream.
    pub(crate) fn new(at_us: u64, kind: RequestKind, offset: u64, len: u64) -> TraceRecord {
        TraceRecord { at_us, kind, offset, len, stream: 0 }
    }

    /// Returns the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Returns the request for a model, with its arrival time.
    pub fn request(&self) -> HostRequest {
        let request = HostRequest::new(self.kind, self.offset, self.len);
        HostRequest { arrival_ns: self.at_us * 1000, stream: self.stream, ..request }
    }
}

/// Parses the number of a field.
pub(super) fn number(field: &str) -> Result<u64> {
    field.parse().with_context(|| format!("not a number: {field}"))
}

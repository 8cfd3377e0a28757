//! Counts of requests to an object store.

use crate::store_protocol::{Reply, Request};

/// Requests that were sent, each attempt for itself, and bytes of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Reads of an object, or of a part of one.
    pub gets: u64,
    /// Attempts to store an object.
    pub puts: u64,
    /// Deletions.
    pub deletes: u64,
    /// Bytes of objects in PUTs.
    pub bytes_up: u64,
    /// Bytes that were read.
    pub bytes_down: u64,
}

impl StoreCounts {
    /// Counts a request with its body, and the reply to it.
    pub(super) fn add(&mut self, (request, body): &(Request, &[u8]), reply: &Reply) {
        match request {
            Request::Put(_) => {
                self.puts += 1;
                self.bytes_up += body.len() as u64;
            }
            Request::Get(_) | Request::GetPart(_) => self.gets += 1,
            Request::Delete(_) => self.deletes += 1,
            // Some requests, before a volume is used.
            Request::Probe => {}
        }
        if let Reply::Found(bytes) = reply {
            self.bytes_down += bytes.len() as u64;
        }
    }
}

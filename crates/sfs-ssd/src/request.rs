//! Requests of the host, and the times at which they were served.
//!
//! All times are virtual, in nanoseconds since the device was made.

use serde::Serialize;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RequestKind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Discards bytes (TRIM). Only pages that lie wholly in the range are discarded.
    Trim,
    /// Makes writes durable. A write is durable when it ends, so a flush costs no more than a
    /// command.
    Flush,
}

/// Request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// Arrival time at the device.
    pub arrival_ns: u64,
    /// Kind of the request.
    pub kind: RequestKind,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Stream of the data, a hint for writing data together (a placement identifier).
    pub stream: u8,
    /// `true` if cleaning should be deferred for this request (Rajimwale et al., section 3.6).
    pub priority: bool,
}

impl HostRequest {
    /// Makes a request that arrives at time zero, with stream 0 and without priority.
    pub fn new(kind: RequestKind, offset: u64, len: u64) -> HostRequest {
        HostRequest { arrival_ns: 0, kind, offset, len, stream: 0, priority: false }
    }

    /// Returns the offset of the byte after the last one.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Times at which a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Arrival at the device.
    pub arrived_ns: u64,
    /// Start of the service.
    pub begun_ns: u64,
    /// End of the service.
    pub ended_ns: u64,
}

impl Completion {
    /// Returns the time from the start of the service to its end.
    pub fn service_ns(&self) -> u64 {
        self.ended_ns - self.begun_ns
    }

    /// Returns the time from the arrival to the end of the service.
    pub fn response_ns(&self) -> u64 {
        self.ended_ns - self.arrived_ns
    }
}

/// Response times of many requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Responses {
    /// Number of requests.
    pub count: u64,
    /// Sum of the response times, in nanoseconds.
    pub sum_ns: u64,
    /// Maximum of the response times, in nanoseconds.
    pub max_ns: u64,
}

impl Responses {
    /// Adds the response time of one request.
    pub fn add(&mut self, completion: Completion) {
        self.count += 1;
        self.sum_ns += completion.response_ns();
        self.max_ns = self.max_ns.max(completion.response_ns());
    }

    /// Returns the mean response time in milliseconds; zero without requests.
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64 / 1e6
    }
}

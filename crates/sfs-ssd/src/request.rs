//! Requests of the host, and when they were served.
//!
//! Owns: what a request says.
//! Promises: times are virtual, in nanoseconds since the device was made.
//! Never: serves one.

use serde::Serialize;

/// What the host wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RequestKind {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Forget bytes (TRIM): only pages that lie wholly in the range are forgotten.
    Trim,
    /// Make writes durable. They are when they have ended, so this takes no longer than a command.
    Flush,
}

/// A request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When the host hands it over.
    pub arrival_ns: u64,
    /// What it wants.
    pub kind: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Which data belongs together: a stream, or placement identifier.
    pub stream: u8,
    /// Whether cleaning should give way to it (Rajimwale et al., section 3.6).
    pub priority: bool,
}

impl Request {
    /// A request at time zero, of stream 0, without priority.
    pub fn new(kind: RequestKind, offset: u64, len: u64) -> Request {
        Request { arrival_ns: 0, kind, offset, len, stream: 0, priority: false }
    }

    /// The byte after its last.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// When a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it came to the device.
    pub arrived_ns: u64,
    /// When the device turned to it.
    pub begun_ns: u64,
    /// When it was done.
    pub ended_ns: u64,
}

impl Completion {
    /// From the device turning to it until it was done.
    pub fn service_ns(&self) -> u64 {
        self.ended_ns - self.begun_ns
    }

    /// From coming to the device until it was done.
    pub fn response_ns(&self) -> u64 {
        self.ended_ns - self.arrived_ns
    }
}

/// Response times of many requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Responses {
    /// Requests.
    pub count: u64,
    /// Their response times together, in nanoseconds.
    pub sum_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
}

impl Responses {
    /// Takes one more into account.
    pub fn add(&mut self, completion: Completion) {
        self.count += 1;
        self.sum_ns += completion.response_ns();
        self.max_ns = self.max_ns.max(completion.response_ns());
    }

    /// Their mean, in milliseconds; zero if there are none.
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64 / 1e6
    }
}

//! The recorder of requests: from the dispatch, through a bounded queue, to the one client that asked for them.
//!
//! While nobody records, a request costs one relaxed load ([`RequestRecorder::is_on`]). While somebody does, a request
//! appends to the queue under a lock and never waits for the client: a full queue loses the request, and the loss is
//! counted and has its place in the trace.

use sfs_core::format::NAME_LEN_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sfs_trace::TraceRequest;

/// Largest number of requests in the queue. The queue and the part that is being sent take up to 7 MiB together.
const QUEUE_MAX: usize = 32 << 10;

/// Largest number of bytes of names in the queue.
const NAMES_LEN_MAX: usize = 1 << 20;

/// Number of requests for which the client's thread is woken.
const WORTHWHILE: usize = 512;

/// Recorder of a mount.
#[derive(Default)]
pub(crate) struct RequestRecorder {
    is_on: AtomicBool,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    /// Beginning of the recording; `None` while there is none.
    began: Option<Instant>,
    has_names: bool,
    queue: Vec<TraceRequest>,
    names_len: usize,
    /// Requests that were lost since the last of `queue`.
    lost: u64,
}

impl RequestRecorder {
    /// Returns whether requests are recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records `requests`, which began at `begun` and are answered now.
    pub(crate) fn record(&self, begun: Instant, requests: impl IntoIterator<Item = TraceRequest>) {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun).as_micros();
        let took_us = u32::try_from(took).unwrap_or(u32::MAX);
        let mut state = self.state.lock();
        let Some(began) = state.began else { return };
        let at_us = now.saturating_duration_since(began).as_micros() as u64;
        for request in requests {
            state.push(TraceRequest { at_us, took_us, ..request });
        }
        if state.queue.len() >= WORTHWHILE {
            self.filled.notify_one();
        }
    }

    /// Begins a recording, with names or without them; `None` if another one goes on.
    pub(crate) fn start(self: &Arc<Self>, has_names: bool) -> Option<Recording> {
        let mut state = self.state.lock();
        if state.began.is_some() {
            return None;
        }
        let began = Instant::now();
        *state = State { began: Some(began), has_names, ..State::default() };
        self.is_on.store(true, Ordering::Relaxed);
        drop(state);
        Some(Recording { recorder: self.clone(), began })
    }
}

impl State {
    fn push(&mut self, mut request: TraceRequest) {
        if !self.has_names {
            (request.name, request.other_name) = (None, None);
        }
        // A name that is too long was refused, and a line of the trace has no room for it.
        for name in [&mut request.name, &mut request.other_name] {
            *name = name.take().filter(|name| name.len() <= NAME_LEN_MAX);
        }
        let names = [&request.name, &request.other_name];
        let len: usize = names.into_iter().flatten().map(|name| name.len()).sum();
        if self.queue.len() >= QUEUE_MAX || self.names_len + len > NAMES_LEN_MAX || self.lost > 0 {
            self.lost += 1;
        } else {
            self.names_len += len;
            self.queue.push(request);
        }
    }
}

/// A recording that goes on. Dropping it ends the recording, and frees the queue.
pub(crate) struct Recording {
    recorder: Arc<RequestRecorder>,
    began: Instant,
}

impl Recording {
    /// Returns the requests since the last call, with a mark where requests were lost. Waits for at most `wait` for
    /// more of them.
    pub(crate) fn take(&self, wait: Duration) -> Vec<TraceRequest> {
        let mut state = self.recorder.state.lock();
        if state.queue.len() < WORTHWHILE {
            self.recorder.filled.wait_for(&mut state, wait);
        }
        let mut requests = std::mem::take(&mut state.queue);
        let lost = std::mem::take(&mut state.lost);
        state.names_len = 0;
        drop(state);
        if lost > 0 {
            requests.push(TraceRequest::lost(self.began.elapsed().as_micros() as u64, lost));
        }
        requests
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.recorder.is_on.store(false, Ordering::Relaxed);
        *self.recorder.state.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use sfs_trace::TraceOperation;

    use super::*;

    fn request(name: Option<&[u8]>) -> TraceRequest {
        TraceRequest { name: name.map(Into::into), ..TraceRequest::new(TraceOperation::Create, 2) }
    }

    #[test]
    fn requests_are_recorded_by_one_client_at_a_time() {
        let recorder = Arc::new(RequestRecorder::default());
        assert!(!recorder.is_on());
        recorder.record(Instant::now(), [request(None)]);
        let recording = recorder.start(false).expect("nobody records");
        assert!(recorder.start(true).is_none());
        assert!(recorder.is_on());
        let begun = Instant::now();
        recorder.record(begun, [request(Some(b"secret")), request(None)]);
        let taken = recording.take(Duration::ZERO);
        assert_eq!(taken.len(), 2, "nothing from before the recording");
        assert!(taken.iter().all(|request| request.name.is_none()), "{taken:?}");
        drop(recording);
        assert!(!recorder.is_on());
        recorder.record(begun, [request(None)]);
        let next = recorder.start(true).expect("nobody records any more");
        recorder.record(begun, [request(Some(b"name"))]);
        let taken = next.take(Duration::ZERO);
        assert_eq!(taken.len(), 1, "nothing from between the recordings");
        assert_eq!(taken[0].name.as_deref(), Some(&b"name"[..]));
    }

    #[test]
    fn a_full_queue_loses_requests_and_says_so() {
        let recorder = Arc::new(RequestRecorder::default());
        let recording = recorder.start(true).expect("nobody records");
        let begun = Instant::now();
        (0..QUEUE_MAX + 3).for_each(|_| recorder.record(begun, [request(None)]));
        let taken = recording.take(Duration::ZERO);
        assert_eq!(taken.len(), QUEUE_MAX + 1);
        let mark = taken.last().expect("a mark");
        assert_eq!((mark.operation, mark.len), (TraceOperation::Lost, 3));
        let long = [b'n'; 255];
        (0..NAMES_LEN_MAX / 255 + 2).for_each(|_| recorder.record(begun, [request(Some(&long))]));
        let mark = recording.take(Duration::ZERO).pop().expect("a mark");
        assert_eq!((mark.operation, mark.len), (TraceOperation::Lost, 2));
        recorder.record(begun, [request(None)]);
        assert_eq!(recording.take(Duration::ZERO).len(), 1, "the queue has room again");
    }
}

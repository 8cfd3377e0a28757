//! The request queue of a device: admission, scheduling and merging.
//!
//! A simulation run admits requests up to the depth of the queue, chooses the next one by the scheduling
//! policy, and hands it to the device. A request begins neither before its arrival nor before its first
//! element is idle. Requests can be merged, but are never split.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;

use serde::Serialize;

use crate::request::{Completion, HostRequest, RequestKind, Responses};
use crate::ssd::Ssd;

/// Choice of the next request among the waiting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// First come, first served: a request that waits for a busy element delays all later requests.
    Fcfs,
    /// Shortest wait time first: the request whose element is idle first (Rajimwale et al., section 3.2);
    /// of several, the one that arrived first.
    Swtf,
}

/// Source of the arrival times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Requests arrive at their own [`HostRequest::arrival_ns`].
    Timed,
    /// Requests arrive as soon as the queue admits them: the host always has more requests.
    Eager,
}

/// Parameters of a request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestQueue {
    /// Choice of the next request.
    pub scheduling: Scheduling,
    /// Maximum number of requests that have arrived and not ended; zero counts as one.
    pub depth: usize,
    /// Source of the arrival times.
    pub arrivals: Arrivals,
    /// `true` if adjacent waiting writes within one page are served as one write: stripe-aligned writes
    /// (Rajimwale et al., section 3.4).
    pub merging: bool,
}

impl RequestQueue {
    /// Queue that serves one request at a time.
    pub const SYNCHRONOUS: RequestQueue = RequestQueue {
        scheduling: Scheduling::Fcfs,
        depth: 1,
        arrivals: Arrivals::Eager,
        merging: false,
    };

    /// Queue of unlimited depth that serves requests in the order of their arrival times.
    pub const FCFS: RequestQueue = RequestQueue {
        scheduling: Scheduling::Fcfs,
        depth: usize::MAX,
        arrivals: Arrivals::Timed,
        merging: false,
    };

    /// Serves `requests`, whose arrival times count from the time at which `ssd` is idle, and returns their
    /// response times.
    pub fn respond(
        &self,
        ssd: &mut Ssd,
        requests: impl IntoIterator<Item = HostRequest>,
    ) -> Responses {
        let mut responses = Responses::default();
        let from_ns = ssd.idle_ns();
        let later = requests
            .into_iter()
            .map(|request| HostRequest { arrival_ns: request.arrival_ns + from_ns, ..request });
        self.run(ssd, from_ns, later, |_, completion| responses.add(completion));
        responses
    }

    /// Serves `requests`, which are in the order of their arrival, from time `from_ns` on.
    ///
    /// Calls `done` with each request and its completion. Returns the time at which the last request ended.
    pub fn run(
        &self,
        ssd: &mut Ssd,
        from_ns: u64,
        requests: impl IntoIterator<Item = HostRequest>,
        done: impl FnMut(&HostRequest, Completion),
    ) -> u64 {
        let source = requests.into_iter().peekable();
        let mut run = QueueRun {
            queue: self,
            source,
            waiting: VecDeque::new(),
            in_flight: BinaryHeap::new(),
            now_ns: from_ns,
            ended_ns: from_ns,
            done,
        };
        while run.advance(ssd) {}
        run.ended_ns
    }
}

/// State of a simulation run.
struct QueueRun<'a, I: Iterator<Item = HostRequest>, F> {
    queue: &'a RequestQueue,
    source: Peekable<I>,
    waiting: VecDeque<HostRequest>,
    /// End time of each request that has begun.
    in_flight: BinaryHeap<Reverse<u64>>,
    now_ns: u64,
    ended_ns: u64,
    done: F,
}

impl<I: Iterator<Item = HostRequest>, F: FnMut(&HostRequest, Completion)> QueueRun<'_, I, F> {
    /// Advances to the next event and returns whether there was one.
    fn advance(&mut self, ssd: &mut Ssd) -> bool {
        self.admit();
        let next_ns = self.next_arrival_ns();
        let Some((no, ready_ns)) = self.choose(ssd) else {
            self.now_ns = next_ns.unwrap_or(self.now_ns);
            return next_ns.is_some();
        };
        let begin_ns = ready_ns.max(self.now_ns);
        match next_ns {
            // A request that arrives before `begin_ns` may be chosen instead.
            Some(next_ns) if next_ns < begin_ns => self.now_ns = next_ns,
            _ => self.begin(ssd, no, begin_ns),
        }
        true
    }

    /// Admits all requests that have arrived by now.
    fn admit(&mut self) {
        while self.next_arrival_ns().is_some_and(|next_ns| next_ns <= self.now_ns) {
            let mut request = self.source.next().expect("the request was peeked at");
            if self.queue.arrivals == Arrivals::Eager {
                request.arrival_ns = self.now_ns;
            }
            self.waiting.push_back(request);
        }
    }

    /// Returns the time at which the next request can be admitted.
    ///
    /// Returns `None` if no request is left, or the queue is full of requests that have not begun.
    fn next_arrival_ns(&mut self) -> Option<u64> {
        while self.in_flight.peek().is_some_and(|&Reverse(end_ns)| end_ns <= self.now_ns) {
            self.in_flight.pop();
        }
        let request = self.source.peek()?;
        let arrival_ns = match self.queue.arrivals {
            Arrivals::Timed => request.arrival_ns,
            Arrivals::Eager => self.now_ns,
        };
        match self.waiting.len() + self.in_flight.len() < self.queue.depth.max(1) {
            true => Some(arrival_ns),
            false => self.in_flight.peek().map(|&Reverse(end_ns)| end_ns.max(arrival_ns)),
        }
    }

    /// Returns the index of the next request, and the time at which its first element is idle.
    fn choose(&self, ssd: &Ssd) -> Option<(usize, u64)> {
        let ready = self.waiting.iter().map(|request| ssd.ready_ns(request)).enumerate();
        match self.queue.scheduling {
            Scheduling::Fcfs => ready.take(1).next(),
            Scheduling::Swtf => ready.min_by_key(|&(_, ready_ns)| ready_ns.max(self.now_ns)),
        }
    }

    fn begin(&mut self, ssd: &mut Ssd, no: usize, begin_ns: u64) {
        let first = self.waiting.remove(no).expect("the request was chosen from the queue");
        let mut served = vec![first];
        let mut whole = first;
        if self.queue.merging && first.kind == RequestKind::Write {
            let page_size = ssd.geometry().page_size();
            while let Some(next) = self.take_neighbour(&whole, page_size) {
                whole.offset = whole.offset.min(next.offset);
                whole.len += next.len;
                served.push(next);
            }
        }
        let completion = ssd.serve(&whole, begin_ns);
        self.now_ns = begin_ns;
        self.ended_ns = self.ended_ns.max(completion.ended_ns);
        for request in served {
            self.in_flight.push(Reverse(completion.ended_ns));
            (self.done)(&request, Completion { arrived_ns: request.arrival_ns, ..completion });
        }
        let urgent = self.waiting.iter().any(|request| request.priority);
        ssd.clean(urgent, begin_ns);
    }

    /// Removes and returns a waiting write that is adjacent to `whole` and lies in the same page.
    ///
    /// A write is not moved ahead of an earlier waiting request for the same bytes.
    fn take_neighbour(&mut self, whole: &HostRequest, page_size: u64) -> Option<HostRequest> {
        let page = whole.offset / page_size;
        if whole.end() > (page + 1) * page_size {
            return None;
        }
        let fits = |request: &HostRequest| {
            request.kind == RequestKind::Write
                && request.stream == whole.stream
                && request.offset / page_size == page
                && request.end() <= (page + 1) * page_size
                && (request.offset == whole.end() || request.end() == whole.offset)
        };
        let no = self.waiting.iter().position(fits)?;
        let chosen = self.waiting[no];
        let overlaps =
            |request: &HostRequest| request.offset < chosen.end() && chosen.offset < request.end();
        let overtakes = self.waiting.iter().take(no).any(overlaps);
        if overtakes { None } else { self.waiting.remove(no) }
    }
}

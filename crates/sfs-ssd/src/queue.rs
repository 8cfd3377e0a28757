//! Requests that wait, and which of them is next.
//!
//! Owns: the waiting requests, and the choice among them.
//! Promises: a request begins neither before it came nor before its first element is free.
//! Never: splits a request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;

use serde::Serialize;

use crate::{Completion, Request, RequestKind, Responses, Ssd};

/// Which of the waiting requests is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// First come, first served: one that waits for a busy element holds up all behind it.
    Fcfs,
    /// Shortest wait time first: the one whose element is free first (Rajimwale et al., section
    /// 3.2); of those, the first that came.
    Swtf,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// When they say.
    Timed,
    /// As soon as there is room for them: the host always has more to do.
    Eager,
}

/// How requests are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Which is next.
    pub scheduling: Scheduling,
    /// Requests that have come and not ended, at most; at least one.
    pub depth: usize,
    /// When they come.
    pub arrivals: Arrivals,
    /// Whether waiting writes that together continue one another within one page are served as
    /// one: stripe-aligned writes (Rajimwale et al., section 3.4).
    pub merging: bool,
}

impl Queue {
    /// One request at a time.
    pub const SYNCHRONOUS: Queue =
        Queue { scheduling: Scheduling::Fcfs, depth: 1, arrivals: Arrivals::Eager, merging: false };

    /// Requests come when they say and are served in that order; any number waits.
    pub const FCFS: Queue = Queue {
        scheduling: Scheduling::Fcfs,
        depth: usize::MAX,
        arrivals: Arrivals::Timed,
        merging: false,
    };

    /// Serves `requests`, whose times of arrival count from when `ssd` is idle, and says how long they
    /// took.
    pub fn respond(&self, ssd: &mut Ssd, requests: impl IntoIterator<Item = Request>) -> Responses {
        let mut responses = Responses::default();
        let from_ns = ssd.idle_ns();
        let later = requests
            .into_iter()
            .map(|request| Request { arrival_ns: request.arrival_ns + from_ns, ..request });
        self.run(ssd, from_ns, later, |_, completion| responses.add(completion));
        responses
    }

    /// Serves `requests`, which are in the order of their arrival, from time `from_ns` on, and
    /// tells `done` of each. Returns when the last one ended.
    pub fn run(
        &self,
        ssd: &mut Ssd,
        from_ns: u64,
        requests: impl IntoIterator<Item = Request>,
        done: impl FnMut(&Request, Completion),
    ) -> u64 {
        let source = requests.into_iter().peekable();
        let mut run = Run {
            queue: self,
            source,
            waiting: VecDeque::new(),
            in_flight: BinaryHeap::new(),
            now_ns: from_ns,
            ended_ns: from_ns,
            done,
        };
        while run.step(ssd) {}
        run.ended_ns
    }
}

/// A queue at work.
struct Run<'a, I: Iterator<Item = Request>, F> {
    queue: &'a Queue,
    source: Peekable<I>,
    waiting: VecDeque<Request>,
    /// When each request that has begun will end.
    in_flight: BinaryHeap<Reverse<u64>>,
    now_ns: u64,
    ended_ns: u64,
    done: F,
}

impl<I: Iterator<Item = Request>, F: FnMut(&Request, Completion)> Run<'_, I, F> {
    /// Goes on to the next event. Whether there was one.
    fn step(&mut self, ssd: &mut Ssd) -> bool {
        self.admit();
        let next_ns = self.next_arrival_ns();
        let Some((no, ready_ns)) = self.choose(ssd) else {
            self.now_ns = next_ns.unwrap_or(self.now_ns);
            return next_ns.is_some();
        };
        let begin_ns = ready_ns.max(self.now_ns);
        match next_ns {
            // Who comes until then may be chosen instead.
            Some(next_ns) if next_ns < begin_ns => self.now_ns = next_ns,
            _ => self.begin(ssd, no, begin_ns),
        }
        true
    }

    /// Lets in who has come by now.
    fn admit(&mut self) {
        while self.next_arrival_ns().is_some_and(|next_ns| next_ns <= self.now_ns) {
            let mut request = self.source.next().expect("one that was seen");
            if self.queue.arrivals == Arrivals::Eager {
                request.arrival_ns = self.now_ns;
            }
            self.waiting.push_back(request);
        }
    }

    /// When the next request can come in; `None` if there is none, or none before one begins.
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

    /// The next request, and when its element is free.
    fn choose(&self, ssd: &Ssd) -> Option<(usize, u64)> {
        let ready = self.waiting.iter().map(|request| ssd.ready_ns(request)).enumerate();
        match self.queue.scheduling {
            Scheduling::Fcfs => ready.take(1).next(),
            Scheduling::Swtf => ready.min_by_key(|&(_, ready_ns)| ready_ns.max(self.now_ns)),
        }
    }

    fn begin(&mut self, ssd: &mut Ssd, no: usize, begin_ns: u64) {
        let first = self.waiting.remove(no).expect("one that was chosen");
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

    /// Takes out a waiting write that begins where `whole` ends, or ends where it begins, in the
    /// same page. Not one past a waiting request that touches the same bytes.
    fn take_neighbour(&mut self, whole: &Request, page_size: u64) -> Option<Request> {
        let page = whole.offset / page_size;
        if whole.end() > (page + 1) * page_size {
            return None;
        }
        let fits = |request: &Request| {
            request.kind == RequestKind::Write
                && request.stream == whole.stream
                && request.offset / page_size == page
                && request.end() <= (page + 1) * page_size
                && (request.offset == whole.end() || request.end() == whole.offset)
        };
        let no = self.waiting.iter().position(fits)?;
        let chosen = self.waiting[no];
        let touches =
            |request: &Request| request.offset < chosen.end() && chosen.offset < request.end();
        let crossed = self.waiting.iter().take(no).any(touches);
        if crossed { None } else { self.waiting.remove(no) }
    }
}

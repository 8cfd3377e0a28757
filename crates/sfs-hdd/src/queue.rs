//! Native command queueing: several requests wait in the drive, which chooses the nearest.
//!
//! The drive takes the request whose first sector is under a head soonest (shortest positioning time first). A
//! request that has waited for the bound of the queue goes first, so that none starves.

use sfs_ssd::{Completion, HostRequest};

use crate::HardDrive;

/// Parameters of a command queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandQueue {
    /// Maximum number of requests in the drive; zero counts as one. SATA has 32.
    pub depth: usize,
    /// Time after which a waiting request goes before all nearer ones, in nanoseconds.
    pub wait_max_ns: u64,
}

impl CommandQueue {
    /// Returns a queue with a bound of two seconds on waiting.
    pub fn new(depth: usize) -> CommandQueue {
        CommandQueue { depth, wait_max_ns: 2_000_000_000 }
    }

    /// Serves `requests` from time `from_ns` on: the host has a new request as soon as the queue has room. Calls
    /// `done` with each completion, and returns the time at which the last request ended.
    pub fn run(
        &self,
        drive: &mut HardDrive,
        from_ns: u64,
        requests: impl IntoIterator<Item = HostRequest>,
        mut done: impl FnMut(&HostRequest, Completion),
    ) -> u64 {
        let mut source = requests.into_iter();
        let (mut now_ns, mut ended_ns) = (from_ns, from_ns);
        let mut waiting: Vec<HostRequest> = Vec::new();
        loop {
            while waiting.len() < self.depth.max(1)
                && let Some(request) = source.next()
            {
                waiting.push(HostRequest { arrival_ns: now_ns, ..request });
            }
            let Some(no) = choose(drive, &waiting, now_ns, self.wait_max_ns) else { break };
            let request = waiting.swap_remove(no);
            let completion = drive.serve(&request, now_ns);
            ended_ns = ended_ns.max(completion.ended_ns);
            done(&request, completion);
            // The next request positions the arm as soon as the mechanics are free; alone in the queue it
            // begins when the one before has ended for the host.
            now_ns = match waiting.is_empty() {
                true => completion.ended_ns,
                false => drive.free_ns().max(now_ns).min(completion.ended_ns),
            };
        }
        ended_ns
    }
}

/// Returns the index of the next request: the oldest one if it has waited too long, or else the nearest.
fn choose(
    drive: &HardDrive,
    waiting: &[HostRequest],
    now_ns: u64,
    wait_max_ns: u64,
) -> Option<usize> {
    let (oldest, request) =
        waiting.iter().enumerate().min_by_key(|(_, request)| request.arrival_ns)?;
    if now_ns.saturating_sub(request.arrival_ns) > wait_max_ns {
        return Some(oldest);
    }
    let near_ns =
        |request: &HostRequest| drive.positioning_ns(request, now_ns.max(drive.free_ns()));
    (0..waiting.len()).min_by_key(|&no| (near_ns(&waiting[no]), waiting[no].arrival_ns))
}

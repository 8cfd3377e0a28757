//! Table 6: the responses of priority requests under priority-aware cleaning.
//!
//! Requests are served shortest wait time first, and first come, first served. The paper's requests come every 0.05 ms in the
//! mean. A device of eight packages cannot keep up with that, so the table has slower rates, too.

use anyhow::Result;
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, table};
use sfs_ssd::{Cleaning, HostRequest, RequestKind, RequestQueue, Responses, Scheduling, SsdConfig};

use super::device::{PAGE, cells, filled};

/// Table 6: improvement of priority requests by the share of writes, in percent.
const WRITES: [u32; 5] = [20, 40, 50, 60, 80];
const PRIORITY: [f64; 5] = [0.0, 9.56, 10.27, 9.61, 9.47];

/// Mean times between two requests, in microseconds; the last is the paper's.
const GAPS_US: [u32; 3] = [400, 200, 50];

/// Number of requests that are measured.
const REQUESTS: u32 = 60_000;

/// Largest number of requests in the device, among which it chooses; the others wait in the host, which counts as response.
const DEPTH: usize = 64;

const SCHEDULING: [(&str, Scheduling); 2] =
    [("SWTF", Scheduling::Swtf), ("FCFS", Scheduling::Fcfs)];

/// Returns the table, and writes the figure.
pub(super) fn table6(document: Option<&Document>) -> Result<String> {
    let mut heading = cells(&["table 6: writes", "priority requests better by: paper"]);
    let (mut lines, mut series) = (WRITES.map(|writes| vec![format!("{writes}%")]), Vec::new());
    for (line, paper) in lines.iter_mut().zip(PRIORITY) {
        line.push(format!("{paper:.1}%"));
    }
    let points =
        |gains: &[f64]| WRITES.into_iter().map(f64::from).zip(gains.iter().copied()).collect();
    series.push(Series::new("paper", points(&PRIORITY)));
    for (name, scheduling) in SCHEDULING {
        for gap_us in GAPS_US {
            let label = format!("{name}, every {} ms", f64::from(gap_us) / 1e3);
            let mut gains = Vec::new();
            for (line, writes) in lines.iter_mut().zip(WRITES) {
                let load = Load { writes, gap_us, scheduling };
                let [agnostic, aware] = [load.means_ms(false)?, load.means_ms(true)?];
                let gain = |no: usize| (1.0 - aware[no] / agnostic[no]) * 100.0;
                gains.push(gain(0));
                line.push(format!(
                    "{:.1}% ({:.2} to {:.2} ms; others {:.1}%)",
                    gain(0),
                    agnostic[0],
                    aware[0],
                    gain(1)
                ));
            }
            heading.push(label.clone());
            series.push(Series::new(label, points(&gains)));
        }
    }
    if let Some(document) = document {
        document.figure("atc09-priority", &series)?;
    }
    Ok(format!(
        "Ours: requests come in the mean every 0.4, 0.2 and 0.05 ms (the paper's rate), at most {DEPTH} in the device; in \
         parentheses the mean responses of priority requests, agnostic and aware, and the gain of the others.\n\n{}\n",
        table(&heading, &lines)
    ))
}

/// A load of random requests, a tenth of them with priority.
struct Load {
    /// Share of writes, in percent.
    writes: u32,
    gap_us: u32,
    scheduling: Scheduling,
}

impl Load {
    /// Returns the mean responses, in ms, of the requests with priority, and of the others.
    fn means_ms(&self, priority_aware: bool) -> Result<[f64; 2]> {
        let cleaning = Cleaning { low_permille: 50, critical_permille: 20, priority_aware };
        let config = SsdConfig::eight_packages(1, 1, 200);
        let mut ssd = filled(&SsdConfig { cleaning: Some(cleaning), ..config })?;
        let pages = ssd.geometry().pages();
        let mut random = WorkloadRng::new(11);
        for _ in 0..2 * pages {
            let offset = u64::from(random.below(pages)) * PAGE;
            ssd.serve(&HostRequest::new(RequestKind::Write, offset, PAGE), 0);
        }
        let from_ns = ssd.idle_ns();
        let mut at_ns = from_ns;
        let requests = (0..REQUESTS).map(move |_| {
            at_ns += u64::from(random.below(2000 * self.gap_us));
            let write = random.below(100) < self.writes;
            let kind = if write { RequestKind::Write } else { RequestKind::Read };
            let request = HostRequest::new(kind, u64::from(random.below(pages)) * PAGE, PAGE);
            HostRequest { arrival_ns: at_ns, priority: random.below(10) == 0, ..request }
        });
        let mut responses = [Responses::default(); 2];
        let queue =
            RequestQueue { scheduling: self.scheduling, depth: DEPTH, ..RequestQueue::FCFS };
        queue.run(&mut ssd, from_ns, requests, |request, completion| {
            responses[usize::from(!request.priority)].add(completion);
        });
        Ok(responses.map(|responses| responses.mean_ms()))
    }
}

//! Slide "Parallel processing of small I/O": random requests of 4 KiB by the depth of the command queue (NCQ).

use anyhow::{Context, Result};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, table};
use sfs_ssd::{
    Arrivals, HostRequest, RequestKind, RequestQueue, Scheduling, Ssd, SsdConfig, SsdProfile,
};

/// Depths of the queue.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Size of a request in bytes, and number of requests.
const LEN: u64 = 4096;
const COUNT: u32 = 20_000;

/// Returns the table, and draws the figure.
pub(super) fn text(document: Option<&Document>) -> Result<String> {
    let profile = |name| -> Result<SsdConfig> {
        Ok(SsdProfile::by_name(name).context("a profile")?.with_capacity(1 << 30).config())
    };
    let devices = [
        ("eight packages", SsdConfig::eight_packages(1, 1, 200)),
        ("ssd-h", profile("ssd-h")?),
        ("mtron", profile("mtron")?),
    ];
    let mut series = Vec::new();
    for (name, config) in &devices {
        for (kind, what) in [(RequestKind::Read, "reads"), (RequestKind::Write, "writes")] {
            let rates: Result<Vec<(f64, f64)>> = DEPTHS
                .iter()
                .map(|&depth| Ok((depth as f64, requests_per_second(config, kind, depth)?)))
                .collect();
            series.push(Series::new(format!("{name}, {what}"), rates?));
        }
    }
    if let Some(document) = document {
        document.figure("shin-queue", &series)?;
    }
    let mut heading = vec!["requests of 4 KiB a second, by depth of the queue".to_owned()];
    heading.extend(DEPTHS.map(|depth| depth.to_string()));
    let rows: Vec<Vec<String>> = series
        .iter()
        .map(|line| {
            let rates = line.points.iter().map(|(_, rate)| format!("{rate:.0}"));
            std::iter::once(line.name.clone()).chain(rates).collect()
        })
        .collect();
    Ok(table(&heading, &rows))
}

/// Returns the random requests a second of a full device whose host always has `depth` requests in the queue.
fn requests_per_second(config: &SsdConfig, kind: RequestKind, depth: usize) -> Result<f64> {
    let mut ssd = Ssd::filled(config).context("too few spare blocks")?;
    let slots = (ssd.capacity() / LEN) as u32;
    let mut random = WorkloadRng::new(1);
    let requests =
        (0..COUNT).map(|_| HostRequest::new(kind, u64::from(random.below(slots)) * LEN, LEN));
    let queue = RequestQueue {
        scheduling: Scheduling::Swtf,
        depth,
        arrivals: Arrivals::Eager,
        merging: false,
    };
    let began_ns = ssd.idle_ns();
    let ended_ns = queue.run(&mut ssd, began_ns, requests, |_, _| {});
    Ok(f64::from(COUNT) * 1e9 / (ended_ns - began_ns) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_the_packages_of_a_device_busy() {
        let config = SsdConfig::eight_packages(1, 1, 60);
        let rate =
            |depth| requests_per_second(&config, RequestKind::Read, depth).expect("a device");
        let [one, two, thirty_two] = [rate(1), rate(2), rate(32)];
        assert!(two > 1.5 * one, "{one} {two}");
        assert!((5.0..8.01).contains(&(thirty_two / one)), "{one} {thirty_two}");
    }
}

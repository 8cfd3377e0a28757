//! Table 1: the terms of the unwritten contract, with a number for each, on the model of a hard drive and on models of
//! flash.

use anyhow::{Context, Result};
use sfs_hdd::{HardDrive, profiles};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{mb_per_s, table};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig, SsdProfile, TimedModel};

use super::device::{PAGE, cells, filled};

/// Number of requests of a measurement of random requests.
const REQUESTS: u32 = 2000;

/// Length of a sequential request, and of all of a measurement, in bytes.
const SEQUENTIAL: u64 = 1 << 20;
const SEQUENTIAL_BYTES: u64 = 64 << 20;

/// Distance of two reads that count as near, in bytes.
const NEAR: u64 = 8 << 20;

/// Longest virtual time of the overwriting before writes are measured.
const WEAR_IN_NS: u64 = 600_000_000_000;

/// Terms of the contract, and the number that stands for each.
const TERMS: [(&str, &str); 8] = [
    ("1. sequential accesses are much better: reads", "sequential over random MB/s"),
    ("the same: writes", "sequential over random MB/s"),
    ("2. distant LBNs take longer", "read after one 80% away, over one 8 MiB away"),
    ("3. LBNs can be interchanged", "MB/s of the first over the last part"),
    ("4. data written is data issued", "bytes programmed for each byte of random 4 KiB"),
    ("5. the media do not wear down", "erasures for each GiB of random 4 KiB"),
    ("6. devices are passive", "longest over median response of random 4 KiB"),
    ("the same", "time of moving, over that of all writes"),
];

/// Returns the table.
pub(super) fn table1() -> Result<String> {
    let drive = profiles().into_iter().next().context("a drive")?.with_write_cache(0);
    let (capacity, name) = (drive.capacity(), drive.name);
    let mut columns =
        vec![(name.to_owned(), terms(&mut HardDrive::new(drive), capacity, |_| None))];
    let mut devices = vec![("eight packages".to_owned(), SsdConfig::eight_packages(1, 1, 100))];
    for name in ["mtron", "ssd-l"] {
        let profile = SsdProfile::by_name(name).context("a profile")?.with_capacity(1 << 30);
        devices.push((format!("{name}, {}", profile.layer), profile.config()));
    }
    for (name, config) in devices {
        let mut ssd = filled(&config)?;
        let capacity = ssd.capacity();
        columns.push((name, terms(&mut ssd, capacity, |ssd| Some(flash_work(ssd)))));
    }
    let mut heading = cells(&["table 1: term", "number"]);
    heading.extend(columns.iter().map(|(name, _)| name.clone()));
    heading.push("paper: SSD".to_owned());
    let row = |(no, (term, number)): (usize, &(&str, &str))| {
        let mut row = cells(&[term, number]);
        row.extend(columns.iter().map(|(_, terms)| match terms[no] {
            value if value >= 100.0 => format!("{value:.0}"),
            value => format!("{value:.2}"),
        }));
        row.push(if term.contains("the same") { String::new() } else { "fails".to_owned() });
        row
    };
    let rows: Vec<Vec<String>> = TERMS.iter().enumerate().map(row).collect();
    Ok(format!(
        "The unwritten contract: the drive without a write cache, the flash full before; one request at a time.\n\n{}\n",
        table(&heading, &rows)
    ))
}

/// Work of a flash device so far.
struct FlashWork {
    programmed_bytes: u64,
    erases: u64,
    /// Time of moving, in nanoseconds of one element.
    moving_ns: u64,
}

fn flash_work(ssd: &Ssd) -> FlashWork {
    let (counters, geometry) = (ssd.counters(), ssd.geometry());
    FlashWork {
        programmed_bytes: counters.flash_pages_programmed * u64::from(geometry.flash_page_size),
        erases: counters.erases,
        moving_ns: counters.moving_ns / u64::from(geometry.elements()),
    }
}

/// Returns the number of each term. `work` is `None` for a device without flash.
fn terms<M: TimedModel>(
    model: &mut M,
    capacity: u64,
    work: impl Fn(&M) -> Option<FlashWork>,
) -> [f64; TERMS.len()] {
    let mut host = Host { model, random: WorkloadRng::new(1), now_ns: 0 };
    host.now_ns = host.model.idle_ns();
    let slots = (capacity / PAGE) as u32;
    let reads = host.sequential(RequestKind::Read, 0)
        / small_mb_per_s(&host.random(RequestKind::Read, slots));
    let distance = host.distance(capacity);
    let ends = host.sequential(RequestKind::Read, 0)
        / host.sequential(RequestKind::Read, capacity - SEQUENTIAL_BYTES);
    let sequential = host.sequential(RequestKind::Write, 0);
    host.wear_in(slots);
    let before = work(host.model);
    let mut times = host.random(RequestKind::Write, slots);
    let after = work(host.model);
    let writes = sequential / small_mb_per_s(&times);
    let all_ns: u64 = times.iter().sum();
    times.sort_unstable();
    let spread = times[times.len() - 1] as f64 / times[times.len() / 2] as f64;
    let bytes = (u64::from(REQUESTS) * PAGE) as f64;
    let [amplification, erases, moving] = match before.zip(after) {
        None => [1.0, 0.0, 0.0],
        Some((before, after)) => [
            (after.programmed_bytes - before.programmed_bytes) as f64 / bytes,
            (after.erases - before.erases) as f64 / bytes * (1_u64 << 30) as f64,
            (after.moving_ns - before.moving_ns) as f64 / all_ns as f64,
        ],
    };
    [reads, writes, distance, ends, amplification, erases, spread, moving]
}

/// A host that sends one request at a time.
struct Host<'a, M> {
    model: &'a mut M,
    random: WorkloadRng,
    now_ns: u64,
}

impl<M: TimedModel> Host<'_, M> {
    /// Serves a request. Returns the nanoseconds that it takes.
    fn serve(&mut self, kind: RequestKind, offset: u64, len: u64) -> u64 {
        let began_ns = self.now_ns;
        self.now_ns = self.model.serve(&HostRequest::new(kind, offset, len), began_ns).ended_ns;
        self.now_ns - began_ns
    }

    /// Returns the MB/s of requests in order from `first` on.
    fn sequential(&mut self, kind: RequestKind, first: u64) -> f64 {
        let began_ns = self.now_ns;
        for offset in (first..first + SEQUENTIAL_BYTES).step_by(SEQUENTIAL as usize) {
            self.serve(kind, offset / PAGE * PAGE, SEQUENTIAL);
        }
        mb_per_s(SEQUENTIAL_BYTES, self.now_ns - began_ns)
    }

    /// Returns the times of random requests of 4 KiB.
    fn random(&mut self, kind: RequestKind, slots: u32) -> Vec<u64> {
        let times = (0..REQUESTS).map(|_| {
            let slot = self.random.below(slots);
            self.serve(kind, u64::from(slot) * PAGE, PAGE)
        });
        times.collect()
    }

    /// Overwrites half of the device at random, or less in the time that a slow device has, so that its spare blocks are in use.
    fn wear_in(&mut self, slots: u32) {
        let (began_ns, mut written) = (self.now_ns, 0);
        while written < slots / 2 && self.now_ns - began_ns < WEAR_IN_NS {
            let slot = self.random.below(slots);
            self.serve(RequestKind::Write, u64::from(slot) * PAGE, PAGE);
            written += 1;
        }
    }

    /// Returns the mean time of reads after one that is far away, over that after one that is near.
    fn distance(&mut self, capacity: u64) -> f64 {
        let mut means = [0, 0];
        for (mean, distance) in means.iter_mut().zip([capacity / 10 * 8, NEAR]) {
            for _ in 0..REQUESTS {
                let first = u64::from(self.random.below((capacity / 10 / PAGE) as u32)) * PAGE;
                self.serve(RequestKind::Read, first, PAGE);
                *mean += self.serve(RequestKind::Read, (first + distance) / PAGE * PAGE, PAGE);
            }
        }
        means[0] as f64 / means[1] as f64
    }
}

/// Returns the MB/s of requests of 4 KiB that took these times.
fn small_mb_per_s(times: &[u64]) -> f64 {
    mb_per_s(times.len() as u64 * PAGE, times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_and_wear_tell_a_drive_from_flash() {
        let drive = profiles().remove(0).with_write_cache(0);
        let capacity = drive.capacity();
        let [reads, _, distance, ends, amplification, erases, ..] =
            terms(&mut HardDrive::new(drive), capacity, |_| None);
        assert!(reads > 100.0 && distance > 2.0 && ends > 2.0);
        assert_eq!((amplification, erases), (1.0, 0.0));
        let mut ssd = filled(&SsdConfig::eight_packages(1, 1, 60)).expect("a device");
        let capacity = ssd.capacity();
        let [reads, _, distance, ends, amplification, erases, ..] =
            terms(&mut ssd, capacity, |ssd| Some(flash_work(ssd)));
        assert!((7.0..9.0).contains(&reads), "{reads}");
        assert!((distance - 1.0).abs() < 0.01 && (ends - 1.0).abs() < 0.01);
        assert!(amplification > 1.5 && erases > 4096.0, "{amplification} {erases}");
    }
}

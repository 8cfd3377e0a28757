//! Section 3.3: a device with single-level and multi-level cells, on which the addresses are not alike.
//!
//! The paper expects that such a device violates the third term of the contract, and that it helps to keep the data of a root
//! object in single-level cells. It has no figure. The model is two devices behind one address space, the
//! first part of single-level cells.

use anyhow::{Result, ensure};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{mb_per_s, table};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig, Timing};

use super::device::{PAGE, cells, filled};

/// Blocks of each of the eight packages: multi-level cells hold twice as much, and there are as many of them.
const SLC_BLOCKS: u32 = 60;
const MLC_BLOCKS: u32 = 120;

/// Timing of multi-level cells: twice the time for a read and an erasure, and four times for a program (assumed; the paper
/// says that they are slower).
const MLC: Timing =
    Timing { read_ns: 50_000, program_ns: 800_000, erase_ns: 3_000_000, ..Timing::SLC };

/// Erasures that a block endures (the paper, section 2).
const SLC_CYCLES: f64 = 100_000.0;
const MLC_CYCLES: f64 = 10_000.0;

/// Interval between the pages of a root object that is spread; a multiple of no number of packages. The object takes the
/// same part of the device elsewhere.
const ROOT_INTERVAL: u32 = 11;

/// Share of the requests that go to the root object, and share of the reads.
const ROOT_SHARE: f64 = 0.8;
const READ_SHARE: f64 = 0.5;

/// Number of requests while measuring. As many come before.
const REQUESTS: u32 = 40_000;

/// Two devices behind one address space.
struct MixedCells {
    slc: Ssd,
    mlc: Ssd,
}

impl MixedCells {
    /// Returns a full device with this part of the blocks.
    fn new(divisor: u32) -> Result<Self> {
        let slc = filled(&SsdConfig::eight_packages(1, 1, SLC_BLOCKS / divisor))?;
        let config =
            SsdConfig { timing: MLC, ..SsdConfig::eight_packages(1, 1, MLC_BLOCKS / divisor) };
        let mlc = filled(&config)?;
        Ok(Self { slc, mlc })
    }

    fn capacity(&self) -> u64 {
        self.slc.capacity() + self.mlc.capacity()
    }

    /// Serves a request, which lies in one of the parts, and returns its time in nanoseconds.
    fn serve(&mut self, kind: RequestKind, offset: u64, len: u64) -> u64 {
        let boundary = self.slc.capacity();
        let (ssd, offset) = match offset < boundary {
            true => (&mut self.slc, offset),
            false => (&mut self.mlc, offset - boundary),
        };
        let began_ns = ssd.idle_ns();
        ssd.serve(&HostRequest::new(kind, offset, len), began_ns).ended_ns - began_ns
    }

    /// Returns the MB/s of requests of 1 MiB in order, 16 MiB from `first` on.
    fn sequential(&mut self, kind: RequestKind, first: u64) -> f64 {
        let (bytes, len) = (16 << 20, 1 << 20);
        let offsets = (first..first + bytes).step_by(len as usize);
        mb_per_s(bytes, offsets.map(|offset| self.serve(kind, offset, len)).sum())
    }
}

/// Place of the root object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Slc,
    /// Every page of [`ROOT_INTERVAL`] of the device.
    Spread,
    Mlc,
}

/// Responses and wear under a load of which most goes to the root object.
struct Outcome {
    root_us: f64,
    other_us: f64,
    /// Part of the erasures that the more worn cells endure, for each TiB written.
    worn: f64,
}

/// Returns the tables of section 3.3.
pub(super) fn section3_3() -> Result<String> {
    let mut device = MixedCells::new(1)?;
    let last = device.capacity() - (16 << 20);
    let bandwidth = [RequestKind::Read, RequestKind::Write].map(|kind| {
        let (first, last) = (device.sequential(kind, 0), device.sequential(kind, last));
        vec![
            format!("{kind:?}").to_lowercase(),
            format!("{first:.1}"),
            format!("{last:.1}"),
            format!("{:.2}", first / last),
        ]
    });
    let rows = [Placement::Slc, Placement::Spread, Placement::Mlc]
        .into_iter()
        .map(|placement| {
            let Outcome { root_us, other_us, worn } =
                loaded(placement, MixedCells::new(1)?, REQUESTS)?;
            let name = match placement {
                Placement::Slc => "in SLC",
                Placement::Spread => "spread over all addresses",
                Placement::Mlc => "in MLC",
            };
            let mean = ROOT_SHARE * root_us + (1.0 - ROOT_SHARE) * other_us;
            let figures = [root_us, other_us, mean].map(|us| format!("{us:.0}"));
            let worn = format!("{:.2}%", worn * 100.0);
            Ok([name.to_owned()].into_iter().chain(figures).chain([worn]).collect())
        })
        .collect::<Result<Vec<Vec<String>>>>()?;
    let bandwidth_heading =
        cells(&["section 3.3: MB/s in order", "first (SLC)", "last (MLC)", "ratio"]);
    let heading = cells(&[
        "root object",
        "its requests, us",
        "others, us",
        "all, us",
        "life of the more worn cells, for each TiB",
    ]);
    Ok(format!(
        "A device of {} MiB of SLC and {} MiB of MLC. The root object is {:.0}% of the device and gets {:.0}% of the requests of 4 KiB, half of \
         them reads.\n\n{}\n{}\n",
        device.slc.capacity() >> 20,
        device.mlc.capacity() >> 20,
        100.0 / f64::from(ROOT_INTERVAL),
        ROOT_SHARE * 100.0,
        table(&bandwidth_heading, &bandwidth),
        table(&heading, &rows)
    ))
}

/// Runs the load with the root object at a place, and counts the second half of `2 * requests`.
fn loaded(placement: Placement, mut device: MixedCells, requests: u32) -> Result<Outcome> {
    let pages = (device.capacity() / PAGE) as u32;
    let slc_pages = (device.slc.capacity() / PAGE) as u32;
    let root_pages = pages / ROOT_INTERVAL;
    ensure!(root_pages <= slc_pages, "the root object fits into SLC");
    let mut random = WorkloadRng::new(1);
    let (mut root, mut other) = ((0, 0_u64), (0, 0_u64));
    let (mut written, mut erases) = (0, [0, 0]);
    for no in 0..2 * requests {
        let is_root = random.unit() < ROOT_SHARE;
        let page = loop {
            let drawn = random.below(pages);
            let page = match (is_root, placement) {
                (true, Placement::Slc) => drawn % root_pages,
                (true, Placement::Spread) => drawn / ROOT_INTERVAL * ROOT_INTERVAL,
                (true, Placement::Mlc) => slc_pages + drawn % root_pages,
                (false, _) => drawn,
            };
            let is_in_root = match placement {
                Placement::Slc => page < root_pages,
                Placement::Spread => page.is_multiple_of(ROOT_INTERVAL),
                Placement::Mlc => (slc_pages..slc_pages + root_pages).contains(&page),
            };
            if is_in_root == is_root {
                break u64::from(page);
            }
        };
        let is_read = random.unit() < READ_SHARE;
        let kind = if is_read { RequestKind::Read } else { RequestKind::Write };
        if no == requests {
            erases = [&device.slc, &device.mlc].map(|ssd| ssd.counters().erases);
        }
        let took_ns = device.serve(kind, page * PAGE, PAGE);
        if no >= requests {
            let (count, sum_ns) = if is_root { &mut root } else { &mut other };
            (*count, *sum_ns) = (*count + 1, *sum_ns + took_ns);
            written += if is_read { 0 } else { PAGE };
        }
    }
    let life = |ssd: &Ssd, before: u64, cycles: f64| {
        let blocks = f64::from(ssd.geometry().clusters());
        (ssd.counters().erases - before) as f64 / blocks / cycles
    };
    let worn =
        life(&device.slc, erases[0], SLC_CYCLES).max(life(&device.mlc, erases[1], MLC_CYCLES));
    let mean_us = |(count, sum_ns): (u64, u64)| sum_ns as f64 / count.max(1) as f64 / 1e3;
    let tib = written as f64 / (1_u64 << 40) as f64;
    Ok(Outcome { root_us: mean_us(root), other_us: mean_us(other), worn: worn / tib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_object_in_slc_is_faster_and_wears_the_device_less_than_in_mlc() {
        let [slc, mlc] = [Placement::Slc, Placement::Mlc].map(|placement| {
            let device = MixedCells::new(3).expect("a device");
            loaded(placement, device, 7_000).expect("a root object that fits")
        });
        assert!(slc.root_us < mlc.root_us, "{} {}", slc.root_us, mlc.root_us);
        assert!(slc.worn < mlc.worn, "{} {}", slc.worn, mlc.worn);
    }

    #[test]
    fn the_first_addresses_are_faster_than_the_last() {
        let mut device = MixedCells::new(1).expect("a device");
        let last = device.capacity() - (16 << 20);
        for kind in [RequestKind::Read, RequestKind::Write] {
            assert!(device.sequential(kind, 0) > 1.1 * device.sequential(kind, last), "{kind:?}");
        }
    }
}

//! Figure 2: write bandwidth by the size of the requests, on a device whose pages are stripes of 1 MiB.
//!
//! A request that does not end with a stripe makes the device complete two of them: the rest is read and written again.

use anyhow::Result;
use sfs_lab::report::{Document, Series, mb_per_s, table};
use sfs_ssd::{FlashGeometry, HostRequest, RequestKind, SsdConfig, Timing};

use super::device::{cells, filled};

const KIB: u64 = 1 << 10;
const STRIPE: u64 = 1 << 20;

/// Flash pages of a package in a stripe.
const PAGES: u32 = (STRIPE / 8 / 4096) as u32;

/// Number of bytes that are written with each size of requests.
const WRITTEN: u64 = 64 << 20;

/// Sequential write bandwidth of S2slc, whose saw-tooth the paper shows, in MB/s (table 2).
const PAPER_MB: f64 = 32.8;

/// Returns the table of the teeth, and writes the figure.
pub(super) fn figure2(document: Option<&Document>) -> Result<String> {
    let config = striped();
    let mut sizes: Vec<u64> = (1..=64).map(|no| no * 64 * KIB).collect();
    sizes.extend([512, 4 * KIB]);
    sizes.extend((1..=4).map(|no| no * STRIPE + 512));
    sizes.sort_unstable();
    let mut points = Vec::new();
    for size in sizes {
        points.push((size, bandwidth(&config, size)?));
    }
    if let Some(document) = document {
        let mib = |size: u64| size as f64 / STRIPE as f64;
        let ours = points.iter().map(|(size, speed)| (mib(*size), *speed)).collect();
        let paper = Series::new("paper's S2slc, best", vec![(1.0, PAPER_MB)]);
        document.figure("atc09-sawtooth", &[Series::new("stripe of 1 MiB", ours), paper])?;
    }
    let name = |size: u64| match size % STRIPE {
        0 => format!("{} MiB", size / STRIPE),
        512 if size > STRIPE => format!("{} MiB + 512 bytes", size / STRIPE),
        _ if size < KIB => format!("{size} bytes"),
        _ => format!("{} KiB", size / KIB),
    };
    let is_shown = |size: u64| {
        size < 64 * KIB || size.is_multiple_of(STRIPE / 4) && size <= STRIPE || size % STRIPE < KIB
    };
    let shown = points.iter().filter(|(size, _)| is_shown(*size));
    let rows: Vec<Vec<String>> =
        shown.map(|(size, speed)| vec![name(*size), format!("{speed:.2}")]).collect();
    Ok(format!(
        "Writes in order, on a full device whose eight packages share pages of 1 MiB.\n\n{}\n",
        table(&cells(&["figure 2: size of a write", "MB/s"]), &rows)
    ))
}

/// Returns a device whose eight packages share each stripe: 32 flash pages of a package are one page of it.
fn striped() -> SsdConfig {
    let config = SsdConfig::eight_packages(8, 8, 200);
    let (geometry, timing) = (config.geometry.clone(), config.timing);
    let geometry = FlashGeometry {
        flash_pages: geometry.flash_pages / PAGES,
        flash_page_size: geometry.flash_page_size * PAGES,
        ..geometry
    };
    let times = u64::from(PAGES);
    let timing = Timing {
        read_ns: timing.read_ns * times,
        program_ns: timing.program_ns * times,
        transfer_ns: timing.transfer_ns * times,
        ..timing
    };
    SsdConfig { geometry, timing, ..config }
}

/// Returns the throughput of writes of `size` bytes, one after the other.
fn bandwidth(config: &SsdConfig, size: u64) -> Result<f64> {
    let mut ssd = filled(config)?;
    let began_ns = ssd.idle_ns();
    // Small requests show their speed soon.
    let count = (WRITTEN / size).clamp(16, 2048);
    let (mut now_ns, mut offset) = (began_ns, 0);
    for _ in 0..count {
        if offset + size > ssd.capacity() {
            offset = 0;
        }
        now_ns = ssd.serve(&HostRequest::new(RequestKind::Write, offset, size), now_ns).ended_ns;
        offset += size;
    }
    Ok(mb_per_s(count * size, now_ns - began_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_more_than_a_stripe_costs_half_of_the_bandwidth() {
        let config = striped();
        let speed = |size| bandwidth(&config, size).expect("a device");
        assert!(speed(STRIPE) > 2.0 * speed(STRIPE + 512));
        assert!(speed(2 * STRIPE) > 0.99 * speed(STRIPE));
    }
}

//! `cargo xtask bench profile`: the processor time of a call, by part of the system.
//!
//! The name of a function decides to which part its time belongs. The parts add up to the time of
//! the client, the daemon and the kernel's workers. Time spent waiting is not counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use super::{Contestant, DEVICE_LEN, Sample, Target, table};
use crate::{
    filesystem::FilesystemKind,
    machine::{self, Rings},
    run::Cmd,
    scratch::Scratch,
    workspace::{Profile, Workspace},
};

/// Rows, by the name in `fuse-load` and by a title for readers.
const ROWS: [(&str, &str); 4] = [
    ("rand-read1", "direct read, 4 KiB"),
    ("rand-write", "write, 4 KiB, sync at the end"),
    ("create", "create"),
    ("rand-write-fsync", "write, 4 KiB, and fsync"),
];

#[derive(Args)]
pub(crate) struct ProfileOptions {
    /// Run less of everything, and write nothing to `docs/`.
    #[arg(long)]
    quick: bool,
}

/// Parts of the system, in the order in which a request passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Client,
    Fuse,
    Threads,
    Copies,
    Requests,
    Core,
    Checksums,
    Memory,
    Daemon,
    Device,
}

const PARTS: [(Part, &str); 10] = [
    (Part::Client, "the client: itself, system calls, names, page cache"),
    (Part::Fuse, "FUSE and io_uring in the kernel"),
    (Part::Threads, "waking threads and switching to them, interrupts"),
    (Part::Copies, "copying and clearing memory"),
    (Part::Requests, "SFS: requests decoded and answered"),
    (Part::Core, "SFS: tree, write buffer, log"),
    (Part::Checksums, "SFS: checksums"),
    (Part::Memory, "SFS: maps, allocation, the standard library"),
    (Part::Daemon, "the daemon's system calls"),
    (Part::Device, "block layer, loop device and its file"),
];

/// Parts of the names of functions that switch and wake threads, or enable interrupts. If perf has
/// only a clock, the samples of a region without interrupts are attributed to the end of the region.
const WAKING: &str = "unlock_irq sched switch wake ttwu enqueue dequeue pick_ select_task futex \
    update_curr update_load reweight prepare_to_wait finish_wait";
const COPYING: &str = "memcpy memmove memset copy_user rep_movs clear_page";
const FUSE: &str = "fuse uring";
const BLOCKS: &str = "bio blk loop_ lo_ iomap shmem submit dio_ sbitmap iov_iter gup_";

/// Processor time of a call, by part.
struct Row {
    parts: BTreeMap<Part, Duration>,
    processors: Duration,
    wall: Duration,
}

pub(crate) fn run(workspace: &Workspace, options: &ProfileOptions) -> Result<()> {
    machine::need("perf", "linux-perf")?;
    let load = workspace.build(Profile::Release, &["sfs-bench"])?.path("fuse-load");
    let _rings = Rings::enable()?;
    let scratch = Scratch::in_ram(DEVICE_LEN)?;
    let contestant = Contestant::over(FilesystemKind::Sfs, "uring");
    let target = Target::of(workspace, contestant, &scratch)?;
    let file = scratch.dir.join("perf.data");
    let mut rows = Vec::new();
    for (row, title) in ROWS {
        println!("{title}");
        let line = target.cmd(&load, row, options.quick).arg("--profile").arg(&file).read()?;
        rows.push(explain(&Sample::read(&line)?, &file)?);
    }
    target.mount.unmount()?;
    drop(target.device);
    let text = markdown(&contestant.name(), &rows);
    println!("\n{text}");
    if options.quick {
        return Ok(());
    }
    table::publish(&workspace.root.join("docs/benchmarks.md"), "profile", &text)
}

/// Returns the processor time of a call by part, from the samples that perf recorded in `file`.
fn explain(sample: &Sample, file: &Path) -> Result<Row> {
    let each = |time: Duration| time.div_f64(sample.ops as f64);
    let processors = each(sample.cpu);
    let report = Cmd::new("perf")
        .args(["report", "--stdio", "--quiet", "--no-children", "--field-separator", ";"])
        .args(["--fields", "period,comm,dso,sym", "--input"])
        .arg(file)
        .read()?;
    let mut periods: BTreeMap<Part, f64> = BTreeMap::new();
    for (part, period) in report.lines().filter_map(period) {
        *periods.entry(part).or_default() += period;
    }
    let all: f64 = periods.values().sum();
    ensure!(all > 0.0, "perf has no samples");
    let parts = periods.into_iter().map(|(part, p)| (part, processors.mul_f64(p / all))).collect();
    Ok(Row { parts, processors, wall: each(sample.wall) })
}

/// Returns the part and weight of a line of perf's report, or `None` if the line does not belong to
/// the row.
fn period(line: &str) -> Option<(Part, f64)> {
    let mut fields = line.splitn(4, ';').map(str::trim);
    let period = fields.next()?.parse().ok()?;
    let (comm, _, symbol) = (fields.next()?, fields.next()?, fields.next()?);
    let (space, name) = symbol.split_once(' ')?;
    part(comm, space == "[k]", name.trim()).map(|part| (part, period))
}

fn part(comm: &str, in_kernel: bool, name: &str) -> Option<Part> {
    let is_of = |names: &str| names.split_ascii_whitespace().any(|part| name.contains(part));
    let is_client = comm == "fuse-load";
    let is_worker = comm.starts_with("kworker") || comm.starts_with("loop");
    let is_daemon = comm.starts_with("fuse-") || comm.starts_with("sfs");
    if !(is_client || is_worker || is_daemon) {
        return None;
    }
    Some(match in_kernel {
        _ if is_of(COPYING) => Part::Copies,
        true if is_of(FUSE) => Part::Fuse,
        true if is_of(WAKING) => Part::Threads,
        true if is_worker || is_of(BLOCKS) && is_daemon => Part::Device,
        _ if is_client => Part::Client,
        true => Part::Daemon,
        false if is_of("crc32c") => Part::Checksums,
        false if is_of("sfs_core sfs_device") => Part::Core,
        false if is_of("sfs_fuse sfs::") => Part::Requests,
        false => Part::Memory,
    })
}

fn markdown(name: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "{}. {name}: microseconds of processor time for a call, by the functions that perf(1) found \
         running; waiting is not counted.\n\n| |",
        machine::description()
    );
    ROWS.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    text += "\n|---|";
    ROWS.iter().for_each(|_| text += "---:|");
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    for (part, title) in PARTS {
        let _ = write!(text, "\n| {title} |");
        for row in rows {
            let time = row.parts.get(&part).copied().unwrap_or_default();
            let _ = write!(text, " {:.1} |", micros(time));
        }
    }
    text += "\n| **all processors** |";
    rows.iter().for_each(|row| text += &format!(" {:.1} |", micros(row.processors)));
    text += "\n| time between two calls |";
    rows.iter().for_each(|row| text += &format!(" {:.1} |", micros(row.wall)));
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_parts() {
        let of = |line: &str| period(line).map(|(part, period)| (part, period as u64));
        assert_eq!(
            of("120;fuse-load;[kernel.kallsyms];[k] fuse_simple_request"),
            Some((Part::Fuse, 120))
        );
        assert_eq!(
            of("7;fuse-ring-1;sfs-mount;[.] <sfs_core::tree::Tree>::get"),
            Some((Part::Core, 7))
        );
        assert_eq!(
            of("7;fuse-ring-1;sfs-mount;[.] sfs_fuse::ring::run"),
            Some((Part::Requests, 7))
        );
        assert_eq!(of("7;kworker/u8:1-lo;[kernel.kallsyms];[k] mas_walk"), Some((Part::Device, 7)));
        assert_eq!(of("7;fuse-ring-1;[kernel.kallsyms];[k] __pi_memcpy"), Some((Part::Copies, 7)));
        assert_eq!(
            of("7;fuse-ring-1;[kernel.kallsyms];[k] try_to_wake_up"),
            Some((Part::Threads, 7))
        );
        assert_eq!(of("9;swapper;[kernel.kallsyms];[k] pv_native_safe_halt"), None);
        assert_eq!(of("# nothing"), None);
    }
}

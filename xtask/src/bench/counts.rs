//! `cargo xtask bench counts`: instructions and system calls of the daemon per call, by row and
//! transport.
//!
//! SFS and the null filesystem get the same calls. The counts do not depend on other load of the
//! machine, except for interrupts.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;

use super::{Contestant, DEVICE_LEN, ROWS, Target, table};
use crate::{
    filesystem::FilesystemKind,
    machine::{self, Rings},
    scratch::Scratch,
    workspace::{Profile, Workspace},
};

const CONTESTANTS: [Contestant; 5] = [
    Contestant::over(FilesystemKind::Sfs, "uring"),
    Contestant::over(FilesystemKind::NullDevice, "uring"),
    Contestant::over(FilesystemKind::Null, "uring"),
    Contestant::over(FilesystemKind::Sfs, "dev"),
    Contestant::over(FilesystemKind::Null, "dev"),
];

#[derive(Args)]
pub(crate) struct CountsOptions {
    /// Number of samples of each cell; the median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Run less of everything, and write nothing to `docs/`.
    #[arg(long)]
    quick: bool,
}

/// Counts of one call.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Instructions in user space and in the kernel; `None` if the machine does not count them.
    instructions: Option<(f64, f64)>,
    calls: f64,
}

pub(crate) fn run(workspace: &Workspace, options: &CountsOptions) -> Result<()> {
    machine::need("perf", "linux-perf")?;
    machine::need("fio", "fio")?;
    let load = workspace.build(Profile::Release, &["sfs-bench"])?.path("fuse-load");
    let _rings = Rings::enable()?;
    let mut columns = Vec::new();
    for contestant in CONTESTANTS {
        let scratch = Scratch::in_ram(DEVICE_LEN)?;
        let target = Target::of(workspace, contestant, &scratch)?;
        let mut samples = vec![Vec::new(); ROWS.len()];
        for round in 0..options.rounds {
            println!("{}, round {} of {}", contestant.name(), round + 1, options.rounds);
            for ((row, ..), samples) in ROWS.iter().zip(&mut samples) {
                let line = target.cmd(&load, row, options.quick).arg("--count").read()?;
                samples.push(counts(&line).with_context(|| format!("fuse-load printed: {line}"))?);
            }
        }
        columns.push((contestant, samples.iter().map(|samples| median(samples)).collect()));
        target.mount.unmount()?;
        drop(target.device);
    }
    let text = markdown(&columns, options.rounds);
    println!("\n{text}");
    if options.quick {
        return Ok(());
    }
    table::publish(&workspace.root.join("docs/benchmarks.md"), "counts", &text)
}

/// Parses the output of the load generator.
fn counts(line: &str) -> Option<Counts> {
    let numbers: Vec<Option<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    let [Some(ops @ 1..), _, _, _, _, _, user, kernel, Some(calls)] = numbers[..] else {
        return None;
    };
    let each = |count: u64| count as f64 / ops as f64;
    let instructions = user.zip(kernel).map(|(user, kernel)| (each(user), each(kernel)));
    Some(Counts { instructions, calls: each(calls) })
}

fn median(samples: &[Counts]) -> Counts {
    let instructions = || samples.iter().filter_map(|counts| counts.instructions);
    let user = table::median(instructions().map(|(user, _)| user));
    let kernel = table::median(instructions().map(|(_, kernel)| kernel));
    let calls = table::median(samples.iter().map(|counts| counts.calls)).unwrap_or_default();
    Counts { instructions: user.zip(kernel), calls }
}

fn markdown(columns: &[(Contestant, Vec<Counts>)], rounds: u32) -> String {
    let mut cells = columns.iter().flat_map(|(_, rows)| rows);
    let what = if cells.any(|counts| counts.instructions.is_some()) {
        "thousands of instructions in user space + in the kernel, and system calls"
    } else {
        "system calls (the machine does not count instructions)"
    };
    let mut text = format!(
        "{}. Work of the daemon for a call, median of {rounds} rounds: {what}.\n\n| |",
        machine::description()
    );
    columns.iter().for_each(|(contestant, _)| text += &format!(" {} |", contestant.name()));
    text += "\n|---|";
    columns.iter().for_each(|_| text += "---:|");
    text += "\n";
    for (no, (_, title, _)) in ROWS.iter().enumerate() {
        let _ = write!(text, "| {title} |");
        for (_, rows) in columns {
            let Counts { instructions, calls } = rows[no];
            if let Some((user, kernel)) = instructions {
                let _ = write!(text, " {:.1} + {:.1},", user / 1e3, kernel / 1e3);
            }
            let _ = write!(text, " {calls:.2} |");
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_for_one_call() {
        let of = |line| counts(line).map(|counts| (counts.instructions, counts.calls));
        assert_eq!(of("10 0 1 2 3 4 50 100 20"), Some((Some((5.0, 10.0)), 2.0)));
        assert_eq!(of("10 0 1 2 3 4 - - 20"), Some((None, 2.0)));
        assert_eq!(of("10 0 1 2 3 4"), None);
        assert_eq!(of("0 0 1 2 3 4 50 100 20"), None);
    }
}

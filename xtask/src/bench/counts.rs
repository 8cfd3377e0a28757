//! `cargo xtask bench counts`: what the daemon executes for a call, by row and transport.
//!
//! Owns the table of counts. Promises that SFS and the null filesystem are asked the same; what is
//! counted is exact, however busy the machine is, but for interrupts.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;

use super::{Contestant, DEVICE_LEN, ROWS, Target, table};
use crate::{
    filesystem::Kind,
    machine::{self, Rings},
    scratch::Scratch,
    workspace::{Profile, Workspace},
};

const CONTESTANTS: [Contestant; 5] = [
    Contestant(Kind::Sfs, Some("uring")),
    Contestant(Kind::NullDevice, Some("uring")),
    Contestant(Kind::Null, Some("uring")),
    Contestant(Kind::Sfs, Some("dev")),
    Contestant(Kind::Null, Some("dev")),
];

#[derive(Args)]
pub(crate) struct Options {
    /// Every cell is the median of so many.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Less of everything, and nothing is written to `docs/`: for a look.
    #[arg(long)]
    quick: bool,
}

/// For one call.
#[derive(Clone, Copy, Default)]
struct Counts {
    user: f64,
    kernel: f64,
    calls: f64,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    machine::need("perf", "linux-perf")?;
    let load = workspace.build(Profile::Release, &["sfs-bench"])?.path("fuse-load");
    let _rings = Rings::enable()?;
    let mut columns = Vec::new();
    for contestant in CONTESTANTS {
        let scratch = Scratch::in_ram(DEVICE_LEN)?;
        let target = Target::new(workspace, contestant, &scratch)?;
        let mut samples = vec![Vec::new(); ROWS.len()];
        for round in 0..options.rounds {
            println!("{}, round {} of {}", contestant.name(), round + 1, options.rounds);
            for ((row, ..), samples) in ROWS.iter().zip(&mut samples) {
                let line = target.cmd(&load, row, options.quick).arg("--count").read()?;
                samples.push(counts(&line).with_context(|| format!("fuse-load said: {line}"))?);
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

/// Out of what the load generator prints.
fn counts(line: &str) -> Option<Counts> {
    let numbers: Vec<u64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
    let [ops, _, _, _, _, _, user, kernel, calls] = numbers[..] else { return None };
    let each = |count: u64| count as f64 / ops as f64;
    (ops > 0).then(|| Counts { user: each(user), kernel: each(kernel), calls: each(calls) })
}

fn median(samples: &[Counts]) -> Counts {
    let of =
        |count: fn(&Counts) -> f64| table::median(samples.iter().map(count)).unwrap_or_default();
    Counts { user: of(|c| c.user), kernel: of(|c| c.kernel), calls: of(|c| c.calls) }
}

fn markdown(columns: &[(Contestant, Vec<Counts>)], rounds: u32) -> String {
    let mut text = format!(
        "{}. What the daemon executes for a call, median of {rounds} rounds: thousands of its own \
         instructions + of the kernel's for it, and system calls.\n\n| |",
        machine::description()
    );
    columns.iter().for_each(|(contestant, _)| text += &format!(" {} |", contestant.name()));
    text += "\n|---|";
    columns.iter().for_each(|_| text += "---:|");
    text += "\n";
    for (no, (_, title, _)) in ROWS.iter().enumerate() {
        let _ = write!(text, "| {title} |");
        for (_, rows) in columns {
            let Counts { user, kernel, calls } = rows[no];
            let _ = write!(text, " {:.1} + {:.1}, {calls:.2} |", user / 1e3, kernel / 1e3);
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
        let found = counts("10 0 1 2 3 4 50 100 20").expect("nine numbers");
        assert_eq!((found.user, found.kernel, found.calls), (5.0, 10.0, 2.0));
        assert!(counts("10 0 1 2 3 4").is_none());
        assert!(counts("0 0 1 2 3 4 50 100 20").is_none());
    }
}

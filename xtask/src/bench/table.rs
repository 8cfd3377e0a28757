//! The table of the results, on the terminal and in `docs/benchmarks.md`.
//!
//! Only the text between the two markers of the document is replaced.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, bail};

use super::{Column, Contestant, DEVICE_LEN, ROWS, Sample, Unit};
use crate::{filesystem::FilesystemKind, machine};

/// Returns the markers around the result of `cargo xtask bench NAME`.
fn markers(name: &str) -> [String; 2] {
    ["begin", "end"].map(|side| format!("<!-- cargo xtask bench {name}: {side} -->"))
}

/// Text of a new document.
const FRAME: &str = "\
# Benchmarks

The text below the tables explains the numbers; `xtask/src/bench.rs` makes them.
";

impl Sample {
    pub(super) fn rate(&self, unit: Unit) -> f64 {
        let seconds = self.wall.as_secs_f64();
        match unit {
            Unit::Bytes => self.bytes as f64 / 1e6 / seconds,
            Unit::Ops => self.ops as f64 / seconds,
        }
    }

    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops as f64
    }
}

/// Formats two tables of rows by filesystems: by transport, and against other filesystems. A cell
/// has the rate, the CPU time per operation and, for SFS, the ratio to the null filesystem with the
/// same transport.
pub(super) fn markdown(
    columns: &[(Contestant, Column)],
    rounds: u32,
    quick: bool,
    in_ram: bool,
) -> String {
    let scale = if quick { "a quick look, not for publication; " } else { "" };
    let place = if in_ram { "in RAM" } else { "on the disk, for want of RAM" };
    let gib = DEVICE_LEN as f64 / f64::from(1 << 30);
    let mut text = format!("{}.\n\n", machine::description());
    text += &format!(
        "Cells: {scale}median of {rounds} rounds, all filesystems mounted at once and taking turns; \
         in parentheses CPU time per call, and for SFS the ratio to the null filesystem with the same \
         transport; for uring also to the null filesystem on a device. Each filesystem is on a loop \
         device of {gib} GiB over an allocated file {place}; the null filesystem has no device unless \
         its column says so. CPU time is the client's, the daemon's, and that of the kernel workers \
         whose names end with the loop device or the write-back; this sum is a lower bound for a kernel \
         filesystem. ext4 starts with initialized tables. No filesystem discards blocks, because a \
         discard would free the file's memory.\n\n"
    );
    let is_ours = |contestant: &Contestant| {
        matches!(
            contestant.kind,
            FilesystemKind::Sfs | FilesystemKind::Null | FilesystemKind::NullDevice
        )
    };
    let is_best =
        |contestant: &Contestant| *contestant == Contestant::over(FilesystemKind::Sfs, "uring");
    let ours: Vec<_> = columns.iter().filter(|(c, _)| is_ours(c)).collect();
    let others: Vec<_> = columns.iter().filter(|(c, _)| is_best(c) || !is_ours(c)).collect();
    for shown in [ours, others] {
        text += &table(&shown, columns);
        text += "\n";
    }
    for (contestant, column) in columns {
        if let Err(error) = column {
            let reason = format!("{error:#}").replace('\n', " ");
            let _ = writeln!(text, "{} is not in the table: {reason}.\n", contestant.name());
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn table(shown: &[&(Contestant, Column)], all: &[(Contestant, Column)]) -> String {
    let mut text = "| |".to_owned();
    shown.iter().for_each(|(contestant, _)| text += &format!(" {} |", contestant.name()));
    text += "\n|---|";
    shown.iter().for_each(|_| text += "---:|");
    text += "\n";
    for (row, title, unit) in ROWS {
        let cells: Vec<String> = shown
            .iter()
            .map(|(contestant, column)| {
                let Contestant { kind: FilesystemKind::Sfs, transport, .. } = contestant else {
                    return cell(column, row, unit, &[]);
                };
                let ceilings: Vec<f64> = [FilesystemKind::Null, FilesystemKind::NullDevice]
                    .iter()
                    .filter_map(|kind| {
                        let ceiling = Contestant { transport: *transport, ..Contestant::of(*kind) };
                        let (_, column) = all.iter().find(|(c, _)| *c == ceiling)?;
                        rate(column, row, unit)
                    })
                    .collect();
                cell(column, row, unit, &ceilings)
            })
            .collect();
        if cells.iter().all(String::is_empty) {
            continue;
        }
        let unit = if unit == Unit::Bytes { "MB/s" } else { "calls/s" };
        let _ = writeln!(text, "| {title}, {unit} | {} |", cells.join(" | "));
    }
    text
}

fn cell(column: &Column, row: &str, unit: Unit, ceilings: &[f64]) -> String {
    let Some(rate) = rate(column, row, unit) else { return String::new() };
    let ratio: String = ceilings.iter().map(|null| format!("{:.2}, ", rate / null)).collect();
    let samples = column.as_ref().ok().and_then(|rows| rows.get(row));
    let cpu = median(samples.into_iter().flatten().map(Sample::cpu_us));
    format!("{rate:.0} ({ratio}{:.1} us)", cpu.unwrap_or_default())
}

fn rate(column: &Column, row: &str, unit: Unit) -> Option<f64> {
    let samples = column.as_ref().ok()?.get(row)?;
    median(samples.iter().map(|sample| sample.rate(unit)))
}

pub(super) fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let (low, high) = (numbers.len().checked_sub(1)? / 2, numbers.len() / 2);
    Some((numbers[low] + numbers[high]) / 2.0)
}

/// Puts the result of `cargo xtask bench NAME` between its markers in the document, which is made
/// if it does not exist.
pub(super) fn publish(path: &Path, name: &str, text: &str) -> Result<()> {
    let old = if path.exists() { fs::read_to_string(path)? } else { FRAME.to_owned() };
    fs::write(path, placed(&old, name, text)?).with_context(|| format!("{}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn placed(old: &str, name: &str, text: &str) -> Result<String> {
    let [begin, end] = markers(name);
    let new = format!("{begin}\n\n{text}\n{end}");
    match (old.split_once(&begin), old.split_once(&end)) {
        (Some((before, _)), Some((_, after))) => Ok(format!("{before}{new}{after}")),
        (None, None) => Ok(format!("{old}\n{new}\n")),
        _ => bail!("the document has one marker without the other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0, 2.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn text_around_the_markers_is_unchanged() {
        let old = placed("# Title\n", "name", "one").unwrap() + "after\n";
        let new = placed(&old, "name", "two").unwrap();
        assert_eq!(new, old.replace("one", "two"));
        assert!(placed(&markers("name")[0], "name", "three").is_err());
    }
}

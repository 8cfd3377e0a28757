//! The commands of a control file, and the words of a fault.
//!
//! A fault is one line: `fault KIND [on=OPERATIONS] [range=FIRST-END] [count=N] [p=PROBABILITY] [seed=SEED]`, where KIND
//! is `error`, `wrong`, `lost` or `slow=TIME`, OPERATIONS are of `read`, `write`, `flush` and `discard`, separated
//! by commas, and the range is in bytes, in whole blocks.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sfs_device::{BLOCK_SIZE, FaultKind, FaultRule, Operations};
use sfs_mkfs::parse_size;
use sfs_ssd::TimeMode;

/// A command that a user may write to the control file.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlCommand {
    /// `reset`: sets the counters to zero.
    Reset,
    /// `real` or `virtual`: chooses whether requests take as long as on the device.
    Time(TimeMode),
    /// `fault ...`: adds a fault.
    Fault(FaultRule),
    /// `heal`: removes all faults.
    Heal,
}

/// A fault in the status of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// The fault as a line of the control file, without its seed.
    pub rule: String,
    /// Number of requests that the fault has hit.
    pub hits: u64,
}

const BLOCK: u64 = BLOCK_SIZE as u64;

impl ControlCommand {
    /// Parses a line of the control file.
    ///
    /// # Errors
    ///
    /// If the line is no command; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<ControlCommand> {
        let mut words = text.split_whitespace();
        let command = match words.next().unwrap_or_default() {
            "reset" => ControlCommand::Reset,
            "real" => ControlCommand::Time(TimeMode::RealTime),
            "virtual" => ControlCommand::Time(TimeMode::Virtual),
            "heal" => ControlCommand::Heal,
            "fault" => return Ok(ControlCommand::Fault(fault(words)?)),
            other => bail!("no command {other}: there are reset, real, virtual, fault and heal"),
        };
        match words.next() {
            None => Ok(command),
            Some(word) => bail!("{word}: one word too many"),
        }
    }
}

/// Parses the words after `fault`.
fn fault<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<FaultRule> {
    let read = Operations { reads: true, ..Operations::default() };
    let write = Operations { writes: true, ..Operations::default() };
    let mut rule = match words.next().context("a fault is error, wrong, lost or slow=TIME")? {
        "error" => FaultRule::new(FaultKind::Error, Operations::ALL),
        "wrong" => FaultRule::new(FaultKind::WrongData, read),
        "lost" => FaultRule::new(FaultKind::Lost, write),
        word => match word.strip_prefix("slow=") {
            Some(time) => FaultRule::new(FaultKind::Slow(nanoseconds(time)?), Operations::ALL),
            None => bail!("no fault {word}: there are error, wrong, lost and slow=TIME"),
        },
    };
    for word in words {
        let (key, value) =
            word.split_once('=').with_context(|| format!("{word}: not KEY=VALUE"))?;
        match key {
            "on" => rule.operations = operations(value)?,
            "range" => rule.range = Some(range(value)?),
            "count" => rule.left = Some(value.parse().with_context(|| format!("count={value}"))?),
            "p" => rule.probability = probability(value)?,
            "seed" => rule.seed = value.parse().with_context(|| format!("seed={value}"))?,
            _ => bail!("no {key}: there are on, range, count, p and seed"),
        }
    }
    ensure!(rule.is_possible(), "reads cannot be lost, and only reads and writes can be wrong");
    Ok(rule)
}

fn operations(text: &str) -> Result<Operations> {
    let mut operations = Operations::default();
    for word in text.split(',') {
        match word {
            "read" => operations.reads = true,
            "write" => operations.writes = true,
            "flush" => operations.flushes = true,
            "discard" => operations.discards = true,
            "all" => operations = Operations::ALL,
            _ => bail!("no operation {word}: there are read, write, flush, discard and all"),
        }
    }
    Ok(operations)
}

fn range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once('-').context("a range is FIRST-END, such as 1M-2M")?;
    let (first, end) = (parse_size(first)?, parse_size(end)?);
    ensure!(first < end, "range={text}: empty");
    ensure!(
        (first | end).is_multiple_of(BLOCK),
        "range={text}: not of whole blocks of {BLOCK} bytes"
    );
    Ok(first / BLOCK..end / BLOCK)
}

fn probability(text: &str) -> Result<f64> {
    let value: f64 = text.parse().with_context(|| format!("p={text}"))?;
    ensure!((0.0..=1.0).contains(&value), "p={text}: not from 0 to 1");
    Ok(value)
}

/// Parses a time such as `50ms`, `200us` or `1s`, of at most an hour.
fn nanoseconds(text: &str) -> Result<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit_ns: u64 = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => bail!("{text}: a time is a number with ns, us, ms or s"),
    };
    let number: u64 = text[..digits].parse().with_context(|| text.to_owned())?;
    let ns = number.saturating_mul(unit_ns);
    ensure!(ns <= 3_600_000_000_000, "{text}: more than an hour");
    Ok(ns)
}

impl FaultStatus {
    pub(super) fn of(rule: &FaultRule) -> FaultStatus {
        let kind = match rule.kind {
            FaultKind::Error => "error".to_owned(),
            FaultKind::WrongData => "wrong".to_owned(),
            FaultKind::Lost => "lost".to_owned(),
            FaultKind::Slow(ns) => format!("slow={ns}ns"),
        };
        let operations = [
            ("read", rule.operations.reads),
            ("write", rule.operations.writes),
            ("flush", rule.operations.flushes),
            ("discard", rule.operations.discards),
        ];
        let names: Vec<&str> =
            operations.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
        let mut line = format!("fault {kind} on={}", names.join(","));
        if let Some(range) = &rule.range {
            line += &format!(" range={}-{}", range.start * BLOCK, range.end * BLOCK);
        }
        if let Some(left) = rule.left {
            line += &format!(" count={left}");
        }
        if rule.probability < 1.0 {
            line += &format!(" p={}", rule.probability);
        }
        FaultStatus { rule: line, hits: rule.hits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> FaultRule {
        match ControlCommand::parse(text).expect("a command") {
            ControlCommand::Fault(rule) => rule,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fault_is_parsed_and_shown_as_the_same_line() {
        let text = "fault wrong on=read,write range=1M-2M count=3 p=0.25 seed=7";
        let parsed = rule(text);
        assert_eq!((parsed.kind, parsed.range.clone()), (FaultKind::WrongData, Some(256..512)));
        assert_eq!((parsed.left, parsed.probability, parsed.seed), (Some(3), 0.25, 7));
        let shown = FaultStatus::of(&parsed).rule;
        assert_eq!(shown, "fault wrong on=read,write range=1048576-2097152 count=3 p=0.25");
        assert_eq!(rule(&format!("{shown} seed=7")), parsed);
        assert_eq!(rule("fault slow=50ms\n").kind, FaultKind::Slow(50_000_000));
        assert_eq!(rule("fault error on=all").operations, Operations::ALL);
        assert!(matches!(ControlCommand::parse(" heal "), Ok(ControlCommand::Heal)));
    }

    #[test]
    fn what_is_no_command_is_an_error_with_its_reason() {
        for (text, reason) in [
            ("", "no command"),
            ("faster", "no command faster"),
            ("reset now", "one word too many"),
            ("fault", "a fault is"),
            ("fault broken", "no fault broken"),
            ("fault slow=5", "ns, us, ms or s"),
            ("fault slow=2000000s", "an hour"),
            ("fault lost on=read", "cannot be lost"),
            ("fault wrong on=flush", "can be wrong"),
            ("fault error on=trim", "no operation trim"),
            ("fault error range=5-9", "whole blocks"),
            ("fault error range=8K-4K", "empty"),
            ("fault error p=2", "not from 0 to 1"),
            ("fault error when=now", "no when"),
        ] {
            let error = ControlCommand::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}

//! Judgement of a volume's health: what its errors, its failure and its wear mean, and what to do.

use super::device_wear::DeviceWearReport;
use super::error_report::ErrorReport;
use super::health_report::{HealthFinding, HealthReport, HealthState};
use super::volume_report::VolumeReport;
use super::wear_report::WearReport;

/// Used life in percent, by the device itself, from which on the owner is warned.
const LIFE_USED_WARNING: u32 = 90;

/// Used life in percent beyond which the device states that its life is over.
const LIFE_USED_MAX: u32 = 100;

/// Years of life from which on the owner is not warned.
const YEARS_LEFT_WARNING: f64 = 1.0;

const COPY_NOW: &str = "copy what matters to another device now, and replace this one";
const COPY_SOON: &str = "keep a copy of what matters, and plan to replace the device";

impl VolumeReport {
    /// Returns the report with the health that follows from it.
    pub(super) fn judged(mut self) -> Self {
        self.health = Some(HealthReport::new(&self));
        self
    }

    /// Returns the report under the assumption that the cells of the device endure `cycles` cycles.
    #[must_use]
    pub fn assuming_endurance(mut self, cycles: u32) -> Self {
        self.wear = self.wear.map(|wear| wear.assuming(cycles));
        self.judged()
    }
}

impl HealthReport {
    /// Judges the volume of `report` by its errors, its failure and its wear.
    fn new(report: &VolumeReport) -> Self {
        let check = format!("unmount, and run 'sfs-fsck -n --data {}'", report.device);
        let mut findings = Vec::new();
        if report.has_failed || report.failure.is_some() {
            let sentence = match report.has_failed {
                true => "Writing has stopped after an error; nothing is written any more.",
                false => "An error has ended writing in an earlier mount.",
            };
            findings.push((HealthState::Failing, "stopped", 1, sentence.to_owned(), check.clone()));
        }
        findings.extend(report.errors.iter().map(|error| of_error(error, &check)));
        if let Some(wear) = &report.wear {
            findings.extend(of_device(wear));
            findings.extend(of_life(wear));
        }
        findings.sort_by_key(|(state, ..)| std::cmp::Reverse(*state));
        let state = findings.first().map_or(HealthState::Ok, |(state, ..)| *state);
        let finding = |(_, kind, count, sentence, remedy): Judged| HealthFinding {
            kind: kind.to_owned(),
            count,
            sentence,
            remedy,
        };
        Self { state, findings: findings.into_iter().map(finding).collect() }
    }
}

/// A finding: its state, kind, count, sentence and remedy.
type Judged = (HealthState, &'static str, u64, String, String);

/// Judges the errors of one kind; `check` is the remedy for damage.
fn of_error(error: &ErrorReport, check: &str) -> Judged {
    use HealthState::{Failing, Warning};
    let times = match error.count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let (state, kind, sentence, remedy) = match &*error.kind {
        "write" => (Failing, "write", "The device failed a write", COPY_NOW),
        "flush" => (Failing, "flush", "The device failed a flush", COPY_NOW),
        "read" => (Failing, "read", "The device failed a read", check),
        "misplaced" => (
            Failing,
            "capacity",
            "A block held what was written to another one: the device has less capacity than it states, or confuses \
             addresses",
            COPY_NOW,
        ),
        "retry" => (Warning, "retry", "A read was right only when it was repeated", COPY_SOON),
        "slow_write" => {
            let sentence = "Writing 512 MiB took more than four times as long as at first";
            (Warning, "slow_write", sentence, COPY_SOON)
        }
        "data" | "tree" | "log" | "volume" | "item" | "usage" => {
            (Failing, "damage", "The device returned other content than was written", check)
        }
        _ => (Warning, "unknown", "A newer version of SFS has recorded an error", check),
    };
    (state, kind, error.count, format!("{sentence}, {times}."), remedy.to_owned())
}

/// Judges what the device itself states.
fn of_device(wear: &WearReport) -> Option<Judged> {
    let DeviceWearReport { life_used_percent, pre_eol, .. } = wear.device.as_ref()?;
    let percent = life_used_percent.unwrap_or(0);
    let (state, sentence) = match pre_eol.as_deref() {
        _ if percent > LIFE_USED_MAX => {
            (HealthState::Failing, "The device states that its life is over.".to_owned())
        }
        Some("urgent") => {
            let sentence = "The device states that its reserve of blocks is nearly used up.";
            (HealthState::Failing, sentence.to_owned())
        }
        Some("warning") => {
            let sentence = "The device states that most of its reserve of blocks is used.";
            (HealthState::Warning, sentence.to_owned())
        }
        _ if percent >= LIFE_USED_WARNING => {
            let sentence = format!("The device states that up to {percent}% of its life is used.");
            (HealthState::Warning, sentence)
        }
        _ => return None,
    };
    let remedy = if state == HealthState::Failing { COPY_NOW } else { COPY_SOON };
    Some((state, "device_life", 1, sentence, remedy.to_owned()))
}

/// Judges the life that is left by the assumed endurance.
fn of_life(wear: &WearReport) -> Option<Judged> {
    let years = wear.years_left.filter(|years| *years < YEARS_LEFT_WARNING)?;
    let (months, cycles) = (years * 12.0, wear.endurance_cycles);
    let sentence =
        format!("At the rate of the last 30 days, {cycles} cycles last {months:.1} more months.");
    let remedy = format!("write less to it, or {COPY_SOON}; '--endurance' sets the cycles");
    Some((HealthState::Warning, "wear", 1, sentence, remedy))
}

#[cfg(test)]
mod tests {
    use sfs_core::format::ErrorKind;

    use super::super::error_report::OccurrenceReport;
    use super::*;

    fn error(kind: &str, count: u64) -> ErrorReport {
        let place = OccurrenceReport { secs: 0, at: 0 };
        ErrorReport { kind: kind.to_owned(), count, first: place, last: place }
    }

    #[test]
    fn every_kind_of_error_has_a_sentence_and_a_remedy() {
        for kind in (1..=12).filter_map(|code| ErrorKind::of_code(code).name()) {
            let (state, word, count, sentence, remedy) = of_error(&error(kind, 3), "run a check");
            assert_eq!(count, 3);
            assert_ne!(word, "unknown", "{kind}");
            assert!(sentence.ends_with(", 3 times.") && !remedy.is_empty(), "{sentence}");
            let is_warning = ["retry", "slow_write"].contains(&kind);
            assert_eq!(state == HealthState::Warning, is_warning, "{kind}");
        }
        assert_eq!(of_error(&error("900", 1), "").1, "unknown");
    }

    #[test]
    fn what_the_device_states_is_a_warning_before_it_is_failing() {
        let judged = |percent, pre_eol: Option<&str>| {
            let device = Some(DeviceWearReport {
                source: "life_time".to_owned(),
                life_used_percent: percent,
                pre_eol: pre_eol.map(str::to_owned),
            });
            of_device(&WearReport { device, ..WearReport::default() }).map(|judged| judged.0)
        };
        let (warning, failing) = (Some(HealthState::Warning), Some(HealthState::Failing));
        assert_eq!(judged(Some(80), Some("normal")), None);
        assert_eq!(judged(Some(90), Some("normal")), warning);
        assert_eq!(judged(Some(10), Some("warning")), warning);
        assert_eq!(judged(None, Some("urgent")), failing);
        assert_eq!(judged(Some(110), None), failing);
        assert_eq!(of_device(&WearReport::default()).map(|judged| judged.0), None);
    }

    #[test]
    fn a_life_of_less_than_a_year_is_a_warning() {
        let judged = |years_left| {
            of_life(&WearReport { years_left, ..WearReport::default() }).map(|judged| judged.3)
        };
        assert_eq!(judged(None), None);
        assert_eq!(judged(Some(1.0)), None);
        let sentence = judged(Some(0.5)).expect("a finding");
        assert!(sentence.contains("last 6.0 more months"), "{sentence}");
    }
}

//! The exploration of many cases by several threads.
//!
//! The seed decides the order of the cases. The first failure stops the exploration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::ValueEnum;
use parking_lot::Mutex;
use sfs_core::format::DataLayout;

use crate::ace;
use crate::case::Case;
use crate::check::{Violation, check};
use crate::crash::{RequestEffect, apply};
use crate::model::random::SplitMix64;
use crate::panics::catch;
use crate::scenario;

/// Numbers of explored cases, states and epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaseCounts {
    /// Number of cases.
    pub cases: u64,
    /// Number of crash states, those of recoveries included.
    pub states: u64,
    /// Number of epochs: sets of requests between two flushes.
    pub epochs: u64,
}

impl CaseCounts {
    fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.states += other.states;
        self.epochs += other.epochs;
    }
}

/// Counts for each kind of case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplorationTotals {
    /// Sequences of one operation.
    pub singles: CaseCounts,
    /// Sequences of two operations.
    pub pairs: CaseCounts,
    /// Random scenarios.
    pub scenarios: CaseCounts,
}

impl ExplorationTotals {
    fn of(&mut self, case: &Case) -> &mut CaseCounts {
        match case {
            Case::Sequence { index, .. } if *index < ace::SINGLES => &mut self.singles,
            Case::Sequence { .. } => &mut self.pairs,
            Case::Scenario { .. } => &mut self.scenarios,
        }
    }

    /// Returns the number of states of all kinds.
    pub fn states(&self) -> u64 {
        self.singles.states + self.pairs.states + self.scenarios.states
    }
}

/// Violation of the contract, and the state that replays it.
#[derive(Debug)]
pub struct CaseFailure {
    /// Failing case.
    pub case: Case,
    /// Index of the failing crash state; `None` if the run itself failed.
    pub state: Option<usize>,
    /// Violation of the contract.
    pub violation: Violation,
}

/// Checks the states of `case`, or only the state with index `only`.
///
/// Calls `tick` with the number of states checked each time, and stops when `tick` returns `false`.
///
/// # Errors
///
/// The first violation.
pub fn explore_case(
    case: &Case,
    only: Option<usize>,
    mut tick: impl FnMut(u64) -> bool,
) -> Result<CaseCounts, CaseFailure> {
    let fail = |state, violation| CaseFailure { case: case.clone(), state, violation };
    let panicked = |state| move |message| fail(state, Violation::Panic(message));
    let (recorded, states) = catch(|| {
        let recorded = case.record();
        let states = case.states(&recorded);
        (recorded, states)
    })
    .map_err(panicked(None))?;
    let mut counts = CaseCounts { cases: 1, ..CaseCounts::default() };
    let mut durable = (0, recorded.base.clone());
    for (state_no, crash) in states.iter().enumerate() {
        if durable.0 != crash.epoch.start || state_no == 0 {
            counts.epochs += 1;
        }
        for event in &recorded.events[durable.0..crash.epoch.start] {
            apply(&durable.1, event, RequestEffect::Done);
        }
        durable.0 = crash.epoch.start;
        if only.is_some_and(|only| only != state_no) {
            continue;
        }
        let image = crash.image(&durable.1, &recorded.events);
        let mut random = SplitMix64::new(case.seed() ^ (state_no as u64) << 32);
        let checked = catch(|| check(case.data_layout(), &recorded, crash, image, &mut random));
        let checked = match checked.map_err(panicked(Some(state_no)))? {
            Ok(checked) => checked,
            Err(violation) => return Err(fail(Some(state_no), violation)),
        };
        counts.states += checked;
        if !tick(checked) {
            break;
        }
    }
    Ok(counts)
}

/// Parameters of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplorationPlan {
    /// Data layout of the volumes.
    pub data_layout: DataLayout,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of states to check; the last case can exceed it slightly.
    pub states: u64,
    /// Kinds of cases.
    pub cases: CaseKinds,
    /// Number of worker threads; a single worker runs in the thread of the caller.
    pub jobs: usize,
}

/// Kinds of cases to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CaseKinds {
    /// All sequences of one operation, then sequences of two, mixed with random scenarios.
    All,
    /// Sequences of one and two operations.
    Sequences,
    /// Random scenarios.
    #[value(alias = "worlds")]
    Scenarios,
}

/// One in this many cases after the sequences of one operation is a random scenario.
const SCENARIO_SHARE: u64 = 16;

impl ExplorationPlan {
    /// Returns the case with this number; `None` if there are no more.
    fn case(&self, number: u64) -> Option<Case> {
        let data_layout = self.data_layout;
        let scenario = |no: u64| {
            let seed = SplitMix64::new(self.seed.wrapping_mul(0x1_0000_0001) ^ no).draw();
            Some(Case::Scenario { data_layout, seed, steps: (0..scenario::STEPS).collect() })
        };
        let sequence = |index| Some(Case::Sequence { data_layout, seed: self.seed, index });
        let after = number.checked_sub(ace::SINGLES);
        match (self.cases, after) {
            (CaseKinds::Scenarios, _) => scenario(number),
            (_, None) => sequence(number),
            (CaseKinds::Sequences, Some(after)) => sequence(self.pair(after)?),
            (CaseKinds::All, Some(after)) if after % SCENARIO_SHARE == 0 => {
                scenario(after / SCENARIO_SHARE)
            }
            (CaseKinds::All, Some(after)) => {
                match self.pair(after - after / SCENARIO_SHARE - 1) {
                    Some(index) => sequence(index),
                    // All sequences are used: only scenarios follow, with numbers not used before.
                    None => scenario(number),
                }
            }
        }
    }

    /// Returns the sequence of two operations at position `no` in the order of the seed.
    ///
    /// The stride has no common divisor with the number of pairs, so that each pair occurs once.
    fn pair(&self, no: u64) -> Option<u64> {
        const PAIRS: u64 = ace::SEQUENCES - ace::SINGLES;
        const STRIDE: u64 = 30_011;
        let start = SplitMix64::new(self.seed).below(PAIRS);
        (no < PAIRS).then(|| ace::SINGLES + (start + no * STRIDE) % PAIRS)
    }
}

/// Explores by `plan`; calls `tick` with the number of states checked each time.
///
/// # Errors
///
/// The failure of the case with the lowest number, among the failures that the workers found.
pub fn explore(
    plan: &ExplorationPlan,
    tick: &(dyn Fn(u64) + Sync),
) -> Result<ExplorationTotals, CaseFailure> {
    let (next, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let failures: Mutex<BTreeMap<u64, CaseFailure>> = Mutex::default();
    let totals: Mutex<ExplorationTotals> = Mutex::default();
    let worker = || {
        while seen.load(Ordering::Relaxed) < plan.states && !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = plan.case(number) else { break };
            let proceed = |checked| {
                tick(checked);
                seen.fetch_add(checked, Ordering::Relaxed) + checked < plan.states
            };
            match explore_case(&case, None, proceed) {
                Ok(counts) => totals.lock().of(&case).add(counts),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    failures.lock().insert(number, failure);
                }
            }
        }
    };
    match plan.jobs {
        // The mutants are enabled for the calling thread only.
        1 => worker(),
        jobs => std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(worker);
            }
        }),
    }
    match failures.into_inner().into_values().next() {
        Some(failure) => Err(failure),
        None => Ok(totals.into_inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_occurs_once() {
        let plan = ExplorationPlan {
            data_layout: DataLayout::Log,
            seed: 5,
            states: 0,
            cases: CaseKinds::Sequences,
            jobs: 1,
        };
        let mut seen = std::collections::HashSet::new();
        let cases = (0..).map_while(|number| plan.case(number));
        for case in cases {
            assert!(seen.insert(case.to_string()));
        }
        assert_eq!(seen.len() as u64, ace::SEQUENCES);
    }
}

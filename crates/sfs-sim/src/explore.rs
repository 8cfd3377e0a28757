//! Exploration: case after case, state after state.
//!
//! Owns: the order of cases, the counts, and what becomes of a failure.
//! Promises: cases are taken in an order that the seed decides; a failure stops everything.
//! Never: prints.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sfs_core::format::DataLayout;

use crate::ace;
use crate::case::Case;
use crate::check::{Violation, check};
use crate::crash::{Fate, apply};
use crate::model::random::Random;
use crate::panics::catch;
use crate::world;

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lives.
    pub cases: u64,
    /// Crash states, those of recoveries included.
    pub states: u64,
    /// Requests between two flushes.
    pub epochs: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.states += other.states;
        self.epochs += other.epochs;
    }
}

/// Counts by the kind of case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sequences of one operation.
    pub singles: Counts,
    /// Sequences of two operations.
    pub pairs: Counts,
    /// Random worlds.
    pub worlds: Counts,
}

impl Tally {
    fn of(&mut self, case: &Case) -> &mut Counts {
        match case {
            Case::Sequence { index, .. } if *index < ace::SINGLES => &mut self.singles,
            Case::Sequence { .. } => &mut self.pairs,
            Case::World { .. } => &mut self.worlds,
        }
    }

    /// All states.
    pub fn states(&self) -> u64 {
        self.singles.states + self.pairs.states + self.worlds.states
    }
}

/// A state that the contract forbids, and how to see it again.
#[derive(Debug)]
pub struct Failure {
    /// The life.
    pub case: Case,
    /// Which of its states; `None` if it went wrong before any crash.
    pub state: Option<usize>,
    /// What is wrong.
    pub violation: Violation,
}

/// Looks at the states of `case`, or at one of them only; `tick` is told after each state, and
/// stops by answering false.
///
/// # Errors
///
/// The first violation.
pub fn run(
    case: &Case,
    only: Option<usize>,
    mut tick: impl FnMut(u64) -> bool,
) -> Result<Counts, Failure> {
    let fail = |state, violation| Failure { case: case.clone(), state, violation };
    let panicked = |state| move |message| fail(state, Violation::Panic(message));
    let (history, states) = catch(|| {
        let history = case.record();
        let states = case.states(&history);
        (history, states)
    })
    .map_err(panicked(None))?;
    let mut counts = Counts { cases: 1, ..Counts::default() };
    let mut durable = (0, history.base.clone());
    for (state_no, crash) in states.iter().enumerate() {
        if durable.0 != crash.epoch.start || state_no == 0 {
            counts.epochs += 1;
        }
        for event in &history.events[durable.0..crash.epoch.start] {
            apply(&durable.1, event, Fate::Done);
        }
        durable.0 = crash.epoch.start;
        if only.is_some_and(|only| only != state_no) {
            continue;
        }
        let image = crash.image(&durable.1, &history.events);
        let mut random = Random::new(case.seed() ^ (state_no as u64) << 32);
        let checked = catch(|| check(case.data_layout(), &history, crash, image, &mut random));
        let looked = match checked.map_err(panicked(Some(state_no)))? {
            Ok(looked) => looked,
            Err(violation) => return Err(fail(Some(state_no), violation)),
        };
        counts.states += looked;
        if !tick(looked) {
            break;
        }
    }
    Ok(counts)
}

/// What to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where data goes in every case.
    pub data_layout: DataLayout,
    /// What everything is drawn from.
    pub seed: u64,
    /// States after which it is enough.
    pub states: u64,
    /// Which cases.
    pub mode: Mode,
    /// Worker threads; one is the caller's.
    pub jobs: usize,
}

/// Kinds of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All sequences of one operation, then sequences of two and random worlds by turns.
    All,
    /// Sequences only.
    Sequences,
    /// Random worlds only.
    Worlds,
}

/// Of so many cases after the sequences of one operation, one is a random world.
const WORLD_SHARE: u64 = 16;

impl Plan {
    /// The case with this number; `None` when there are no more.
    fn case(&self, number: u64) -> Option<Case> {
        let data_layout = self.data_layout;
        let world = |no: u64| {
            let seed = Random::new(self.seed.wrapping_mul(0x1_0000_0001) ^ no).draw();
            Some(Case::World { data_layout, seed, steps: (0..world::STEPS).collect() })
        };
        let sequence = |index| Some(Case::Sequence { data_layout, seed: self.seed, index });
        let after = number.checked_sub(ace::SINGLES);
        match (self.mode, after) {
            (Mode::Worlds, _) => world(number),
            (_, None) => sequence(number),
            (Mode::Sequences, Some(after)) => sequence(self.pair(after)?),
            (Mode::All, Some(after)) if after % WORLD_SHARE == 0 => world(after / WORLD_SHARE),
            (Mode::All, Some(after)) => {
                match self.pair(after - after / WORLD_SHARE - 1) {
                    Some(index) => sequence(index),
                    // All have been seen: worlds from here on, with numbers of their own.
                    None => world(number),
                }
            }
        }
    }

    /// The sequence of two operations that comes at place `no`, in an order by the seed: a step
    /// that has no divisor in common with their number visits each once.
    fn pair(&self, no: u64) -> Option<u64> {
        const PAIRS: u64 = ace::SEQUENCES - ace::SINGLES;
        const STRIDE: u64 = 30_011;
        let start = Random::new(self.seed).below(PAIRS);
        (no < PAIRS).then(|| ace::SINGLES + (start + no * STRIDE) % PAIRS)
    }
}

/// Explores by `plan`; `tick` is told of states as they have been looked at.
///
/// # Errors
///
/// The failure with the lowest number among those that the workers had come to.
pub fn explore(plan: &Plan, tick: &(dyn Fn(u64) + Sync)) -> Result<Tally, Failure> {
    let (next, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let failures: Mutex<BTreeMap<u64, Failure>> = Mutex::default();
    let tally: Mutex<Tally> = Mutex::default();
    let worker = || {
        while seen.load(Ordering::Relaxed) < plan.states && !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = plan.case(number) else { break };
            let go_on = |looked| {
                tick(looked);
                seen.fetch_add(looked, Ordering::Relaxed) + looked < plan.states
            };
            match run(&case, None, go_on) {
                Ok(counts) => tally.lock().of(&case).add(counts),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    failures.lock().insert(number, failure);
                }
            }
        }
    };
    match plan.jobs {
        // In this thread: it may have something that others have not.
        1 => worker(),
        jobs => std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(worker);
            }
        }),
    }
    match failures.into_inner().into_values().next() {
        Some(failure) => Err(failure),
        None => Ok(tally.into_inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_its_turn_once() {
        let plan = Plan {
            data_layout: DataLayout::Log,
            seed: 5,
            states: 0,
            mode: Mode::Sequences,
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

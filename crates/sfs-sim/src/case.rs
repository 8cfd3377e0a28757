//! Cases of the exploration: deterministic runs of a volume, each with a name that replays it.
//!
//! The same name gives the same run, the same crash states and the same violation. A case is either a short
//! sequence of [`ace`] operations on a prepared volume, or a random [`scenario`].

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use sfs_core::format::DataLayout;

use crate::ace;
use crate::crash::{Crash, epochs, states_of};
use crate::empty_volume::{empty_volume, empty_volume_with_room};
use crate::image::CowImage;
use crate::model::fixture::tight_with;
use crate::model::operation::VolumeOperation;
use crate::model::random::SplitMix64;
use crate::model::reference::Reference;
use crate::recorded_run::{RecordedRun, RunRecorder};
use crate::{scenario, version_1};

/// Deterministic run of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Case {
    /// Short sequence of operations, by its number ([`ace::sequence`]).
    Sequence {
        /// Data layout of the volume.
        data_layout: DataLayout,
        /// Seed of the tears and policies.
        seed: u64,
        /// Number of the sequence, below [`ace::SEQUENCES`].
        index: u64,
    },
    /// Long random scenario.
    Scenario {
        /// Data layout of the volume.
        data_layout: DataLayout,
        /// Seed of all random choices.
        seed: u64,
        /// Numbers of the steps to take; shrinking leaves some out.
        steps: Vec<u32>,
    },
}

/// Number of torn states of each request in a sequence.
const SEQUENCE_TEARS: usize = 2;

/// Number of random states of an epoch that has too many requests for all subsets.
const SEQUENCE_SAMPLE: usize = 64;

/// Number of segments of the volume that sequences run on.
const SEQUENCE_SEGMENTS: u64 = 32;

/// One in this many sequences begins with a volume of version 1, which its mount upgrades.
const UPGRADE_SHARE: u64 = 8;

/// Virtual time at the start of a sequence, in milliseconds.
const MILLIS: u64 = 1000;

/// Closed volumes that sequences begin with, and their content, in the order of [`DataLayout::ALL`].
type InitialVolumes = [(CowImage, Reference); DataLayout::ALL.len()];

/// Volumes that fill their devices, for upgrades: a program of version 1 looks for the backup in the last block. Then
/// volumes on devices with room for more segments.
static INITIAL_VOLUMES: LazyLock<[InitialVolumes; 2]> = LazyLock::new(|| {
    [false, true].map(|has_room| DataLayout::ALL.map(|layout| initial_volume(layout, has_room)))
});

fn initial_volume(data_layout: DataLayout, has_room: bool) -> (CowImage, Reference) {
    let options = tight_with(0);
    let empty = if has_room { empty_volume_with_room } else { empty_volume };
    let image = empty(data_layout, SEQUENCE_SEGMENTS);
    let mut recorder = RunRecorder::begin(image, options, Reference::new(), 0);
    ace::initial_files().iter().for_each(|operation| recorder.step(operation));
    recorder.pair.volume().close().expect("the volume closes");
    let reference = recorder.pair.reference.clone();
    (recorder.image(), reference)
}

impl Case {
    /// Runs the case and returns the recorded run.
    ///
    /// # Panics
    ///
    /// If a result of the volume differs from the reference.
    pub fn record(&self) -> RecordedRun {
        match self {
            Self::Sequence { data_layout, seed, index } => {
                record_sequence(*data_layout, *seed, *index)
            }
            Self::Scenario { data_layout, seed, steps } => {
                scenario::record(*data_layout, *seed, steps)
            }
        }
    }

    /// Returns the crash states to check, in order.
    pub fn states(&self, recorded: &RecordedRun) -> Vec<Crash> {
        let mut random = SplitMix64::new(self.seed() ^ 0x5eed);
        let epochs = epochs(&recorded.events);
        let mut all = Vec::new();
        for epoch in epochs {
            match self {
                Self::Sequence { .. } => {
                    all.extend(states_of(&epoch, SEQUENCE_SAMPLE, SEQUENCE_TEARS, &mut random))
                }
                Self::Scenario { .. } => all.extend(scenario::states_of(&epoch, &mut random)),
            }
        }
        all
    }

    /// Returns the seed of the case, which differs from case to case.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Sequence { seed, index, .. } => SplitMix64::new(seed ^ (index << 20)).draw(),
            Self::Scenario { seed, .. } => *seed,
        }
    }

    /// Returns the data layout of the volume.
    pub fn data_layout(&self) -> DataLayout {
        match self {
            Self::Sequence { data_layout, .. } | Self::Scenario { data_layout, .. } => *data_layout,
        }
    }

    /// Returns a line for each operation of the case.
    pub fn describe(&self) -> Vec<String> {
        match self {
            Self::Sequence { index, .. } => {
                let line =
                    |(recipe, persist): ace::SequenceStep| format!("{recipe:?}, then {persist:?}");
                ace::sequence(*index).into_iter().map(line).collect()
            }
            Self::Scenario { data_layout, seed, steps } => {
                scenario::describe(*data_layout, *seed, steps)
            }
        }
    }
}

fn record_sequence(data_layout: DataLayout, seed: u64, index: u64) -> RecordedRun {
    let index_of_layout = DataLayout::ALL.iter().position(|other| *other == data_layout);
    let is_upgraded = index.is_multiple_of(UPGRADE_SHARE);
    let initial = &INITIAL_VOLUMES[usize::from(!is_upgraded)];
    let (image, reference) = &initial[index_of_layout.expect("ALL has every layout")];
    let seed = seed ^ index;
    let image = image.clone();
    if is_upgraded {
        version_1::downgrade(&image);
    }
    let mut recorder = RunRecorder::begin(image, tight_with(seed), reference.clone(), MILLIS);
    if index.is_multiple_of(2) {
        // A sync of everything writes back in parts, which are not its last batch.
        recorder.pair.volume().bound_batches(1);
    }
    if !is_upgraded {
        recorder.skip_mount();
    }
    for (recipe, persist) in ace::sequence(index) {
        for part in ace::parts(recipe) {
            for operation in ace::operations(part, &recorder.pair.reference, seed) {
                recorder.step(&operation);
            }
            close_files(&mut recorder);
        }
        if let Some(operation) = ace::sync(recipe, persist, &recorder.pair.reference) {
            if let VolumeOperation::SyncFile { ino } = operation {
                // Other threads have announced syncs of the same file, as the queue of a mount does.
                recorder.pair.volume().announce_sync(ino);
            }
            recorder.step(&operation);
        }
    }
    // The run ends with a checkpoint, due to elapsed time or to the unmount.
    match seed % 2 {
        0 => recorder.step(&VolumeOperation::Work { millis: 310_000 }),
        _ => recorder.close(),
    }
    recorder.end()
}

/// Drops the references to all files that have a name; unlinked files stay open.
fn close_files(recorder: &mut RunRecorder) {
    let reference = &recorder.pair.reference;
    let named = |ino: &u64| reference.node(*ino).is_ok_and(|node| node.links > 0);
    let open: Vec<u64> = reference.references.keys().copied().filter(named).collect();
    for ino in open {
        recorder.step(&VolumeOperation::Forget { ino });
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.data_layout() != DataLayout::Log {
            write!(f, "{}:", self.data_layout().name())?;
        }
        match self {
            Self::Sequence { seed, index, .. } => write!(f, "sequence:{seed}:{index}"),
            Self::Scenario { seed, steps, .. } => {
                write!(f, "scenario:{seed}:")?;
                let runs = steps.chunk_by(|a, b| a + 1 == *b);
                for (no, run) in runs.enumerate() {
                    let comma = if no > 0 { "," } else { "" };
                    write!(f, "{comma}{}-{}", run[0], run[run.len() - 1])?;
                }
                Ok(())
            }
        }
    }
}

/// Error of parsing a text that names no case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a case: [LAYOUT:]sequence:SEED:INDEX or [LAYOUT:]scenario:SEED:FIRST-LAST,...")]
pub struct CaseNameError;

impl FromStr for Case {
    type Err = CaseNameError;

    fn from_str(text: &str) -> Result<Self, CaseNameError> {
        let named = text.split_once(':').ok_or(CaseNameError)?;
        let (data_layout, text) = match DataLayout::by_name(named.0) {
            Some(data_layout) => (data_layout, named.1),
            None => (DataLayout::Log, text),
        };
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or(CaseNameError);
        let (kind, seed, rest) = (part()?, number(part()?)?, part()?);
        match kind {
            "sequence" => match number(rest)? {
                index if index < ace::SEQUENCES => Ok(Self::Sequence { data_layout, seed, index }),
                _ => Err(CaseNameError),
            },
            // `world` is the former name, which older reports of failures have.
            "scenario" | "world" => {
                Ok(Self::Scenario { data_layout, seed, steps: parse_steps(rest)? })
            }
            _ => Err(CaseNameError),
        }
    }
}

fn number(text: &str) -> Result<u64, CaseNameError> {
    text.parse().map_err(|_| CaseNameError)
}

fn parse_steps(text: &str) -> Result<Vec<u32>, CaseNameError> {
    let mut steps = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (first, last) = run.split_once('-').ok_or(CaseNameError)?;
        let step = |text: &str| text.parse::<u16>().map(u32::from).map_err(|_| CaseNameError);
        steps.extend(step(first)?..=step(last)?);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_name_of_a_case_parses_to_the_same_case() {
        let cases = [
            Case::Sequence { data_layout: DataLayout::Log, seed: 7, index: 12 },
            Case::Scenario {
                data_layout: DataLayout::GreedySpace,
                seed: 1 << 60,
                steps: vec![0, 1, 2, 9, 11, 12],
            },
            Case::Scenario { data_layout: DataLayout::Log, seed: 3, steps: vec![] },
        ];
        for case in cases {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        for name in ["", "sequence:1", "sequence:1:99999999", "scenario:1:3", "word:1:0-1"] {
            assert_eq!(name.parse::<Case>(), Err(CaseNameError), "{name}");
        }
    }

    #[test]
    fn the_former_name_of_scenarios_still_parses() {
        let case = |name: &str| name.parse::<Case>().expect("a case");
        assert_eq!(case("world:7:0-60"), case("scenario:7:0-60"));
        assert_eq!(case("greedy-space:world:7:1-2"), case("greedy-space:scenario:7:1-2"));
    }
}

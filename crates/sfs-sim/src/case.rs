//! Cases: what is explored, one deterministic life of a volume each.
//!
//! Owns: the names by which cases are replayed, and the lives they stand for.
//! Promises: the same name gives the same life, the same crash states and the same violation.
//! Never: judges a state.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::ace;
use crate::crash::{Crash, epochs, states_of};
use crate::history::{History, Life};
use crate::image::Image;
use crate::model::operation::Operation;
use crate::model::random::Random;
use crate::model::reference::Reference;
use crate::model::rig::{SEGMENT_BLOCKS, format, tight_with};
use crate::world;

/// One life of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Case {
    /// A short sequence, by its number ([`ace::sequence`]).
    Sequence {
        /// What tears and policies are drawn from.
        seed: u64,
        /// Which.
        index: u64,
    },
    /// A long random one.
    World {
        /// What everything is drawn from.
        seed: u64,
        /// The steps that are taken, by their numbers; shrinking leaves some out.
        steps: Vec<u32>,
    },
}

/// Torn states of each request in a sequence.
const SEQUENCE_TEARS: usize = 2;

/// Random states of an epoch that is too long for all its subsets.
const SEQUENCE_SAMPLE: usize = 64;

/// Segments of the volume that sequences run on, and its blocks.
const SEQUENCE_SEGMENTS: u64 = 32;

/// When a life begins, in milliseconds.
const MILLIS: u64 = 1000;

/// The volume that every sequence begins with, closed, and what is on it.
static BEGINNING: LazyLock<(Image, Reference)> = LazyLock::new(|| {
    let options = tight_with(0);
    let mut life = Life::begin(fresh(SEQUENCE_SEGMENTS), options, Reference::new(), 0);
    ace::beginning().iter().for_each(|operation| life.step(operation));
    life.pair.volume().close().expect("it closes");
    let reference = life.pair.reference.clone();
    (life.image(), reference)
});

/// An empty volume of so many segments.
pub fn fresh(segments: u64) -> Image {
    let image = Image::new(block_count(segments));
    let device = std::sync::Arc::new(image);
    format(device.clone(), SEGMENT_BLOCKS);
    std::sync::Arc::into_inner(device).expect("making lets go of the device")
}

/// Blocks of the smallest device for so many segments: superblock, slots and the backup beside.
fn block_count(segments: u64) -> u64 {
    32 + segments * SEGMENT_BLOCKS + 16 + 1
}

impl Case {
    /// The life, recorded.
    ///
    /// # Panics
    ///
    /// When the volume answers what the reference does not.
    pub fn record(&self) -> History {
        match self {
            Self::Sequence { seed, index } => record_sequence(*seed, *index),
            Self::World { seed, steps } => world::record(*seed, steps),
        }
    }

    /// The crash states that are looked at, in order.
    pub fn states(&self, history: &History) -> Vec<Crash> {
        let mut random = Random::new(self.seed() ^ 0x5eed);
        let epochs = epochs(&history.events);
        let mut all = Vec::new();
        for epoch in epochs {
            match self {
                Self::Sequence { .. } => {
                    all.extend(states_of(&epoch, SEQUENCE_SAMPLE, SEQUENCE_TEARS, &mut random))
                }
                Self::World { .. } => all.extend(world::states_of(&epoch, &mut random)),
            }
        }
        all
    }

    /// What the case is drawn from: unlike that of any other case.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Sequence { seed, index } => Random::new(seed ^ (index << 20)).draw(),
            Self::World { seed, .. } => *seed,
        }
    }

    /// What is done, one line each.
    pub fn describe(&self) -> Vec<String> {
        match self {
            Self::Sequence { index, .. } => {
                let line = |(recipe, persist): ace::Step| format!("{recipe:?}, then {persist:?}");
                ace::sequence(*index).into_iter().map(line).collect()
            }
            Self::World { seed, steps } => world::describe(*seed, steps),
        }
    }
}

fn record_sequence(seed: u64, index: u64) -> History {
    let (image, reference) = &*BEGINNING;
    let seed = seed ^ index;
    let mut life = Life::begin(image.clone(), tight_with(seed), reference.clone(), MILLIS);
    life.skip_mount();
    for (recipe, persist) in ace::sequence(index) {
        for part in ace::parts(recipe) {
            for operation in ace::operations(part, &life.pair.reference, seed) {
                life.step(&operation);
            }
            close_files(&mut life);
        }
        if let Some(operation) = ace::sync(recipe, persist, &life.pair.reference) {
            life.step(&operation);
        }
    }
    // What comes next: a checkpoint, by time or by an unmount.
    match seed % 2 {
        0 => life.step(&Operation::Work { millis: 40_000 }),
        _ => life.close(),
    }
    life.end()
}

/// Every file is closed that has a name; others stay open.
fn close_files(life: &mut Life) {
    let reference = &life.pair.reference;
    let named = |ino: &u64| reference.node(*ino).is_ok_and(|node| node.links > 0);
    let open: Vec<u64> = reference.references.keys().copied().filter(named).collect();
    for ino in open {
        life.step(&Operation::Forget { ino });
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequence { seed, index } => write!(f, "sequence:{seed}:{index}"),
            Self::World { seed, steps } => {
                write!(f, "world:{seed}:")?;
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

/// A name that is not one of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a case: sequence:SEED:INDEX or world:SEED:FIRST-LAST,...")
    }
}

impl std::error::Error for BadName {}

impl FromStr for Case {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or(BadName);
        let (kind, seed, rest) = (part()?, number(part()?)?, part()?);
        match kind {
            "sequence" => match number(rest)? {
                index if index < ace::SEQUENCES => Ok(Self::Sequence { seed, index }),
                _ => Err(BadName),
            },
            "world" => Ok(Self::World { seed, steps: parse_steps(rest)? }),
            _ => Err(BadName),
        }
    }
}

fn number(text: &str) -> Result<u64, BadName> {
    text.parse().map_err(|_| BadName)
}

fn parse_steps(text: &str) -> Result<Vec<u32>, BadName> {
    let mut steps = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (first, last) = run.split_once('-').ok_or(BadName)?;
        let step = |text: &str| text.parse::<u16>().map(u32::from).map_err(|_| BadName);
        steps.extend(step(first)?..=step(last)?);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_its_case() {
        let cases = [
            Case::Sequence { seed: 7, index: 12 },
            Case::World { seed: 1 << 60, steps: vec![0, 1, 2, 9, 11, 12] },
            Case::World { seed: 3, steps: vec![] },
        ];
        for case in cases {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        for name in ["", "sequence:1", "sequence:1:99999999", "world:1:3", "word:1:0-1"] {
            assert_eq!(name.parse::<Case>(), Err(BadName), "{name}");
        }
    }
}

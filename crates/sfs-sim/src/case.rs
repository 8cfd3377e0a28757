//! Cases: what is explored, one deterministic life of a volume each.
//!
//! Owns: the names by which cases are replayed, and the lives they stand for.
//! Promises: the same name gives the same life, the same crash states and the same violation.
//! Never: judges a state.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use sfs_core::format::DataLayout;

use crate::ace;
use crate::crash::{Crash, epochs, states_of};
use crate::history::{History, Life};
use crate::image::Image;
use crate::model::operation::Operation;
use crate::model::random::Random;
use crate::model::reference::Reference;
use crate::model::rig::{SEGMENT_BLOCKS, format_as, tight_with};
use crate::{version_1, world};

/// One life of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Case {
    /// A short sequence, by its number ([`ace::sequence`]).
    Sequence {
        /// Where data goes.
        data_layout: DataLayout,
        /// What tears and policies are drawn from.
        seed: u64,
        /// Which.
        index: u64,
    },
    /// A long random one.
    World {
        /// Where data goes.
        data_layout: DataLayout,
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

/// Of so many sequences one begins with a volume of version 1, and with the mount that upgrades it.
const UPGRADE_SHARE: u64 = 8;

/// When a life begins, in milliseconds.
const MILLIS: u64 = 1000;

/// The volumes that sequences begin with, closed, and what is on them, in the order of
/// [`DataLayout::ALL`].
static BEGINNINGS: LazyLock<[(Image, Reference); DataLayout::ALL.len()]> =
    LazyLock::new(|| DataLayout::ALL.map(begin));

fn begin(data_layout: DataLayout) -> (Image, Reference) {
    let options = tight_with(0);
    let image = fresh(data_layout, SEQUENCE_SEGMENTS);
    let mut life = Life::begin(image, options, Reference::new(), 0);
    ace::beginning().iter().for_each(|operation| life.step(operation));
    life.pair.volume().close().expect("it closes");
    let reference = life.pair.reference.clone();
    (life.image(), reference)
}

/// An empty volume of so many segments.
pub fn fresh(data_layout: DataLayout, segments: u64) -> Image {
    let image = Image::new(block_count(segments));
    let device = std::sync::Arc::new(image);
    format_as(device.clone(), SEGMENT_BLOCKS, data_layout);
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
            Self::Sequence { data_layout, seed, index } => {
                record_sequence(*data_layout, *seed, *index)
            }
            Self::World { data_layout, seed, steps } => world::record(*data_layout, *seed, steps),
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
            Self::Sequence { seed, index, .. } => Random::new(seed ^ (index << 20)).draw(),
            Self::World { seed, .. } => *seed,
        }
    }

    /// Where data goes.
    pub fn data_layout(&self) -> DataLayout {
        match self {
            Self::Sequence { data_layout, .. } | Self::World { data_layout, .. } => *data_layout,
        }
    }

    /// What is done, one line each.
    pub fn describe(&self) -> Vec<String> {
        match self {
            Self::Sequence { index, .. } => {
                let line = |(recipe, persist): ace::Step| format!("{recipe:?}, then {persist:?}");
                ace::sequence(*index).into_iter().map(line).collect()
            }
            Self::World { data_layout, seed, steps } => world::describe(*data_layout, *seed, steps),
        }
    }
}

fn record_sequence(data_layout: DataLayout, seed: u64, index: u64) -> History {
    let place = DataLayout::ALL.iter().position(|other| *other == data_layout);
    let (image, reference) = &BEGINNINGS[place.expect("all are there")];
    let seed = seed ^ index;
    let image = image.clone();
    let is_upgraded = index.is_multiple_of(UPGRADE_SHARE);
    if is_upgraded {
        version_1::downgrade(&image);
    }
    let mut life = Life::begin(image, tight_with(seed), reference.clone(), MILLIS);
    if !is_upgraded {
        life.skip_mount();
    }
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
        if self.data_layout() != DataLayout::Log {
            write!(f, "{}:", self.data_layout().name())?;
        }
        match self {
            Self::Sequence { seed, index, .. } => write!(f, "sequence:{seed}:{index}"),
            Self::World { seed, steps, .. } => {
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
        f.write_str(
            "not a case: [LAYOUT:]sequence:SEED:INDEX or [LAYOUT:]world:SEED:FIRST-LAST,...",
        )
    }
}

impl std::error::Error for BadName {}

impl FromStr for Case {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let named = text.split_once(':').ok_or(BadName)?;
        let (data_layout, text) = match DataLayout::by_name(named.0) {
            Some(data_layout) => (data_layout, named.1),
            None => (DataLayout::Log, text),
        };
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or(BadName);
        let (kind, seed, rest) = (part()?, number(part()?)?, part()?);
        match kind {
            "sequence" => match number(rest)? {
                index if index < ace::SEQUENCES => Ok(Self::Sequence { data_layout, seed, index }),
                _ => Err(BadName),
            },
            "world" => Ok(Self::World { data_layout, seed, steps: parse_steps(rest)? }),
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
            Case::Sequence { data_layout: DataLayout::Log, seed: 7, index: 12 },
            Case::World {
                data_layout: DataLayout::GreedySpace,
                seed: 1 << 60,
                steps: vec![0, 1, 2, 9, 11, 12],
            },
            Case::World { data_layout: DataLayout::Log, seed: 3, steps: vec![] },
        ];
        for case in cases {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        for name in ["", "sequence:1", "sequence:1:99999999", "world:1:3", "word:1:0-1"] {
            assert_eq!(name.parse::<Case>(), Err(BadName), "{name}");
        }
    }
}

//! Crash states: what a device may hold when the power goes.
//!
//! Owns: what may become of each request that had not been flushed.
//! Promises: everything before the last flush is there; of what came after it any part, whatever
//! its order, torn at sectors or at blocks, with anything in the sectors that did not arrive.
//! Never: looks at what the blocks mean.

use std::ops::Range;

use sfs_device::{BLOCK_SIZE, BlockRange, Event};

use crate::image::Image;
use crate::model::random::Random;

/// Requests between two flushes of which every subset is a state: so many at most. Of longer ones
/// a sample is.
pub const WHOLE_EPOCH_MAX: usize = 12;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it arrived.
    Lost,
    /// All of it did.
    Done,
    /// Some of its units did.
    Torn(Tear),
}

/// How a request was torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Bytes that arrive together: 512 or 4096.
    pub unit: usize,
    /// What is where nothing arrived.
    pub filler: Filler,
    /// Says which units arrived.
    pub seed: u64,
}

/// What is in a unit that was to be written, and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// What was there before: stale data of an earlier life of the segment, often.
    Stale,
    /// Zeros, as an erased flash page may read.
    Zeros,
    /// Anything.
    Garbage,
}

/// A moment at which the power goes: after some requests since the last flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The requests since the last flush, by their place in the history.
    pub epoch: Range<usize>,
    /// What became of each.
    pub fates: Vec<Fate>,
}

impl Crash {
    /// Requests that must have been issued for this to be on the device.
    pub fn issued_min(&self) -> usize {
        let last = self.fates.iter().rposition(|fate| *fate != Fate::Lost);
        self.epoch.start + last.map_or(0, |last| last + 1)
    }

    /// What the device holds, if it held `durable` at the last flush.
    pub fn image(&self, durable: &Image, events: &[Event]) -> Image {
        let image = durable.clone();
        for (event, fate) in events[self.epoch.clone()].iter().zip(&self.fates) {
            apply(&image, event, *fate);
        }
        image
    }

    /// A random one of this epoch: some requests lost, some torn.
    pub fn random(epoch: Range<usize>, random: &mut Random) -> Self {
        let (share, tears) = (random.below(5), random.one_in(2));
        let fate = |random: &mut Random| match random.below(4) {
            dice if dice >= share => Fate::Lost,
            _ if tears && random.one_in(2) => Fate::Torn(Tear::random(random)),
            _ => Fate::Done,
        };
        let fates = epoch.clone().map(|_| fate(random)).collect();
        Self { epoch, fates }
    }
}

impl Tear {
    fn random(random: &mut Random) -> Self {
        Self {
            unit: random.pick(&[512, BLOCK_SIZE]),
            filler: random.pick(&[Filler::Stale, Filler::Zeros, Filler::Garbage]),
            seed: random.draw(),
        }
    }
}

/// Does to `image` what arrived of `event`.
pub fn apply(image: &Image, event: &Event, fate: Fate) {
    match (event, fate) {
        (_, Fate::Lost) | (Event::Flush, _) => {}
        (Event::Write { range, content, .. }, Fate::Done) => {
            image.put(range.address, content.as_ref().expect("contents are recorded"));
        }
        (Event::Write { range, content, .. }, Fate::Torn(tear)) => {
            let content = content.as_ref().expect("contents are recorded");
            tear_range(image, range, tear, |index| Some(&content[index].0));
        }
        (Event::Discard { range }, Fate::Done) => image.clear(range.address, range.block_count),
        (Event::Discard { range }, Fate::Torn(tear)) => tear_range(image, range, tear, |_| None),
    }
}

/// Writes part of `extent`. Where there is nothing new, as for a discard, what was let go is gone
/// in some units, and is whatever the filler says.
fn tear_range<'a>(
    image: &Image,
    range: &BlockRange,
    tear: Tear,
    new: impl Fn(usize) -> Option<&'a [u8; BLOCK_SIZE]>,
) {
    let mut random = Random::new(tear.seed);
    // All, nearly all, half, or hardly any of the units arrive.
    let odds = random.pick(&[1, 2, 8, 16]);
    for index in 0..range.block_count as usize {
        image.edit(range.address + index as u64, |bytes| {
            for (unit_no, unit) in bytes.chunks_exact_mut(tear.unit).enumerate() {
                let arrives = random.below(16) < odds;
                match new(index) {
                    Some(new) if arrives => {
                        unit.copy_from_slice(&new[unit_no * tear.unit..][..tear.unit]);
                    }
                    None if arrives => unit.fill(0),
                    _ => fill(unit, tear.filler, &mut random),
                }
            }
        });
    }
}

fn fill(unit: &mut [u8], filler: Filler, random: &mut Random) {
    match filler {
        Filler::Stale => {}
        Filler::Zeros => unit.fill(0),
        Filler::Garbage => unit.copy_from_slice(&random.bytes(unit.len())),
    }
}

/// The requests between flushes, in order; the last may be empty.
pub fn epochs(events: &[Event]) -> Vec<Range<usize>> {
    let mut epochs = Vec::new();
    let mut start = 0;
    for (index, event) in events.iter().enumerate() {
        if *event == Event::Flush {
            epochs.push(start..index);
            start = index + 1;
        }
    }
    epochs.push(start..events.len());
    epochs
}

/// The crash states of an epoch: every subset of its requests, or of a long one `sample` random
/// ones beside every prefix; then each request torn in `tears` ways, after the others before it.
pub fn states_of(
    epoch: &Range<usize>,
    sample: usize,
    tears: usize,
    random: &mut Random,
) -> Vec<Crash> {
    let count = epoch.len();
    let crash = |fates| Crash { epoch: epoch.clone(), fates };
    let mut states = Vec::new();
    if count <= WHOLE_EPOCH_MAX {
        states.extend((0..1u64 << count).map(|subset| crash(fates_of(subset, count))));
    } else {
        let prefix = |len: usize| {
            let mut fates = vec![Fate::Lost; count];
            fates[..len].fill(Fate::Done);
            fates
        };
        states.extend((0..=count).map(|len| crash(prefix(len))));
        states.extend((0..sample).map(|_| Crash::random(epoch.clone(), random)));
    }
    for torn in 0..count {
        for _ in 0..tears {
            let mut fates = vec![Fate::Lost; count];
            fates[..torn].fill(Fate::Done);
            fates[torn] = Fate::Torn(Tear::random(random));
            // Others may have overtaken it, or are torn, too.
            fates[torn + 1..].iter_mut().for_each(|fate| {
                *fate = match random.below(8) {
                    0..=3 => Fate::Done,
                    4 => Fate::Torn(Tear::random(random)),
                    _ => Fate::Lost,
                };
            });
            states.push(crash(fates));
        }
    }
    states
}

/// Bit `i` of `subset` says whether request `i` arrived.
fn fates_of(subset: u64, count: usize) -> Vec<Fate> {
    (0..count).map(|i| if subset >> i & 1 == 1 { Fate::Done } else { Fate::Lost }).collect()
}

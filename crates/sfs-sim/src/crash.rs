//! Crash states: the possible contents of a device after a power cut.
//!
//! Every request before the last flush is complete. Of the requests after it, any subset is complete, lost or
//! torn. A torn request arrives in part, by sectors or blocks; the other units have stale data, zeros or
//! garbage. The content of blocks is not interpreted.

use std::ops::Range;

use sfs_device::{BLOCK_SIZE, BlockRange, Event};

use crate::image::CowImage;
use crate::model::random::SplitMix64;

/// Maximum number of requests between two flushes for which every subset is a state; longer epochs are
/// sampled.
pub const WHOLE_EPOCH_MAX: usize = 12;

/// Effect of a request on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEffect {
    /// No unit arrived.
    Lost,
    /// All units arrived.
    Done,
    /// Some units arrived.
    Torn(Tear),
}

/// Parameters of a torn request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Number of bytes that arrive together: 512 or 4096.
    pub unit: usize,
    /// Content of the units that did not arrive.
    pub filler: Filler,
    /// Seed that decides which units arrived.
    pub seed: u64,
}

/// Content of a unit that should have been written and did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// Previous content, often stale data of the segment's last use.
    Stale,
    /// Zeros, as an erased flash page may read.
    Zeros,
    /// Random bytes.
    Garbage,
}

/// Power cut in an epoch: the requests since the last flush, and the effect of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Indexes of the requests since the last flush in the recorded run.
    pub epoch: Range<usize>,
    /// Effect of each request of the epoch.
    pub effects: Vec<RequestEffect>,
}

impl Crash {
    /// Returns the number of requests of the run that must have been issued for this state.
    pub fn issued_min(&self) -> usize {
        let last = self.effects.iter().rposition(|effect| *effect != RequestEffect::Lost);
        self.epoch.start + last.map_or(0, |last| last + 1)
    }

    /// Makes the image of the device after the crash, from its content at the last flush.
    pub fn image(&self, durable: &CowImage, events: &[Event]) -> CowImage {
        let image = durable.clone();
        for (event, effect) in events[self.epoch.clone()].iter().zip(&self.effects) {
            apply(&image, event, *effect);
        }
        image
    }

    /// Draws a crash of this epoch: some requests lost, some torn.
    pub fn random(epoch: Range<usize>, random: &mut SplitMix64) -> Self {
        let (share, tears) = (random.below(5), random.one_in(2));
        let effect = |random: &mut SplitMix64| match random.below(4) {
            dice if dice >= share => RequestEffect::Lost,
            _ if tears && random.one_in(2) => RequestEffect::Torn(Tear::random(random)),
            _ => RequestEffect::Done,
        };
        let effects = epoch.clone().map(|_| effect(random)).collect();
        Self { epoch, effects }
    }
}

impl Tear {
    fn random(random: &mut SplitMix64) -> Self {
        Self {
            unit: random.pick(&[512, BLOCK_SIZE]),
            filler: random.pick(&[Filler::Stale, Filler::Zeros, Filler::Garbage]),
            seed: random.draw(),
        }
    }
}

/// Applies the part of `event` that arrived to `image`.
pub fn apply(image: &CowImage, event: &Event, effect: RequestEffect) {
    match (event, effect) {
        (_, RequestEffect::Lost) | (Event::Flush, _) => {}
        (Event::Write { range, content, .. }, RequestEffect::Done) => {
            image.put(range.address, content.as_ref().expect("contents are recorded"));
        }
        (Event::Write { range, content, .. }, RequestEffect::Torn(tear)) => {
            let content = content.as_ref().expect("contents are recorded");
            tear_range(image, range, tear, |index| Some(&content[index].0));
        }
        (Event::Discard { range }, RequestEffect::Done) => {
            image.clear(range.address, range.block_count)
        }
        (Event::Discard { range }, RequestEffect::Torn(tear)) => {
            tear_range(image, range, tear, |_| None)
        }
    }
}

/// Writes part of the units of `range`. For a discard, `new` returns `None`: the units that arrived are
/// cleared. All other units get the content of the filler.
fn tear_range<'a>(
    image: &CowImage,
    range: &BlockRange,
    tear: Tear,
    new: impl Fn(usize) -> Option<&'a [u8; BLOCK_SIZE]>,
) {
    let mut random = SplitMix64::new(tear.seed);
    // All units, half of them, or only a few arrive.
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

fn fill(unit: &mut [u8], filler: Filler, random: &mut SplitMix64) {
    match filler {
        Filler::Stale => {}
        Filler::Zeros => unit.fill(0),
        Filler::Garbage => unit.copy_from_slice(&random.bytes(unit.len())),
    }
}

/// Splits the events into epochs, the requests between two flushes, in order. The last one may be empty.
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

/// Returns the crash states of an epoch.
///
/// The states are every subset of the requests, or for a long epoch every prefix and `sample` random states.
/// Each request is also torn in `tears` ways, with all earlier requests complete.
pub fn states_of(
    epoch: &Range<usize>,
    sample: usize,
    tears: usize,
    random: &mut SplitMix64,
) -> Vec<Crash> {
    let count = epoch.len();
    let crash = |effects| Crash { epoch: epoch.clone(), effects };
    let mut states = Vec::new();
    if count <= WHOLE_EPOCH_MAX {
        states.extend((0..1u64 << count).map(|subset| crash(effects_of(subset, count))));
    } else {
        let prefix = |len: usize| {
            let mut effects = vec![RequestEffect::Lost; count];
            effects[..len].fill(RequestEffect::Done);
            effects
        };
        states.extend((0..=count).map(|len| crash(prefix(len))));
        states.extend((0..sample).map(|_| Crash::random(epoch.clone(), random)));
    }
    for torn in 0..count {
        for _ in 0..tears {
            let mut effects = vec![RequestEffect::Lost; count];
            effects[..torn].fill(RequestEffect::Done);
            effects[torn] = RequestEffect::Torn(Tear::random(random));
            // Later requests may have overtaken the torn one, or be torn as well.
            effects[torn + 1..].iter_mut().for_each(|effect| {
                *effect = match random.below(8) {
                    0..=3 => RequestEffect::Done,
                    4 => RequestEffect::Torn(Tear::random(random)),
                    _ => RequestEffect::Lost,
                };
            });
            states.push(crash(effects));
        }
    }
    states
}

/// Returns the effects of `count` requests: request `i` arrived if bit `i` of `subset` is set.
fn effects_of(subset: u64, count: usize) -> Vec<RequestEffect> {
    (0..count)
        .map(|i| if subset >> i & 1 == 1 { RequestEffect::Done } else { RequestEffect::Lost })
        .collect()
}

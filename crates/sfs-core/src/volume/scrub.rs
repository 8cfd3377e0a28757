//! Scrub: reads everything that the volume needs from the device, and verifies it.
//!
//! A scrub goes step by step through the copies of the superblock and the checkpoint slots (`scrub_fixed`), the summaries of
//! the log (`scrub_log`), and the tree in key order with the data of each leaf (`scrub_data`). No lock is held during a
//! request to the device, with two exceptions that `scrub_fixed` names. Nothing is repaired; damage is counted as that
//! of a read is. Leaves and data do not enter a cache.

use sfs_device::Block;
use zerocopy::FromZeros;

use super::Volume;
use super::scrub_log::{LogWalk, WalkedSegments};
use crate::format::{ErrorKind, Key};
use crate::request::{SCRUB_STEP_BLOCKS, ScrubDamage, ScrubStep};
use crate::tree::NodeNotCached;
use crate::{Error, Result};

/// Progress of a scrub.
pub struct Scrub {
    pub(super) phase: Phase,
    /// Key from which the tree is not verified yet.
    pub(super) from: Key,
    /// Ends of the chunks in each segment.
    pub(super) walked: WalkedSegments,
    /// Inner nodes on the path to the last leaf, which are verified.
    pub(super) path: Vec<NodeNotCached>,
    /// Memory for the blocks of one step.
    pub(super) memory: Vec<Block>,
}

/// The structures that the next step reads.
pub(super) enum Phase {
    /// Superblocks and checkpoint slots.
    Fixed,
    /// Summaries.
    Log(LogWalk),
    /// Nodes and data.
    Tree,
    /// Nothing.
    Done,
}

impl Scrub {
    /// Returns the key from which the tree is not verified yet: an interrupted scrub can be resumed there, even after another
    /// mount.
    pub fn position(&self) -> Key {
        self.from
    }

    /// Returns whether everything was read.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }
}

impl Volume {
    /// Begins a scrub that verifies the tree from `from` on: everything with [`Key::MIN`]. The other structures are always
    /// verified.
    ///
    /// # Errors
    ///
    /// `NoMemory`.
    pub fn begin_scrub(&self, from: Key) -> Result<Scrub> {
        Ok(Scrub {
            phase: Phase::Fixed,
            from,
            walked: WalkedSegments::default(),
            path: Vec::new(),
            memory: Block::new_vec_zeroed(SCRUB_STEP_BLOCKS).map_err(|_| Error::NoMemory)?,
        })
    }

    /// Returns the number of blocks to which the tree refers, its nodes included: those that a whole scrub verifies, if
    /// nothing changes meanwhile.
    pub fn live_blocks(&self) -> u64 {
        self.metadata.read().usage.live_blocks()
    }

    /// Returns a number that grows with each request of a user: background work yields to them.
    pub fn request_count(&self) -> u64 {
        self.space.request_count()
    }

    /// Does the next step of `scrub`. Damage is part of the result, and no error.
    pub fn scrub_step(&self, scrub: &mut Scrub) -> ScrubStep {
        let mut step = ScrubStep::default();
        match &mut scrub.phase {
            Phase::Fixed => {
                self.scrub_fixed(&mut scrub.memory, &mut step);
                scrub.phase = Phase::Log(LogWalk::default());
            }
            Phase::Log(walk) => {
                let is_over = self.scrub_log(walk, &mut scrub.walked, &mut scrub.memory, &mut step);
                if is_over {
                    scrub.phase = Phase::Tree;
                }
            }
            Phase::Tree => self.scrub_leaf(scrub, &mut step),
            Phase::Done => {}
        }
        step
    }

    /// Notes the failure to read the block at `at`, if `error` is damage or a failure of the device. The
    /// caller has counted it.
    pub(super) fn note_scrub_error(step: &mut ScrubStep, at: u64, error: &Error) {
        let kind = match error {
            Error::Corrupt(damage) => ErrorKind::of_corruption(damage),
            Error::Device(_) => ErrorKind::Read,
            _ => return,
        };
        step.damage.push(ScrubDamage { kind, at, owner: None });
    }
}

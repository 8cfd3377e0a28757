//! What a commit is asked for.
//!
//! Owns: the words for it.
//! Promises: each occasion has its own constructor, and with it what may be taken along and what has
//! to stay.
//! Never: knows what there is.

use std::collections::BTreeSet;

use crate::memory::BlockRef;

/// What a commit takes along, beside the delta and what has to go with it.
#[derive(Clone, Debug)]
pub(in crate::volume) enum Selection {
    /// All dirty blocks.
    All,
    /// Those of these files.
    Files(BTreeSet<u64>),
    /// So many, of the largest groups, to make room in the write buffer.
    Largest(usize),
}

/// A block that the cleaner moves.
#[derive(Clone, Debug)]
pub(in crate::volume) struct Move {
    /// The mapping that its summary names.
    pub(in crate::volume) named: (u64, u32),
    /// Where it is.
    pub(in crate::volume) address: u64,
    /// Of its content.
    pub(in crate::volume) checksum: u32,
    pub(in crate::volume) memory: BlockRef,
}

/// What is to be committed.
pub(in crate::volume) struct Request<'a> {
    pub(in crate::volume) selection: &'a Selection,
    pub(in crate::volume) moves: &'a [Move],
    pub(in crate::volume) reserve: Reserve,
    pub(in crate::volume) release: Releases,
    /// It goes whether or not there is room for what should go with its delta.
    pub(in crate::volume) urgent: bool,
}

/// Which Drained segments a batch says are Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::volume) enum Releases {
    /// None.
    None,
    /// Those that there are, if it is written anyway.
    Along,
    /// Those that there are: that is what it is written for.
    Alone,
}

impl<'a> Request<'a> {
    /// What `selection` says.
    pub(in crate::volume) fn of(selection: &'a Selection) -> Self {
        let (reserve, release) = (Reserve::Cleaning, Releases::Along);
        Self { selection, moves: &[], reserve, release, urgent: false }
    }

    /// What the cleaner moves.
    pub(in crate::volume) fn moving(moves: &'a [Move]) -> Self {
        Self { moves, ..Self::urgent(Releases::Along) }
    }

    /// Which segments are Clean.
    pub(in crate::volume) fn release() -> Self {
        Self::urgent(Releases::Alone)
    }

    /// What has to go before a checkpoint. It releases nothing: the checkpoint may open what it
    /// does, and discards what is released only when it is durable.
    pub(in crate::volume) fn ahead() -> Self {
        Self::urgent(Releases::None)
    }

    fn urgent(release: Releases) -> Self {
        let (selection, reserve) = (&NOTHING, Reserve::Checkpoint);
        Self { selection, moves: &[], reserve, release, urgent: true }
    }
}

/// No file.
static NOTHING: Selection = Selection::Files(BTreeSet::new());

/// Which segments a batch leaves Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::volume) enum Reserve {
    /// Those that it takes to clean another, for whoever comes next.
    Cleaning,
    /// Those of the next checkpoint.
    Checkpoint,
}

/// Whether a batch took all that was selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::volume) enum Progress {
    /// It did.
    #[default]
    Done,
    /// There was no room for the rest.
    More,
}

//! Writes in their order, and the contents that are right after a crash.

use sfs_device::{BLOCK_SIZE, Block};

/// Content of a block: the number of the write that has written it, or 0.
pub(crate) type Stamp = u64;

#[derive(Clone, Debug)]
enum Event {
    Write {
        address: u64,
        count: u64,
        stamp: Stamp,
    },
    Discard {
        address: u64,
        count: u64,
    },
    /// The volume was found like this after a crash with its cache. A block that may be discarded has no defined content still.
    Found(Vec<Option<Stamp>>),
}

/// Events since the volume was made.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    blocks: usize,
    events: Vec<Event>,
    stamp: Stamp,
    /// Number of events that the local cache has durably.
    pub(crate) flushed: usize,
    /// Number of events that the store has.
    pub(crate) uploaded: usize,
}

impl Model {
    pub(crate) fn new(blocks: u64) -> Self {
        Self { blocks: blocks as usize, events: Vec::new(), stamp: 0, flushed: 0, uploaded: 0 }
    }

    /// Number of events.
    pub(crate) fn now(&self) -> usize {
        self.events.len()
    }

    /// Returns the content of the next write.
    pub(crate) fn content(&mut self, address: u64, count: u64) -> (Stamp, Box<[Block]>) {
        self.stamp += 1;
        (self.stamp, content(self.stamp, address, count))
    }

    pub(crate) fn write(&mut self, address: u64, count: u64, stamp: Stamp) {
        self.events.push(Event::Write { address, count, stamp });
    }

    pub(crate) fn discard(&mut self, address: u64, count: u64) {
        self.events.push(Event::Discard { address, count });
    }

    /// Returns the state after the first `count` events: `None` for a block whose content is not defined.
    fn state(&self, count: usize) -> Vec<Option<Stamp>> {
        let mut state = vec![Some(0); self.blocks];
        self.events[..count].iter().for_each(|event| apply(&mut state, event));
        state
    }

    /// Checks that `found` is the state after all events.
    pub(crate) fn check_now(&self, address: u64, found: &[Block]) -> Result<(), String> {
        let state = self.state(self.now());
        for (at, block) in (address..).zip(found) {
            let stamp = stamp(at, block)?;
            if state[at as usize].is_some_and(|expected| expected != stamp) {
                return Err(format!("block {at}: {stamp} instead of {:?}", state[at as usize]));
            }
        }
        Ok(())
    }

    /// Checks a volume that was found without its cache: it is a state that it has had, with all that was uploaded. Later events are
    /// forgotten.
    pub(crate) fn check_lost(&mut self, found: &[Block]) -> Result<(), String> {
        let stamps = stamps(found)?;
        let mut state = self.state(self.uploaded);
        let mut at = self.uploaded;
        let mut wrong = difference(&state, &stamps);
        while wrong.is_some() && at < self.now() {
            apply(&mut state, &self.events[at]);
            at += 1;
            wrong = difference(&state, &stamps);
        }
        if let Some(wrong) = wrong {
            return Err(format!("without the cache, {} events uploaded: {wrong}", self.uploaded));
        }
        self.events.truncate(at);
        (self.uploaded, self.flushed) = (at, at);
        Ok(())
    }

    /// Notes what was found, where it is right by either rule. Earlier states stay possible without the cache. A block that may be
    /// discarded has no defined content still: the store and the cache may have different ones.
    pub(crate) fn note_found(&mut self, found: &[Block]) -> Result<(), String> {
        let mut found = stamps(found)?.into_iter().map(Some).collect::<Vec<_>>();
        for count in self.uploaded.min(self.flushed)..=self.now() {
            for (found, stamp) in found.iter_mut().zip(self.state(count)) {
                *found = stamp.and(*found);
            }
        }
        self.events.push(Event::Found(found));
        self.flushed = self.now();
        Ok(())
    }

    /// Checks a volume that was found with its cache: each block has what the last flush has covered, or something later.
    pub(crate) fn check_kept(&mut self, found: &[Block]) -> Result<(), String> {
        let stamps = stamps(found)?;
        let allowed = self.allowed();
        for (at, stamp) in stamps.iter().enumerate() {
            check_block(at, *stamp, &allowed[at])?;
        }
        let is_defined = |at: usize| !allowed[at].contains(&None);
        let found = stamps.iter().enumerate().map(|(at, stamp)| is_defined(at).then_some(*stamp));
        self.events.push(Event::Found(found.collect()));
        self.flushed = self.now();
        Ok(())
    }

    /// Checks what a cache of the past shows: each block has what the last flush had covered then, or something later. Blocks that
    /// cannot be read are left out.
    pub(crate) fn check_left_behind(&self, found: &[(u64, Block)]) -> Result<(), String> {
        let allowed = self.allowed();
        found.iter().try_for_each(|(at, block)| {
            check_block(*at as usize, stamp(*at, block)?, &allowed[*at as usize])
        })
    }

    /// Returns for each block the stamps that it may have with its cache: that of the last flush, and all later ones.
    fn allowed(&self) -> Vec<Vec<Option<Stamp>>> {
        let mut allowed =
            self.state(self.flushed).into_iter().map(|stamp| vec![stamp]).collect::<Vec<_>>();
        for event in &self.events[self.flushed..] {
            let mut touched = vec![Some(Stamp::MAX); self.blocks];
            apply(&mut touched, event);
            for (allowed, stamp) in allowed.iter_mut().zip(touched) {
                if stamp != Some(Stamp::MAX) {
                    allowed.push(stamp);
                }
            }
        }
        allowed
    }
}

fn check_block(at: usize, stamp: Stamp, allowed: &[Option<Stamp>]) -> Result<(), String> {
    match allowed.contains(&Some(stamp)) || allowed.contains(&None) {
        true => Ok(()),
        false => Err(format!("with the cache, block {at}: {stamp} of {allowed:?}")),
    }
}

/// Returns blocks with this stamp, for this address.
pub(crate) fn content(stamp: Stamp, address: u64, count: u64) -> Box<[Block]> {
    let mut blocks = Block::zeroed(count as usize);
    for (at, block) in (address..).zip(&mut blocks) {
        for pair in block.0.chunks_exact_mut(16) {
            pair[..8].copy_from_slice(&stamp.to_le_bytes());
            pair[8..].copy_from_slice(&at.to_le_bytes());
        }
    }
    blocks
}

fn apply(state: &mut [Option<Stamp>], event: &Event) {
    let mut set = |address: u64, count: u64, stamp| {
        state[address as usize..(address + count) as usize].fill(stamp);
    };
    match event {
        Event::Write { address, count, stamp } => set(*address, *count, Some(*stamp)),
        Event::Discard { address, count } => set(*address, *count, None),
        Event::Found(found) => state.copy_from_slice(found),
    }
}

fn difference(state: &[Option<Stamp>], found: &[Stamp]) -> Option<String> {
    let at = state
        .iter()
        .zip(found)
        .position(|(state, found)| state.is_some_and(|state| state != *found))?;
    Some(format!("block {at}: {} instead of {:?}", found[at], state[at]))
}

fn stamps(found: &[Block]) -> Result<Vec<Stamp>, String> {
    (0..).zip(found).map(|(at, block)| stamp(at, block)).collect()
}

/// Returns the stamp of a block, all of which has to have it.
fn stamp(at: u64, block: &Block) -> Result<Stamp, String> {
    let stamp = Stamp::from_le_bytes(block.0[..8].try_into().expect("8 bytes"));
    let address = if stamp == 0 { 0 } else { at };
    let is_whole = block
        .0
        .chunks_exact(16)
        .all(|pair| pair[..8] == stamp.to_le_bytes() && pair[8..] == address.to_le_bytes());
    match is_whole {
        true => Ok(stamp),
        false => Err(format!("block {at} of {BLOCK_SIZE} bytes is torn, or of another address")),
    }
}

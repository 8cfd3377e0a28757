//! Uploading cuts, one after the other.
//!
//! A cut becomes data objects, one for each region of which much was written, and a log object that names them, which is sent once they are
//! stored. The regions of the next cut follow those of the one before without a pause: its log object and theirs are under way together.
//! Log objects are sent one at a time, in the order of the cuts, and a cut is part of the volume once its own is stored.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::{mem, vec};

use sfs_device::Block;

use super::demand::Taken;
use super::dirty::{DirtyRegions, runs};
use super::log_record::{LogContent, Record};
use super::upload::{Commit, Cut};
use super::{Failure, ObjectDevice};
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::store::ObjectStore;
use crate::writer::{Upload, Uploads};

/// Largest number of blocks of pieces in a log object: 16 MiB. Another cut is made while those that wait have fewer.
const PIECES_MAX: u64 = 4 << 10;
/// Largest number of cuts that follow each other, so that deletions have their turn.
const CUTS_MAX: usize = 16;

/// A cut whose log object is not stored.
struct Pending {
    content: LogContent,
    /// Regions that are still to be read.
    regions: vec::IntoIter<u64>,
    /// Data objects that are not stored yet.
    under_way: u64,
    /// Number of the last data object.
    last_data: u64,
    /// The records of the log object, once it is under way.
    sent: Option<Vec<Record>>,
    /// Regions that have pieces, and the blocks of all pieces.
    pieces: Vec<u64>,
    blocks: u64,
    /// Requests of threads that the cut answers.
    asked: Option<Taken>,
}

impl Pending {
    fn is_stored(&self) -> bool {
        self.regions.as_slice().is_empty()
            && (self.under_way == 0 || mutated(Mutant::LogBeforeData))
    }
}

/// Outcome of uploads.
pub(super) struct Uploaded {
    /// Records that have no log object: a manifest has them.
    pub(super) records: Vec<Record>,
    /// Objects that those of the log have replaced.
    pub(super) superseded: Vec<ObjectName>,
    /// Log objects, and the blocks of their pieces.
    pub(super) logs: Vec<ObjectName>,
    pub(super) log_blocks: u64,
    /// Why the local cache could not be read.
    pub(super) failure: Option<Failure>,
}

/// Cuts that are being uploaded.
pub(super) struct Cuts<'a, S> {
    device: &'a ObjectDevice<S>,
    commit: Commit,
    /// Log objects before, and their blocks; `None` if no other cut follows the first.
    before: Option<(u64, u64)>,
    count: usize,
    /// The oldest first; all but the last one are read.
    pending: VecDeque<Pending>,
    uploaded: Uploaded,
    memory: Rc<Cell<Box<[Block]>>>,
}

/// The content of a region, whose memory is that of the next one afterwards.
pub(super) struct RegionBytes {
    blocks: Box<[Block]>,
    memory: Rc<Cell<Box<[Block]>>>,
}

impl AsRef<[u8]> for RegionBytes {
    fn as_ref(&self) -> &[u8] {
        Block::bytes_of(&self.blocks)
    }
}

impl Drop for RegionBytes {
    fn drop(&mut self) {
        self.memory.set(mem::take(&mut self.blocks));
    }
}

impl<'a, S: ObjectStore + Clone> Cuts<'a, S> {
    /// Returns none yet. Others follow the first one if the number of log objects before, and of their blocks, is not `None`.
    pub(super) fn new(
        device: &'a ObjectDevice<S>,
        commit: Commit,
        before: Option<(u64, u64)>,
    ) -> Self {
        let uploaded = Uploaded {
            records: Vec::new(),
            superseded: Vec::new(),
            logs: Vec::new(),
            log_blocks: 0,
            failure: None,
        };
        let (pending, memory) = Default::default();
        Self { device, commit, before, count: 0, pending, uploaded, memory }
    }

    /// Adds a cut, which has what threads have asked for. Those before are read. One that the local cache does not give is left out.
    pub(super) fn add(&mut self, cut: Cut, asked: Option<Taken>) {
        let mut content = LogContent::default();
        let (pieces, whole) = self.split(cut.dirty);
        for (region, bits) in &pieces {
            match self.device.snapshot(*region, Box::default()) {
                Ok(blocks) => {
                    let begin = self.device.local.shape.blocks(*region).start;
                    for run in runs(bits) {
                        let of = &blocks[run.start as usize..run.end as usize];
                        content.piece(begin + run.start, of);
                    }
                }
                Err(failure) => {
                    self.uploaded.failure = Some(failure);
                    return;
                }
            }
        }
        content.records.extend(cut.zero.iter().map(|region| Record::Zero { region: *region }));
        self.count += 1;
        self.pending.push_back(Pending {
            pieces: pieces.into_keys().collect(),
            blocks: content.block_count(),
            content,
            regions: whole.into_iter(),
            under_way: 0,
            last_data: 0,
            sent: None,
            asked,
        });
    }

    /// Divides what a cut has into regions of which pieces go to the log object, and regions that become data objects.
    fn split(&self, dirty: DirtyRegions) -> (DirtyRegions, Vec<u64>) {
        let mut left = PIECES_MAX;
        let mut pieces = BTreeMap::new();
        let mut whole = Vec::new();
        for (region, bits) in dirty {
            let count = bits.count_ones(..) as u64;
            let is_small = count <= self.device.local.shape.region_blocks / 2 && count <= left;
            if !matches!(self.commit, Commit::Manifest(_)) && is_small {
                left -= count;
                pieces.insert(region, bits);
            } else {
                whole.push(region);
            }
        }
        (pieces, whole)
    }

    /// Ends the uploads.
    pub(super) fn end(mut self) -> Uploaded {
        if let Some(last) = self.pending.pop_front() {
            self.uploaded.records = last.content.records;
        }
        self.uploaded
    }

    fn try_next(&mut self, data: (Epoch, u64)) -> Result<Option<Upload<RegionBytes>>, Failure> {
        loop {
            if let Some(log) = self.next_log() {
                return Ok(Some(Upload::Log(log)));
            }
            if let Some(bytes) = self.next_region(data)? {
                return Ok(Some(Upload::Data(bytes)));
            }
            // The last regions were perhaps zero.
            if let Some(log) = self.next_log() {
                return Ok(Some(Upload::Log(log)));
            }
            let Some(asked) = self.what_follows() else { return Ok(None) };
            self.add(self.device.cut(self.commit), asked);
            if self.uploaded.failure.is_some() {
                return Ok(None);
            }
        }
    }

    /// Returns the next log object, if its cut is the oldest one, and all its data objects are stored.
    fn next_log(&mut self) -> Option<Vec<u8>> {
        if matches!(self.commit, Commit::Manifest(_)) {
            return None;
        }
        loop {
            let oldest = self.pending.front_mut().filter(|oldest| oldest.is_stored())?;
            if oldest.sent.is_some() {
                return None;
            }
            let content = mem::take(&mut oldest.content);
            oldest.sent = Some(content.records.clone());
            if !content.records.is_empty() {
                return Some(content.encode());
            }
            // Nothing was written.
            self.end_oldest();
        }
    }

    /// Reads the next region of the last cut that is not zero.
    fn next_region(&mut self, data: (Epoch, u64)) -> Result<Option<RegionBytes>, Failure> {
        let Some(last) = self.pending.back_mut() else { return Ok(None) };
        for region in last.regions.by_ref() {
            let blocks = self.device.snapshot(region, self.memory.take())?;
            let bytes = RegionBytes { blocks, memory: self.memory.clone() };
            if bytes.blocks.iter().all(|block| *block == Block::ZERO) {
                last.content.records.push(Record::Zero { region });
                continue;
            }
            last.content.records.push(Record::Whole { region, data });
            (last.under_way, last.last_data) = (last.under_way + 1, data.1);
            return Ok(Some(bytes));
        }
        Ok(None)
    }

    /// Returns what threads have asked for, if another cut follows now. None follows one that a thread waits for, or whose log object is not sent though
    /// it could be, and none when there is something to be joined.
    fn what_follows(&self) -> Option<Option<Taken>> {
        let (objects, blocks) = self.before?;
        let objects = objects + (self.uploaded.logs.len() + self.pending.len()) as u64;
        let of_pending = self.pending.iter().map(|of| of.blocks).sum::<u64>();
        let log_size = (objects, blocks + self.uploaded.log_blocks + of_pending);
        let holds_up = |of: &Pending| {
            let is_waited_for = of.asked.as_ref().is_some_and(|asked| asked.is_waited_for);
            // Its log object waits for the one before.
            let is_ready = of.is_stored() && of.sent.is_none();
            is_waited_for || is_ready
        };
        let may_follow = self.count < CUTS_MAX
            && of_pending < PIECES_MAX
            && !self.pending.iter().any(holds_up)
            && !self.device.is_long(log_size)
            && self.device.failure().is_none()
            && matches!(self.device.evict(0), Ok(true));
        if !may_follow {
            return None;
        }
        if let Some(asked) = self.device.demand.take_upload() {
            return Some(Some(asked));
        }
        // What a close would append follows at once.
        let regions = self.pending.iter().flat_map(|of| &of.pieces).copied();
        let is_last = !self.pending.is_empty()
            && self.device.demand.has_ended()
            && !self.device.state.lock().open.is_empty()
            && self.device.may_leave_log((log_size.0 + 1, log_size.1), regions);
        is_last.then_some(None)
    }

    /// Notes that the oldest cut is part of the volume.
    fn end_oldest(&mut self) {
        let Some(Pending { sent, blocks, asked, .. }) = self.pending.pop_front() else { return };
        let superseded = self.device.apply_records(&sent.unwrap_or_default());
        self.uploaded.superseded.extend(superseded);
        self.uploaded.log_blocks += blocks;
        if self.pending.is_empty() {
            self.device.state.lock().frozen = None;
        }
        asked.iter().for_each(|asked| self.device.demand.note_done(asked));
    }
}

impl<S: ObjectStore + Clone> Uploads for Cuts<'_, S> {
    type Content = RegionBytes;

    fn next(&mut self, data: (Epoch, u64)) -> Option<Upload<RegionBytes>> {
        // The cache is not asked any more; the cuts that are read become part of the volume.
        if self.uploaded.failure.is_some() {
            return self.next_log().map(Upload::Log);
        }
        self.try_next(data).unwrap_or_else(|failure| {
            self.pending.pop_back();
            self.uploaded.failure = Some(failure);
            self.next_log().map(Upload::Log)
        })
    }

    fn stored(&mut self, name: ObjectName) {
        match name {
            ObjectName::Data(_, number) => {
                // Numbers rise from one cut to the next.
                match self.pending.iter_mut().find(|of| number <= of.last_data) {
                    Some(of) => of.under_way -= 1,
                    None => {
                        let may_be = self.uploaded.failure.is_some();
                        assert!(may_be || mutated(Mutant::LogBeforeData), "no cut has {name}");
                    }
                }
            }
            _ => {
                self.uploaded.logs.push(name);
                self.end_oldest();
            }
        }
    }
}

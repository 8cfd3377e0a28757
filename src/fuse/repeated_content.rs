//! Repeating what recorded changes have done to the content of files.
//!
//! A part of a change that a later one writes over, cuts off or clears need not be repeated. On a volume that is nearly full it must
//! not be: both would need space at the same time. A part for which there is no space is left for the end: nothing that follows
//! touches it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sfs_core::Error;
use sfs_core::format::{Inode, Timestamp};
use sfs_core::request::AttributeChanges;
use sfs_device::BLOCK_SIZE;
use sfs_fuse::{FuseOperation, FuseRequest, Reply, WriteArgs};

use super::byte_ranges::ByteRanges;
use super::fuse_shell::{FuseShell, caller};
use super::reply_result::{OperationResult, Refusal};
use crate::survival::RecordedRequest;

/// Change with its request.
pub(super) type Recorded<'a> = (&'a FuseRequest<'a>, &'a RecordedRequest);

/// Bytes of a file.
type Part = Range<u64>;

/// Part of a change for which there was no space, with the position of the change.
type LeftPart = (usize, Part);

/// Space for each change beside its data, in bytes: blocks that it has in part, and what the log needs.
const LEN_BESIDE_DATA: u64 = 4 * BLOCK_SIZE as u64;

/// Flag of fallocate(2) for a hole.
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE.cast_unsigned();

/// Content of files that is repeated.
pub(super) struct Contents {
    /// Parts of each change that no later one undoes, by its position.
    lasting: HashMap<usize, Vec<Part>>,
    /// Position of the last change that leaves a file empty, by its inode.
    emptied: HashMap<u64, usize>,
    /// Positions of changes of attributes after which the same attribute is set or removed once more.
    overridden: HashSet<usize>,
    /// Parts for which there was no space, by the position of the change.
    left: Vec<LeftPart>,
    /// `true` if only those parts are repeated.
    pub(super) is_sparing: bool,
}

impl Contents {
    /// Returns the content that `recorded` makes, on a volume with `free` bytes.
    pub(super) fn new(recorded: &[Recorded<'_>], free: u64) -> Self {
        let mut later: HashMap<u64, ByteRanges> = HashMap::new();
        let mut cuts: HashMap<u64, u64> = HashMap::new();
        let mut holes: HashMap<u64, ByteRanges> = HashMap::new();
        let mut lasting = HashMap::new();
        let (mut named, mut overridden) = (HashSet::new(), HashSet::new());
        let (mut needed, mut emptied) = (0u64, HashMap::new());
        for (at, &of @ (request, _)) in recorded.iter().enumerate().rev() {
            let later = later.entry(request.node).or_default();
            let cut = cuts.entry(request.node).or_insert(u64::MAX);
            let holes = holes.entry(request.node).or_default();
            if let Some(range) = range_of(of) {
                let parts = match reserves(request) {
                    // Blocks that are written later keep their reservation until then.
                    true => holes.without(&(range.start..range.end.min(*cut))),
                    false => later.without(&range),
                };
                lasting.insert(at, parts);
                let len = range.end - range.start;
                needed = needed.saturating_add(len).saturating_add(LEN_BESIDE_DATA);
            }
            if let Some(name) = attribute_of(request) {
                if named.contains(&(request.node, name)) {
                    overridden.insert(at);
                }
                if is_done(of) {
                    named.insert((request.node, name));
                }
            }
            // The blocks of a refused cached write that did fit are not known, and count for nothing here: what is below them is
            // written first, and they go over it. If a part below is left for the end, it goes over them. Both are right: the
            // kernel, and by it the program, got an error for the whole write, so either content may be there, as after any failed
            // write-back, until a sync succeeds. What such a sync covers is not repeated.
            if is_done(of) {
                if let Some(size) = size_set(of).filter(|_| !grows(of)) {
                    *cut = size.min(*cut);
                    if size == 0 {
                        emptied.entry(request.node).or_insert(at);
                    }
                    later.add(size..u64::MAX);
                } else if let Some(range) = range_of(of).filter(|_| !reserves(request)) {
                    holes.add(hole_of(of));
                    later.add(range);
                }
            }
        }
        // Blocks that are written once more need their space twice until the next commit.
        let is_sparing = free < needed.saturating_mul(2);
        Self { lasting, emptied, overridden, left: Vec::new(), is_sparing }
    }

    /// Returns whether nothing is left of change `at` of the content of inode `node`, as it leaves the file empty, or a later one does.
    pub(super) fn is_emptied(&self, at: usize, node: u64) -> bool {
        self.emptied.get(&node).is_some_and(|emptied| at <= *emptied)
    }

    /// Returns whether a later change sets or removes the attribute of change `at`.
    pub(super) fn is_attribute_changed_later(&self, at: usize) -> bool {
        self.overridden.contains(&at)
    }

    /// Returns the parts of change `at` of `range` that are to be repeated.
    fn parts(&self, at: usize, range: Part) -> Vec<Part> {
        match self.is_sparing {
            true => self.lasting.get(&at).cloned().unwrap_or_default(),
            false => vec![range],
        }
    }

    /// Leaves `part` of change `at` for the end.
    fn leave(&mut self, at: usize, part: &Part) {
        let lasting = self.lasting.get(&at).map_or(&[][..], Vec::as_slice);
        let both = |of: &Part| of.start.max(part.start)..of.end.min(part.end);
        self.left.extend(lasting.iter().map(both).filter(|of| !of.is_empty()).map(|of| (at, of)));
    }
}

impl FuseShell {
    /// Repeats what change `at` of `recorded`, a write or fallocate(2), does to the content of its file. It clears privileges only with
    /// `kills`. Nothing is done for a file that is gone.
    pub(super) fn repeat_content(
        &self,
        contents: &mut Contents,
        (at, recorded): (usize, Recorded<'_>),
        kills: bool,
    ) -> Result<(), Refusal> {
        let (request, change) = recorded;
        let Some(range) = range_of(recorded) else {
            return self.clear_privileges_again(request, kills);
        };
        if self.volume.attributes(request.node).is_err() {
            return Ok(());
        }
        let parts = contents.parts(at, range.clone());
        if change.is_refused() {
            parts.iter().for_each(|part| self.write_what_fits_again(request, part));
            return Ok(());
        }
        for part in &parts {
            match self.repeat_part(request, part, kills) {
                Err(Refusal::Failed(Error::NoSpace)) => contents.leave(at, part),
                repeated => repeated.map(drop)?,
            }
        }
        self.repeat_size(request, kills)
    }

    /// Repeats a part of a change, and once more if it has no space before everything is in the log.
    fn repeat_part(&self, request: &FuseRequest<'_>, part: &Part, kills: bool) -> OperationResult {
        match self.change_part(request, part, kills) {
            Err(Refusal::Failed(Error::NoSpace)) => {
                let _ = self.volume.write_for_handover();
                self.change_part(request, part, kills)
            }
            repeated => repeated,
        }
    }

    fn change_part(&self, request: &FuseRequest<'_>, part: &Part, kills: bool) -> OperationResult {
        match &request.operation {
            FuseOperation::Write(write) => {
                let data = data_of(write, part);
                // A loss would be reported to programs, and what has waited for a sync has its reply from the journal.
                let only_data = WriteArgs {
                    offset: part.start,
                    data,
                    open_flags: 0,
                    from_cache: false,
                    kill_privileges: kills,
                    ..*write
                };
                self.write(request, &only_data)
            }
            FuseOperation::Fallocate { mode, .. } => {
                // The length follows.
                let mode = mode | libc::FALLOC_FL_KEEP_SIZE.cast_unsigned();
                self.allocate(request, (part.start, part.end - part.start), mode, kills)
            }
            _ => Ok(Reply::Done),
        }
    }

    /// Does what a change does beside the content: its file is as long as before, and has no more privileges.
    fn repeat_size(&self, request: &FuseRequest<'_>, kills: bool) -> Result<(), Refusal> {
        let before = self.volume.attributes(request.node)?;
        let size = size_reached(request).filter(|size| *size > before.size);
        if size.is_none() && !(kills && self.has_privileges(request.node)?) {
            return Ok(());
        }
        let changes = AttributeChanges { size, kill_privileges: kills, ..only_content(&before) };
        self.set_attributes_again(request, &changes)
    }

    /// Clears the privileges of the file of `request` if a change of its content, which is left as it is, did so with `kills`: a
    /// fdatasync(2) covers the content alone, so that the mode before is set once more.
    pub(super) fn clear_privileges_again(
        &self,
        request: &FuseRequest<'_>,
        kills: bool,
    ) -> Result<(), Refusal> {
        let Ok(before) = self.volume.attributes(request.node) else { return Ok(()) };
        if !kills || !self.has_privileges(request.node)? {
            return Ok(());
        }
        let changes = AttributeChanges { kill_privileges: true, ..only_content(&before) };
        self.set_attributes_again(request, &changes)
    }

    /// Repeats a truncation to `size` bytes, and nothing else that the change does.
    pub(super) fn repeat_truncation(
        &self,
        request: &FuseRequest<'_>,
        size: u64,
    ) -> Result<(), Refusal> {
        let Ok(before) = self.volume.attributes(request.node) else { return Ok(()) };
        let changes = AttributeChanges { size: Some(size), ..only_content(&before) };
        self.set_attributes_again(request, &changes)
    }

    /// Sets the time of the last change of the file of `request`, and nothing else.
    pub(super) fn touch(&self, request: &FuseRequest<'_>, now: Timestamp) {
        if let Ok(before) = self.volume.attributes(request.node) {
            let changes = AttributeChanges { ctime: Some(now), ..only_content(&before) };
            let _ = self.volume.set_attributes(request.node, &changes, &caller(request));
        }
    }

    fn set_attributes_again(
        &self,
        request: &FuseRequest<'_>,
        changes: &AttributeChanges,
    ) -> Result<(), Refusal> {
        let set = || self.volume.set_attributes(request.node, changes, &caller(request));
        match set() {
            Err(Error::NoSpace) => {
                let _ = self.volume.write_for_handover();
                match set() {
                    Err(Error::NoSpace) => self.volume.with_withheld_space(set)?,
                    changed => changed?,
                };
            }
            changed => drop(changed?),
        }
        Ok(())
    }

    /// Writes those blocks of `part` again for which there is space, of a write that was refused because there was not for all. The
    /// kernel has the error, and programs have it from the kernel.
    fn write_what_fits_again(&self, request: &FuseRequest<'_>, part: &Part) {
        let mut at = part.start;
        while at < part.end {
            let end = part.end.min((at / BLOCK_SIZE as u64 + 1) * BLOCK_SIZE as u64);
            if let Err(Refusal::Failed(error)) = self.change_part(request, &(at..end), false) {
                self.record_loss(request.node, at..end, &error);
                self.lost_writeback.reported(request.node);
            }
            at = end;
        }
    }

    /// Repeats what was left, now that everything else is as it was. Files of which `is_unread` is `true` need nothing.
    ///
    /// # Errors
    ///
    /// There is no space for a part whose content is not there either.
    pub(super) fn repeat_left(
        &self,
        contents: &mut Contents,
        recorded: &[Recorded<'_>],
        is_unread: impl Fn(u64) -> bool,
    ) -> Result<(), Refusal> {
        let mut left = std::mem::take(&mut contents.left);
        left.retain(|(at, _)| !is_unread(recorded[*at].0.node));
        while !left.is_empty() {
            let before = left.len();
            left = self.repeat_once(left, recorded)?;
            if left.len() == before {
                left = self.volume.with_withheld_space(|| self.repeat_once(left, recorded))?;
            }
            if left.len() == before {
                return Err(Error::NoSpace.into());
            }
        }
        Ok(())
    }

    /// Repeats what was left, and returns the parts for which there is still no space.
    fn repeat_once(
        &self,
        left: Vec<LeftPart>,
        recorded: &[Recorded<'_>],
    ) -> Result<Vec<LeftPart>, Refusal> {
        let mut failed = Vec::new();
        for (at, part) in left {
            let request = recorded[at].0;
            if self.is_there(request, &part) {
                continue;
            }
            match self.repeat_part(request, &part, false) {
                Err(Refusal::Failed(Error::NoSpace)) => failed.push((at, part)),
                repeated => repeated.map(drop)?,
            }
        }
        Ok(failed)
    }

    /// Returns whether the file has the data of `part` of a write.
    fn is_there(&self, request: &FuseRequest<'_>, part: &Part) -> bool {
        let FuseOperation::Write(write) = &request.operation else { return false };
        let data = data_of(write, part);
        let read = self.volume.read(request.node, part.start, data.len());
        read.is_ok_and(|read| read.as_bytes() == data)
    }
}

/// Returns changes of attributes that leave all as they are `before`.
fn only_content(before: &Inode) -> AttributeChanges {
    AttributeChanges {
        mtime: Some(before.mtime),
        ctime: Some(before.ctime),
        keep_times: true,
        through_open: true,
        keep_capability: true,
        ..AttributeChanges::default()
    }
}

/// Returns the name of the attribute that a change sets or removes.
fn attribute_of<'a>(request: &FuseRequest<'a>) -> Option<&'a [u8]> {
    match request.operation {
        FuseOperation::Setxattr { name, .. } | FuseOperation::Removexattr { name } => Some(name),
        _ => None,
    }
}

/// Returns the bytes that a write or fallocate(2) is about, unless the log has them. A hole up to the end of the file, or beyond, has
/// the last block whole.
fn range_of((request, change): Recorded<'_>) -> Option<Part> {
    let range = named_range(request).filter(|_| !change.is_content_synced)?;
    match request.operation {
        FuseOperation::Fallocate { mode, .. }
            if mode & PUNCH_HOLE != 0 && range.end >= change.begun.before.size =>
        {
            let end = range.end.checked_next_multiple_of(BLOCK_SIZE as u64);
            Some(range.start..end.unwrap_or(range.end))
        }
        _ => Some(range),
    }
}

/// Returns the whole blocks that a change makes a hole.
fn hole_of(of @ (request, _): Recorded<'_>) -> Part {
    let block = BLOCK_SIZE as u64;
    match (range_of(of), &request.operation) {
        (Some(range), FuseOperation::Fallocate { mode, .. }) if mode & PUNCH_HOLE != 0 => {
            range.start.div_ceil(block).saturating_mul(block)..range.end / block * block
        }
        _ => 0..0,
    }
}

/// Returns the bytes that a write or fallocate(2) names.
fn named_range(request: &FuseRequest<'_>) -> Option<Part> {
    match &request.operation {
        FuseOperation::Write(write) => {
            Some(write.offset..write.offset.saturating_add(write.data.len() as u64))
        }
        FuseOperation::Fallocate { offset, len, .. } => Some(*offset..offset.saturating_add(*len)),
        _ => None,
    }
}

fn data_of<'a>(write: &WriteArgs<'a>, part: &Part) -> &'a [u8] {
    let [from, to] = [part.start, part.end].map(|at| (at - write.offset) as usize);
    &write.data[from..to]
}

/// Returns whether a change reserves blocks, and leaves the content.
fn reserves(request: &FuseRequest<'_>) -> bool {
    const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE.cast_unsigned();
    matches!(&request.operation, FuseOperation::Fallocate { mode, .. } if mode & !KEEP_SIZE == 0)
}

/// Returns the length that the file of a change has at least afterwards.
fn size_reached(request: &FuseRequest<'_>) -> Option<u64> {
    match &request.operation {
        FuseOperation::Fallocate { mode, .. }
            if mode.cast_signed() & libc::FALLOC_FL_KEEP_SIZE != 0 =>
        {
            None
        }
        _ => named_range(request).map(|range| range.end),
    }
}

/// Returns the length that a change gives its file, unless the log has it.
pub(super) fn size_set((request, change): Recorded<'_>) -> Option<u64> {
    match &request.operation {
        _ if change.is_content_synced => None,
        FuseOperation::Setattr(asked) => asked.size,
        FuseOperation::Open { .. } => Some(0),
        _ => None,
    }
}

/// Returns whether a change has made its file longer, and has done nothing else to its content.
pub(super) fn grows(of @ (_, change): Recorded<'_>) -> bool {
    size_set(of).is_some_and(|size| size > change.begun.before.size)
}

/// Returns whether a change was done, and has its reply.
pub(super) fn is_done((_, change): Recorded<'_>) -> bool {
    change.given.is_some() && !change.is_refused()
}

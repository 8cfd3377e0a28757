//! Preallocation, holes and zeroed ranges (`fallocate`).
//!
//! Preallocation reserves the blocks of a range that are neither mapped nor reserved (decision 27). A hole is punched by
//! unmapping its whole blocks; zeros are written over the rest. Both work in bounded steps, so a crash may leave a part
//! of them done. The length of a file changes last. A refused call changes nothing.

use std::ops::RangeInclusive;
use std::sync::Arc;

use sfs_device::BLOCK_SIZE;

use super::Volume;
use super::file_flags::check_content;
use crate::files::{FileData, InodeState};
use crate::format::{FILE_BLOCKS_MAX, Features, INLINE_LEN_MAX, Inode, InodeFlags, Reservation};
use crate::metadata::{MetadataError, Txn};
use crate::mutant::{Mutant, mutated};
use crate::request::{AllocateMode, Allocation, Caller, OpenMode, WriteMode};
use crate::{Error, Result};

/// Length of a block in bytes.
const LEN: u64 = BLOCK_SIZE as u64;

/// Number of whole blocks for which zeroing may add a leaf, besides the leaves of blocks that were missing.
const ZEROED_BLOCKS_PER_LEAF: u64 = 64;

/// Zeros for a part of a block.
static ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];

/// A request for a range of bytes of a file.
struct Request<'a> {
    handle: Arc<InodeState>,
    offset: u64,
    end: u64,
    allocation: &'a Allocation,
    caller: &'a Caller,
    /// `true` if punching a hole leaves the reservations in it.
    keeps_reserved: bool,
}

/// A step of reserving blocks.
struct ReserveStep {
    /// Ranges that are reserved now, and were not before.
    gaps: Vec<Reservation>,
    /// First block of the next step; `None` if this step was the last one.
    next: Option<u32>,
}

impl Volume {
    /// Preallocates, punches or zeroes `len` bytes of `ino` from `offset` on. A write to preallocated blocks never fails
    /// for lack of space, and the blocks read as zeros until they are written.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if the volume cannot promise the space, [`Error::FileTooLarge`] for a range behind the end of
    /// the largest file, [`Error::Invalid`] without a byte, [`Error::IsDirectory`] or [`Error::Invalid`] for
    /// other kinds of files, [`Error::NotPermitted`] if the flags of the file forbid it. The file is unchanged then.
    pub fn allocate(
        &self,
        ino: u64,
        (offset, len): (u64, u64),
        allocation: &Allocation,
        caller: &Caller,
    ) -> Result<()> {
        self.health.check_writable()?;
        let end = end_of(offset, len)?;
        let inode = self.regular(ino)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let destroys = allocation.mode != AllocateMode::Reserve;
        check_content(&inode, if destroys { OpenMode::Write } else { OpenMode::Append })?;
        let handle = self.inodes.get(ino);
        let request = Request { handle, offset, end, allocation, caller, keeps_reserved: false };
        match allocation.mode {
            AllocateMode::PunchHole => self.punch(&request)?,
            AllocateMode::Reserve | AllocateMode::ZeroRange => self.reserve(&request)?,
        }
        if allocation.mode != AllocateMode::Reserve {
            self.clear_edges(&request)?;
        }
        self.metadata.note_change();
        Ok(())
    }

    /// Makes `len` bytes, at least one, of a regular file read as zeros, and frees whole blocks. Reservations stay, and the
    /// file does not become longer.
    pub(super) fn clear(
        &self,
        ino: u64,
        (offset, len): (u64, u64),
        allocation: &Allocation,
        caller: &Caller,
    ) -> Result<()> {
        let end = end_of(offset, len)?;
        let handle = self.inodes.get(ino);
        let request = Request { handle, offset, end, allocation, caller, keeps_reserved: true };
        self.punch(&request)?;
        self.clear_edges(&request)?;
        self.metadata.note_change();
        Ok(())
    }

    /// Reserves the missing blocks of the range, zeroes its whole blocks if the request says so, and makes the file longer
    /// unless its size is to be kept.
    fn reserve(&self, request: &Request<'_>) -> Result<()> {
        let Request { handle, allocation, end, .. } = request;
        let mut wanted = self.wanted(request)?;
        loop {
            if wanted > 0 {
                // Without a lock: the superblock is written. A volume without space for the blocks needs no feature.
                drop(self.space.admit(wanted)?);
                self.superblocks.require_to_write(Features::PREALLOCATION)?;
            }
            let _admitted = (wanted > 0).then(|| self.space.admit(wanted)).transpose()?;
            if allocation.kill_privileges {
                self.kill_privileges(handle.ino)?;
            }
            let _io = handle.io_write();
            // The file may have got more holes since.
            let wanted_now = self.wanted(request)?;
            if wanted_now > wanted {
                wanted = wanted_now;
                continue;
            }
            let size = self.regular(handle.ino)?.size;
            self.finish_truncation(handle.ino, size)?;
            if allocation.mode == AllocateMode::ZeroRange
                && let Some(whole) = request.whole_blocks(size)
            {
                self.reserve_all(request, whole, true)?;
            }
            self.reserve_all(request, request.touched_blocks(), false)?;
            if !allocation.keep_size && *end > size {
                self.set_size(handle, *end)?;
            }
            return Ok(());
        }
    }

    /// Returns the number of blocks to which the request has to be admitted, leaves included.
    fn wanted(&self, request: &Request<'_>) -> Result<u64> {
        let Request { handle, allocation, end, .. } = request;
        let inode = self.regular(handle.ino)?;
        let (mut from, last) = request.touched_blocks().into_inner();
        let mut wanted = 0;
        loop {
            let step = self.metadata.read_txn(|txn| txn.unreserved(handle.ino, from..=last))?;
            wanted += step.blocks + step.ranges;
            match step.next {
                Some(next) => from = next,
                None => break,
            }
        }
        if allocation.mode == AllocateMode::ZeroRange {
            let whole = request.whole_blocks(inode.size).map_or(0, count);
            wanted += whole.div_ceil(ZEROED_BLOCKS_PER_LEAF) + u64::from(whole > 0);
        }
        // Inline content that outgrows its item needs a block, which may be outside the range.
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        let outgrows = is_inline && !allocation.keep_size && *end > INLINE_LEN_MAX as u64;
        Ok(wanted + u64::from(outgrows))
    }

    /// Reserves those of `blocks` that are neither mapped nor reserved; with `zeroes`, unmaps the others. The content is locked
    /// for writing.
    fn reserve_all(
        &self,
        request: &Request<'_>,
        blocks: RangeInclusive<u32>,
        zeroes: bool,
    ) -> Result<()> {
        let ino = request.handle.ino;
        let (mut from, last) = blocks.into_inner();
        loop {
            let logic = |txn: &mut Txn<'_>| {
                let mut inode = txn.inode(ino)?;
                let (gaps, next) = if zeroes {
                    let (unmapped, gaps, next) = txn.zero(ino, from..=last)?;
                    inode.blocks = inode.blocks.saturating_sub(unmapped);
                    (gaps, next)
                } else {
                    txn.reserve(ino, from..=last)?
                };
                if !gaps.is_empty() {
                    inode.flags.set(InodeFlags::RESERVED, true);
                }
                let reserved = gaps.iter().map(|gap| gap.blocks()).sum();
                inode.blocks = inode.blocks.saturating_add(reserved);
                request.touch(&mut inode);
                txn.put_inode(ino, &inode);
                Ok(ReserveStep { gaps, next })
            };
            let step = self.change_then(logic, |step| {
                let mut data = request.handle.data();
                if zeroes {
                    let done = step.next.map_or(last, |next| next - 1);
                    self.drop_dirty_in(&mut data, from..=done);
                }
                for gap in &step.gaps {
                    self.dirty.cover(&mut data, gap.first..=gap.last);
                }
                request.forget_times(&mut data);
            })?;
            match step.next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// Unmaps the whole blocks of the range, and removes their reservations.
    fn punch(&self, request: &Request<'_>) -> Result<()> {
        let ino = request.handle.ino;
        if request.allocation.kill_privileges {
            self.kill_privileges(ino)?;
        }
        let _io = request.handle.io_write();
        let size = self.regular(ino)?.size;
        self.finish_truncation(ino, size)?;
        let mut left = request.whole_blocks(size);
        loop {
            let logic = |txn: &mut Txn<'_>| {
                let mut inode = txn.inode(ino)?;
                let next = match left.clone() {
                    Some(blocks) => {
                        punch_some(txn, ino, &mut inode, blocks, request.keeps_reserved)?
                    }
                    None => None,
                };
                request.touch(&mut inode);
                txn.put_inode(ino, &inode);
                Ok(next)
            };
            let next = self.change_then(logic, |_| {
                let mut data = request.handle.data();
                // A commit between the transaction and this step would map the blocks again.
                if let Some(blocks) = left.clone() {
                    self.drop_dirty_in(&mut data, blocks);
                }
                request.forget_times(&mut data);
            })?;
            match next {
                None => return Ok(()),
                more => left = more,
            }
        }
    }

    fn drop_dirty_in(&self, data: &mut FileData, blocks: RangeInclusive<u32>) {
        if !mutated(Mutant::PunchedWritten) {
            self.dirty.remove(data, |data| data.dirty.remove_range(blocks));
        }
    }

    /// Writes zeros over the data in the blocks that are in the range in part, and over inline content.
    fn clear_edges(&self, request: &Request<'_>) -> Result<()> {
        let Request { handle, offset, allocation, .. } = request;
        let inode = self.regular(handle.ino)?;
        let end = request.end.min(inode.size);
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        let head = *offset..end.min(offset.next_multiple_of(LEN));
        let tail = head.end.max(end / LEN * LEN)..end;
        let inline = 0..if is_inline { end.min(LEN) } else { 0 };
        let inline = inline.start.max(*offset)..inline.end;
        for edge in [head, tail, inline] {
            let is_last = edge.end == inode.size;
            let is_punched = edge.start.is_multiple_of(LEN) && is_last && !is_inline;
            if edge.start >= edge.end
                || is_punched
                || !self.holds_data(handle, (edge.start / LEN) as u32)?
            {
                continue;
            }
            let mode = WriteMode { keep_times: allocation.keep_times, kill_privileges: false };
            let zeros = &ZEROS[..(edge.end - edge.start) as usize];
            self.write(handle.ino, edge.start, zeros, mode, request.caller)?;
        }
        Ok(())
    }
}

impl Request<'_> {
    /// Returns the blocks that the range touches.
    fn touched_blocks(&self) -> RangeInclusive<u32> {
        (self.offset / LEN) as u32..=((self.end - 1) / LEN) as u32
    }

    /// Returns the blocks that are whole in the range. Bytes behind the end of the file, which has `size` bytes, have no meaning,
    /// so its last block may be one of them.
    fn whole_blocks(&self, size: u64) -> Option<RangeInclusive<u32>> {
        let end = if self.end >= size { self.end.next_multiple_of(LEN) } else { self.end };
        let (first, after) = (self.offset.div_ceil(LEN), end / LEN);
        (first < after).then(|| first as u32..=(after - 1) as u32)
    }

    /// Sets the times of the file.
    fn touch(&self, inode: &mut Inode) {
        if !self.allocation.keep_times {
            (inode.mtime, inode.ctime) = (self.caller.now, self.caller.now);
        }
    }

    /// Drops pending times, which are older than those that [`Request::touch`] has set.
    fn forget_times(&self, data: &mut FileData) {
        if !self.allocation.keep_times
            && let Some(pending) = &mut data.pending
        {
            pending.times = None;
        }
    }
}

fn count(blocks: RangeInclusive<u32>) -> u64 {
    u64::from(*blocks.end()) - u64::from(*blocks.start()) + 1
}

/// Unmaps a bounded number of `blocks`, and removes their reservations unless it `keeps_reserved` blocks. Returns the blocks that are left.
fn punch_some(
    txn: &mut Txn<'_>,
    ino: u64,
    inode: &mut Inode,
    blocks: RangeInclusive<u32>,
    keeps_reserved: bool,
) -> std::result::Result<Option<RangeInclusive<u32>>, MetadataError> {
    let (unmapped, left) = txn.unmap_range(ino, blocks.clone())?;
    inode.blocks = inode.blocks.saturating_sub(unmapped);
    if keeps_reserved {
        return Ok(left);
    }
    // Unmapping goes from the end to the start, and reservations are removed from the start on, of what is unmapped.
    let first = left.as_ref().map_or(*blocks.start(), |left| left.end() + 1);
    let step = txn.unreserve(ino, first..=*blocks.end())?;
    inode.blocks = inode.blocks.saturating_sub(step.blocks);
    Ok(match (left, step.next) {
        (left, None) => left,
        (Some(left), Some(_)) => Some(*left.start()..=*blocks.end()),
        (None, Some(next)) => Some(next..=*blocks.end()),
    })
}

/// Returns the end of the range of `len` bytes from `offset` on, if a file can be as long.
fn end_of(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).filter(|end| *end <= FILE_BLOCKS_MAX * LEN);
    end.ok_or(Error::FileTooLarge)
}

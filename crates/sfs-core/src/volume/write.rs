//! Writing file content into the write buffer.
//!
//! A write is admitted to the blocks that it needs, merged with the old content of partly written
//! blocks, and inserted as dirty blocks. Later reads see the whole write. Bytes between the old end
//! of a file and a later write are zero. A refused write changes nothing. Afterwards the writer is
//! throttled if the write buffer or the Clean segments are short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use super::covered::{covered_in, is_covered};
use super::old_content::{Base, partial_blocks};
use crate::files::{DirtyBlock, FileData, InodeState, Pending};
use crate::format::{
    FILE_BLOCKS_MAX, FileKind, INLINE_LEN_MAX, Inode, InodeFlags, Key, Reservation, Timestamp,
};
use crate::memory::DirtyBuf;
use crate::metadata::{Metadata, Txn};
use crate::mutant::{Mutant, mutated};
use crate::request::{Caller, WriteMode};
use crate::space::Admitted;
use crate::{Error, Result};

/// Maximum length of a file, in bytes.
const FILE_LEN_MAX: u64 = FILE_BLOCKS_MAX * BLOCK_SIZE as u64;

/// Number of attempts to get memory for a write.
const MEMORY_ATTEMPTS: usize = 20;
/// Pause after each of these attempts.
const MEMORY_PAUSE: Duration = Duration::from_millis(50);

impl Volume {
    /// Writes `data` at `offset` of `ino`. An error means that nothing was written: a failure to write back
    /// afterwards is reported by the next write, if it lasts, and by a sync.
    pub fn write(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<()> {
        self.health.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_LEN_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        let handle = self.inodes.get(ino);
        // A commit here would make a truncation durable without the data that follows it.
        if !handle.data().awaits_ordered_data() {
            self.space.check_write_buffer()?;
        }
        let times = (!mode.keep_times).then_some((caller.now, caller.now));
        let mut attempts = 0;
        loop {
            let admitted = self.admit_write(&handle, offset, end)?;
            // A refused write leaves the privileges.
            if attempts == 0 && mode.kill_privileges {
                self.kill_privileges(ino)?;
            }
            let merged = self.merge(&handle, offset, data, times);
            drop(admitted);
            match merged {
                Err(Error::NoMemory) if attempts < MEMORY_ATTEMPTS => self.free_memory(&handle)?,
                merged => break merged?,
            }
            attempts += 1;
        }
        self.counters.user_bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.metadata.note_change();
        let _ = self.write_back_if_needed(&handle, (data.len() as u64).div_ceil(BLOCK_SIZE as u64));
        Ok(())
    }

    /// Writes back everything, so that the memory can be used again, and waits for other programs
    /// to free memory.
    fn free_memory(&self, handle: &InodeState) -> Result<()> {
        // A commit here would make a truncation durable without the data that follows it.
        if !handle.data().awaits_ordered_data() {
            self.commit_for_nobody()?;
        }
        std::thread::sleep(MEMORY_PAUSE);
        Ok(())
    }

    /// Admits a write of `offset..end` of a file. Overwriting needs no space and is always admitted.
    fn admit_write(&self, handle: &InodeState, offset: u64, end: u64) -> Result<Admitted<'_>> {
        let first = offset / BLOCK_SIZE as u64;
        let last = (end - 1) / BLOCK_SIZE as u64;
        // One block more, in case the file leaves its tree item. Usually the admission succeeds
        // without a look at the tree.
        if let Some(admitted) = self.space.admit_at_once(last - first + 2) {
            return Ok(admitted);
        }
        self.health.check_writable()?;
        let inode = self.attributes_of(handle)?;
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        if is_inline && end <= inode.size.min(INLINE_LEN_MAX as u64) {
            return Ok(self.space.admit_without_blocks());
        }
        let is_reserved = inode.flags.contains(InodeFlags::RESERVED);
        let block_0 = is_inline && first > 0;
        let mut new_blocks = u64::from(
            block_0
                && !(is_reserved
                    && self.metadata.read_txn(|txn| txn.is_reserved(handle.ino, 0))?),
        );
        for block in first..=last {
            let block = block as u32;
            if !handle.data().dirty.contains(block) {
                let needs_none = |txn: &Txn<'_>| {
                    Ok(txn.mapping(handle.ino, block)?.is_some()
                        || is_reserved && txn.is_reserved(handle.ino, block)?)
                };
                new_blocks += u64::from(!self.metadata.read_txn(needs_none)?);
            }
        }
        match new_blocks {
            0 => Ok(self.space.admit_without_blocks()),
            _ => self.space.admit(new_blocks),
        }
    }

    /// Admits a change of the size of `ino` to `size`, until the file has the size: content that
    /// outgrows its tree item needs a block.
    pub(super) fn admit_size(&self, ino: u64, size: u64) -> Result<Option<Admitted<'_>>> {
        let inode = self.attributes(ino)?;
        let outgrows = inode.flags.contains(InodeFlags::INLINE) && size > INLINE_LEN_MAX as u64;
        // A reserved block is always admitted.
        let is_covered = inode.flags.contains(InodeFlags::RESERVED)
            && self.metadata.read_txn(|txn| txn.is_reserved(ino, 0))?;
        (outgrows && !is_covered).then(|| self.space.admit(1)).transpose()
    }

    /// Writes back and cleans if necessary, after a write of `blocks`.
    fn write_back_if_needed(&self, handle: &InodeState, blocks: u64) -> Result<()> {
        let is_ordered = handle.data().flush_with_next_delta.is_some();
        if is_ordered && !self.space.fits_one_batch() {
            self.space.flush_before(handle.ino)?;
        }
        self.space.throttle_writer()?;
        self.space.clean_for_writer(blocks)
    }

    /// Puts a write into the write buffer, together with the old content around it.
    fn merge(
        &self,
        handle: &Arc<InodeState>,
        offset: u64,
        bytes: &[u8],
        times: Option<(Timestamp, Timestamp)>,
    ) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut bases: Vec<Base> = Vec::new();
        let _keep = self.metadata.pin_nodes();
        loop {
            let io = handle.io_write();
            let inode = self.regular(handle.ino)?;
            if end > inode.size {
                self.finish_truncation(handle.ino, inode.size)?;
            }
            let partial = partial_blocks(&inode, offset, end);
            if self.bases_hold(handle, &bases, &partial)? {
                if self.insert(handle, &inode, offset, bytes, &bases, times)? {
                    return Ok(());
                }
                continue;
            }
            drop(io);
            // The old content is read while other readers may continue.
            let _io = handle.io_read();
            bases = self.read_bases(handle, &partial)?;
        }
    }

    /// Returns the attributes of a regular file.
    pub(super) fn regular(&self, ino: u64) -> Result<Inode> {
        let inode = self.attributes(ino)?;
        match inode.kind() {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Sets the size of a file whose content is locked for writing.
    pub(super) fn set_size(&self, handle: &Arc<InodeState>, size: u64) -> Result<()> {
        if size > FILE_LEN_MAX {
            return Err(Error::FileTooLarge);
        }
        let inode = self.regular(handle.ino)?;
        let is_reserved = inode.flags.contains(InodeFlags::RESERVED);
        if size == inode.size && !is_reserved {
            return Ok(());
        }
        self.health.check_writable()?;
        self.finish_truncation(handle.ino, inode.size)?;
        if size == inode.size {
            // Reservations behind the end go, as with other filesystems.
            return self.cut_reservations(handle.ino, size);
        }
        if size < inode.size {
            return self.shrink(handle, &inode, size);
        }
        let _keep = self.metadata.pin_nodes();
        while !self.grow(handle, size)? {}
        self.metadata.note_change();
        Ok(())
    }

    /// Makes a file longer; returns `false` if the caller has to try again.
    fn grow(&self, handle: &Arc<InodeState>, size: u64) -> Result<bool> {
        let inode = self.regular(handle.ino)?;
        // The tail of the last block becomes visible, so it has to be written as zeros.
        let partial = partial_blocks(&inode, size, size);
        let bases = self.read_bases(handle, &partial)?;
        let bases = self.with_buffers(bases.iter().filter(|base| base.holds_data()))?;
        let blocks: Vec<u32> = bases.iter().map(|(base, _)| base.block).collect();
        self.load_reservations(&inode, handle.ino, &blocks, None)?;
        let meta = self.metadata.read();
        if !is_inline_as_in(&meta, handle.ino, &inode) {
            return Ok(false);
        }
        let covered = covered_in(&meta.tree, &inode, handle.ino, &blocks, None).unwrap_or_default();
        let mut data = handle.data();
        for (base, buffer) in bases {
            self.insert_base(&mut data, base, buffer, inode.size, &covered);
        }
        let times = data.pending.and_then(|pending| pending.times);
        data.pending = Some(Pending { size, times });
        drop(data);
        self.dirty.note_dirty(handle);
        Ok(true)
    }

    /// Puts a write into the write buffer; returns `false` if the content moved into or out of the tree item since
    /// `inode` was read.
    fn insert(
        &self,
        handle: &Arc<InodeState>,
        inode: &Inode,
        offset: u64,
        bytes: &[u8],
        bases: &[Base],
        times: Option<(Timestamp, Timestamp)>,
    ) -> Result<bool> {
        let end = offset + bytes.len() as u64;
        let first = offset / BLOCK_SIZE as u64;
        let last = (end - 1) / BLOCK_SIZE as u64;
        let is_outside = |base: &&Base| !(first..=last).contains(&base.block.into());
        let outside = bases.iter().filter(is_outside).filter(|base| base.holds_data());
        let outside = self.with_buffers(outside)?;
        let mut buffer = self.dirty_buffer((last - first + 1) as usize)?;
        let memory = buffer.blocks_mut();
        clear_edges(memory, offset, end);
        for base in bases.iter().filter(|base| (first..=last).contains(&base.block.into())) {
            let block = &mut memory[(u64::from(base.block) - first) as usize];
            block.clone_from(&base.content);
            clear_tail(block, base.block, inode.size);
        }
        let start = (offset % BLOCK_SIZE as u64) as usize;
        memory.as_mut_bytes()[start..start + bytes.len()].copy_from_slice(bytes);
        let checksums: Vec<u32> = memory.iter().map(|b| crc32c::crc32c(b.as_bytes())).collect();

        let written = Some((first as u32, last as u32));
        let blocks: Vec<u32> = outside.iter().map(|(base, _)| base.block).collect();
        self.load_reservations(inode, handle.ino, &blocks, written)?;
        // A commit holds the metadata lock from its plan until its blocks are clean, so it sees the whole write or
        // nothing of it.
        let meta = self.metadata.read();
        if !is_inline_as_in(&meta, handle.ino, inode) {
            return Ok(false);
        }
        let covered =
            covered_in(&meta.tree, inode, handle.ino, &blocks, written).unwrap_or_default();
        let mut data = handle.data();
        for (base, buffer) in outside {
            self.insert_base(&mut data, base, buffer, inode.size, &covered);
        }
        for ((block, memory), checksum) in (first..).zip(buffer.share()).zip(checksums) {
            let block = block as u32;
            let is_covered = is_covered(&covered, block);
            self.dirty.insert(&mut data, block, DirtyBlock { memory, checksum, is_covered });
        }
        let size = inode.size.max(end);
        let times = times.or(data.pending.and_then(|pending| pending.times));
        data.pending = Some(Pending { size, times });
        drop(data);
        self.dirty.note_dirty(handle);
        Ok(true)
    }

    fn dirty_buffer(&self, count: usize) -> Result<DirtyBuf> {
        DirtyBuf::new(count, self.dirty.pool()).ok_or(Error::NoMemory)
    }

    /// Returns a buffer for each of `bases`.
    fn with_buffers<'a>(
        &self,
        bases: impl Iterator<Item = &'a Base>,
    ) -> Result<Vec<(&'a Base, DirtyBuf)>> {
        bases.map(|base| Ok((base, self.dirty_buffer(1)?))).collect()
    }

    /// Makes a block dirty with its old content, and with zeros beyond `size`.
    fn insert_base(
        &self,
        data: &mut FileData,
        base: &Base,
        mut buffer: DirtyBuf,
        size: u64,
        covered: &[Reservation],
    ) {
        let block = &mut buffer.blocks_mut()[0];
        block.clone_from(&base.content);
        clear_tail(block, base.block, size);
        let checksum = crc32c::crc32c(block.as_bytes());
        let memory = buffer.share().next().expect("a buffer of one block");
        let is_covered = is_covered(covered, base.block);
        self.dirty.insert(data, base.block, DirtyBlock { memory, checksum, is_covered });
    }
}

/// Returns whether the tree and `inode` agree about inline content of `ino`. Returns `false` if the
/// inode is not cached.
fn is_inline_as_in(meta: &Metadata, ino: u64, inode: &Inode) -> bool {
    let is_inline = |inode: &Inode| inode.flags.contains(InodeFlags::INLINE);
    let value = meta.tree.get(&Key::inode(ino)).ok().flatten();
    let now = value.and_then(|value| Inode::decode(value, ino, meta.tolerance).ok());
    now.is_some_and(|now| is_inline(&now) == is_inline(inode))
}

/// Zeroes the first and the last block of the memory for `offset..end` if they are partly written.
fn clear_edges(memory: &mut [Block], offset: u64, end: u64) {
    let size = BLOCK_SIZE as u64;
    if !offset.is_multiple_of(size)
        && let Some(first) = memory.first_mut()
    {
        first.0.fill(0);
    }
    if !end.is_multiple_of(size)
        && let Some(last) = memory.last_mut()
    {
        last.0.fill(0);
    }
}

/// Zeroes the bytes beyond `size` in block number `no`.
fn clear_tail(block: &mut Block, no: u32, size: u64) {
    let start = u64::from(no) * BLOCK_SIZE as u64;
    let keep = size.saturating_sub(start).min(BLOCK_SIZE as u64) as usize;
    if !mutated(Mutant::TailKept) {
        block.0[keep..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

    use super::*;
    use crate::fixture::{BLOCKS, NOW, create, new_volume, put, set_size};
    use crate::request::VolumeOptions;

    /// The write buffer overruns when new data of a truncated file arrives: a commit made the truncation durable,
    /// and the data came with a later batch.
    #[test]
    fn writing_back_does_not_separate_a_truncation_from_its_data() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        drop(new_volume(device.clone()));
        let options = VolumeOptions { write_buffer: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), options, NOW).expect("the volume opens");
        let file = create(&volume, "f");
        put(&volume, file, 0, 2, 1).expect("there is room");
        volume.sync_all().expect("RAM");
        let base = device.inner().snapshot();
        device.take_events();

        let _others =
            DirtyBuf::new(2 * (1 << 20) / BLOCK_SIZE, volume.dirty.pool()).expect("memory");
        set_size(&volume, file, 0);
        put(&volume, file, 0, 2, 2).expect("there is room");
        let events = device.take_events();
        assert!(
            events.iter().any(|event| matches!(event, Event::Write { .. })),
            "something is written back"
        );
        for count in 0..=events.len() {
            let image = Arc::new(image_after(&base, &events[..count]));
            let volume =
                Volume::open(image, VolumeOptions::default(), NOW).expect("the volume opens");
            assert_ne!(
                volume.attributes(file).expect("the file is there").size,
                0,
                "after {count}"
            );
        }
    }
}

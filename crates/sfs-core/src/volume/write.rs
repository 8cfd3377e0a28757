//! Writing file content: into the write buffer.
//!
//! Owns: dirty blocks from the moment they are written until a commit takes them.
//! Promises: a write is seen whole by later reads; bytes between the old end of a file and a later
//! write are zero; what is refused for lack of space changes nothing.
//! Never: writes to the device, but for making room in the write buffer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use super::dirty::DirtyBlock;
use super::handles::{FileData, Handle, Pending};
use crate::format::{FILE_BLOCKS_MAX, FileKind, Inode, InodeFlags, Key, Mapping, Timestamp};
use crate::memory::DirtyBuf;
use crate::meta::Meta;
use crate::mutant::{Mutant, mutated};
use crate::request::{Caller, WriteMode};
use crate::{Error, Result};

/// Bytes in the largest file.
const FILE_LEN_MAX: u64 = FILE_BLOCKS_MAX * BLOCK_SIZE as u64;

/// The content of a block that will be changed in part.
struct Base {
    block: u32,
    content: Box<Block>,
    state: State,
}

impl Base {
    /// Whether there is content: a hole that is not written stays one.
    fn holds_data(&self) -> bool {
        !matches!(self.state, State::Hole(_))
    }
}

/// What tells whether the content of a block is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits in memory; its checksum.
    Dirty(u32),
    /// It is on the device.
    Mapped(Mapping),
    /// It is on the device, where it is overwritten in place; block writes of the file so far.
    Placed(u64),
    /// It is in the file's tree item; block writes of the file so far.
    Inline(u64),
    /// It is a hole; likewise.
    Hole(u64),
}

impl Volume {
    /// Writes `data` at `offset` of `ino`. What is refused is not kept; what is kept is not refused, whatever comes
    /// of making room after it.
    pub fn write(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<()> {
        self.writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_LEN_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        let handle = self.handles.get(ino);
        // A commit here would make a truncation durable before the data that it waits for.
        if !handle.data().waits_for_data() {
            self.relieve_if_run_over()?;
        }
        let admitted = self.admit_write(&handle, offset, end)?;
        if mode.kill_privileges {
            self.kill_privileges(ino)?;
        }
        let times = (!mode.keep_times).then_some((caller.now, caller.now));
        self.merge(&handle, offset, data, times)?;
        drop(admitted);
        self.counters.user_bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.clock.note_change();
        // It is in the buffer. A failure from here on is one of the next write, if it lasts, and of a sync.
        let _ = self.make_way(&handle, (data.len() as u64).div_ceil(BLOCK_SIZE as u64));
        Ok(())
    }

    /// Makes way for the next writes, after one of `blocks`.
    fn make_way(&self, handle: &Handle, blocks: u64) -> Result<()> {
        let ordered = handle.data().ordered.is_some();
        if ordered && self.is_batch_short() {
            self.write_ahead(handle.ino)?;
        }
        self.relieve()?;
        self.pay(blocks)
    }

    /// Puts a write into the buffer, together with the old content around it.
    fn merge(
        &self,
        handle: &Arc<Handle>,
        offset: u64,
        bytes: &[u8],
        times: Option<(Timestamp, Timestamp)>,
    ) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut bases: Vec<Base> = Vec::new();
        let _keep = self.keep_nodes();
        loop {
            let io = handle.io.write();
            let inode = self.regular(handle.ino)?;
            if end > inode.size {
                self.finish_cut(handle.ino, inode.size)?;
            }
            let partial = partial_blocks(&inode, offset, end);
            if self.bases_hold(handle, &bases, &partial)? {
                if self.insert(handle, &inode, offset, bytes, &bases, times) {
                    return Ok(());
                }
                continue;
            }
            drop(io);
            // The old content is read while other readers may go on.
            let _io = handle.io.read();
            bases = self.read_bases(handle, &partial)?;
        }
    }

    /// The attributes of a regular file.
    fn regular(&self, ino: u64) -> Result<Inode> {
        let inode = self.attributes(ino)?;
        match inode.kind() {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Sets the length of a file whose handle is locked for writing.
    pub(super) fn set_size(&self, handle: &Arc<Handle>, size: u64) -> Result<()> {
        if size > FILE_LEN_MAX {
            return Err(Error::FileTooLarge);
        }
        let inode = self.regular(handle.ino)?;
        if size == inode.size {
            return Ok(());
        }
        self.writable()?;
        self.finish_cut(handle.ino, inode.size)?;
        if size < inode.size {
            return self.shrink(handle, &inode, size);
        }
        let _keep = self.keep_nodes();
        while !self.grow(handle, size)? {}
        self.clock.note_change();
        Ok(())
    }

    /// Makes a file longer; says whether it could, or has to be called again.
    fn grow(&self, handle: &Arc<Handle>, size: u64) -> Result<bool> {
        let inode = self.regular(handle.ino)?;
        // The tail of the last block becomes visible: it has to be zero, and so be written.
        let partial = partial_blocks(&inode, size, size);
        let bases = self.read_bases(handle, &partial)?;
        let meta = self.meta.read();
        if !has_form_of(&meta, handle.ino, &inode) {
            return Ok(false);
        }
        let mut data = handle.data();
        for base in bases.iter().filter(|base| base.holds_data()) {
            self.insert_base(&mut data, base, inode.size);
        }
        let times = data.pending.and_then(|pending| pending.times);
        data.pending = Some(Pending { size, times });
        drop(data);
        self.note_dirty(handle);
        Ok(true)
    }

    /// The current content of `blocks`, and what says whether it is still current later.
    fn read_bases(&self, handle: &Handle, blocks: &[u32]) -> Result<Vec<Base>> {
        let read = |block: &u32| {
            let mut content = Box::new(Block([0; BLOCK_SIZE]));
            let state = self.state_of(handle, *block)?;
            self.fill(handle, *block, std::slice::from_mut(&mut *content))?;
            Ok(Base { block: *block, content, state })
        };
        blocks.iter().map(read).collect()
    }

    fn state_of(&self, handle: &Handle, block: u32) -> Result<State> {
        if let Some(dirty) = handle.data().dirty.get(block) {
            return Ok(State::Dirty(dirty.checksum));
        }
        self.consult(|txn| match txn.mapping(handle.ino, block)? {
            Some(Mapping { checksum: None, .. }) => {
                Ok(State::Placed(txn.inode(handle.ino)?.write_count))
            }
            Some(mapping) => Ok(State::Mapped(mapping)),
            None => {
                let inode = txn.inode(handle.ino)?;
                let is_inline = block == 0 && inode.flags.contains(InodeFlags::INLINE);
                let state = if is_inline { State::Inline } else { State::Hole };
                Ok(state(inode.write_count))
            }
        })
    }

    /// Whether `bases` are the current content of exactly the blocks `partial`.
    fn bases_hold(&self, handle: &Handle, bases: &[Base], partial: &[u32]) -> Result<bool> {
        if !bases.iter().map(|base| base.block).eq(partial.iter().copied()) {
            return Ok(false);
        }
        for base in bases {
            // A dirty block that was written out meanwhile has changed state but not content.
            if self.state_of(handle, base.block)? != base.state {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a write into the buffer, unless the file has another form than `inode` says.
    fn insert(
        &self,
        handle: &Arc<Handle>,
        inode: &Inode,
        offset: u64,
        bytes: &[u8],
        bases: &[Base],
        times: Option<(Timestamp, Timestamp)>,
    ) -> bool {
        let end = offset + bytes.len() as u64;
        let first = offset / BLOCK_SIZE as u64;
        let last = (end - 1) / BLOCK_SIZE as u64;
        let mut buffer = DirtyBuf::new((last - first + 1) as usize, &self.pool);
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

        // A commit has the metadata from its plan until what it took is not dirty any more: it sees
        // the whole write or nothing of it.
        let meta = self.meta.read();
        if !has_form_of(&meta, handle.ino, inode) {
            return false;
        }
        let mut data = handle.data();
        let is_beside = |base: &&Base| !(first..=last).contains(&base.block.into());
        for base in bases.iter().filter(is_beside).filter(|base| base.holds_data()) {
            self.insert_base(&mut data, base, inode.size);
        }
        for ((block, memory), checksum) in (first..).zip(buffer.share()).zip(checksums) {
            self.insert_dirty(&mut data, block as u32, DirtyBlock { memory, checksum });
        }
        let size = inode.size.max(end);
        let times = times.or(data.pending.and_then(|pending| pending.times));
        data.pending = Some(Pending { size, times });
        drop(data);
        self.note_dirty(handle);
        true
    }

    /// Makes a block dirty with its old content, zero beyond `size`.
    fn insert_base(&self, data: &mut FileData, base: &Base, size: u64) {
        let mut buffer = DirtyBuf::new(1, &self.pool);
        let block = &mut buffer.blocks_mut()[0];
        block.clone_from(&base.content);
        clear_tail(block, base.block, size);
        let checksum = crc32c::crc32c(block.as_bytes());
        let memory = buffer.share().next().expect("a buffer of one block");
        self.insert_dirty(data, base.block, DirtyBlock { memory, checksum });
    }

    fn insert_dirty(&self, data: &mut FileData, block: u32, dirty: DirtyBlock) {
        if data.dirty.insert(block, dirty) {
            self.dirty_blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets the dirty blocks of a file that is gone.
    pub(super) fn drop_dirty(&self, handle: &Handle) {
        let mut data = handle.data();
        self.dirty_blocks.fetch_sub(data.dirty.len(), Ordering::Relaxed);
        data.dirty.clear();
        data.pending = None;
        data.ordered = None;
        // Before the data is let go: who writes next registers the file again.
        self.dirty_files.lock().remove(&handle.ino);
        self.ordered_files.lock().remove(&handle.ino);
    }
}

/// Whether the content of `ino` still is in its tree item, or not there, as `inode` says; and
/// whether that can be told.
fn has_form_of(meta: &Meta, ino: u64, inode: &Inode) -> bool {
    let is_inline = |inode: &Inode| inode.flags.contains(InodeFlags::INLINE);
    let value = meta.tree.get(&Key::inode(ino)).ok().flatten();
    let now = value.and_then(|value| Inode::decode(value, ino, meta.tolerance).ok());
    now.is_some_and(|now| is_inline(&now) == is_inline(inode))
}

/// Zeroes the first and the last block of the memory for `offset..end` where they are not written
/// whole.
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

/// Zeroes what is beyond `size` in block number `no`.
fn clear_tail(block: &mut Block, no: u32, size: u64) {
    let start = u64::from(no) * BLOCK_SIZE as u64;
    let keep = size.saturating_sub(start).min(BLOCK_SIZE as u64) as usize;
    if !mutated(Mutant::TailKept) {
        block.0[keep..].fill(0);
    }
}

/// The blocks whose old content matters to a change of `offset..end`, ascending: those that are
/// overwritten in part, the one with the old end of the file if the file grows past it, and the
/// first if it was inline and will not be.
fn partial_blocks(inode: &Inode, offset: u64, end: u64) -> Vec<u32> {
    let size = BLOCK_SIZE as u64;
    let holds = |byte: u64| (byte / size) as u32;
    let mut blocks = Vec::with_capacity(2);
    if end > offset && !offset.is_multiple_of(size) {
        blocks.push(holds(offset));
    }
    if end > offset && !end.is_multiple_of(size) && end < inode.size {
        blocks.push(holds(end));
    }
    let covered = |block: u32| {
        let start = u64::from(block) * size;
        offset <= start && start + size <= end
    };
    if end > inode.size && !inode.size.is_multiple_of(size) {
        blocks.push(holds(inode.size));
    }
    if inode.flags.contains(InodeFlags::INLINE) {
        blocks.push(0);
    }
    // The head of a block that the write covers from the start to beyond the old end is nobody's.
    blocks.retain(|block| {
        let start = u64::from(*block) * size;
        let overwritten = offset <= start && end >= inode.size.min(start + size);
        start < inode.size && !covered(*block) && !(end > offset && overwritten && end > start)
    });
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

#[cfg(test)]
mod tests {
    use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

    use super::super::rig::{BLOCKS, NOW, create, new_volume, put, set_size, write};
    use super::*;
    use crate::request::VolumeOptions;

    /// A writer reads what is inline, waits, and meanwhile the file is cut to nothing and grows again:
    /// it put back what had been cut off.
    #[test]
    fn what_was_inline_is_not_taken_for_the_hole_that_came_after() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = create(&volume, "f");
        write(&volume, file, b"secret");
        volume.sync_all().expect("RAM");
        let handle = volume.handles.get(file);
        let bases = volume.read_bases(&handle, &[0]).expect("RAM");
        assert!(volume.bases_hold(&handle, &bases, &[0]).expect("RAM"));
        for size in [0, 6] {
            let _io = handle.io.write();
            volume.set_size(&handle, size).expect("there is room");
        }
        assert!(!volume.bases_hold(&handle, &bases, &[0]).expect("RAM"));
    }

    /// The buffer runs over when the new data of a truncated file comes: what was written out to relieve it made
    /// the truncation durable, and the data came with a later batch.
    #[test]
    fn what_relieves_the_buffer_does_not_part_a_truncation_from_its_data() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        drop(new_volume(device.clone()));
        let options = VolumeOptions { write_buffer: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), options, NOW).expect("it opens");
        let file = create(&volume, "f");
        put(&volume, file, 0, 2, 1).expect("there is room");
        volume.sync_all().expect("RAM");
        let base = device.inner().snapshot();
        device.take_events();

        let _others = DirtyBuf::new(2 * (1 << 20) / BLOCK_SIZE, &volume.pool);
        set_size(&volume, file, 0);
        put(&volume, file, 0, 2, 2).expect("there is room");
        let events = device.take_events();
        assert!(events.iter().any(|event| matches!(event, Event::Write { .. })), "it is relieved");
        for count in 0..=events.len() {
            let image = Arc::new(image_after(&base, &events[..count]));
            let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("it opens");
            assert_ne!(volume.attributes(file).expect("it is there").size, 0, "after {count}");
        }
    }
}

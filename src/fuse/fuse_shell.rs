//! What the operations share: the volume they call, and what follows each of them.
//!
//! Owns: the errno of a failure, and logging it; what `-o sync` and `-o dirsync` ask for.
//! Promises: who changes something wakes the background.
//! Never: decodes a request.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{Caller, FileEntry};
use sfs_core::{Error, Result, Volume};
use sfs_device::BLOCK_SIZE;
use sfs_fuse::{AsyncDio, Errno, FuseRequest};

use super::free_space::FreeSpace;
use super::invalidations::AttributeInvalidations;
use super::lost_writeback::LostWriteback;
use super::open_handles::{OpenHandles, WriteVerdict};
use super::{error_to_errno, inode_attributes};
use crate::background::Waker;
use crate::bdi::BackingDevice;
use crate::clock;
use crate::mount_options::{MountOptions, SyncPolicy};

/// We are the only ones who change the volume: what the kernel knows stays true.
pub(super) const TTL: Duration = Duration::from_secs(24 * 3600);

/// How the kernel is told that a directory has changed.
pub(crate) type Notify = dyn Fn(u64) -> io::Result<()> + Send + std::marker::Sync;

/// A volume as the kernel sees it.
pub(crate) struct FuseShell {
    pub(super) volume: Arc<Volume>,
    pub(super) waker: Arc<Waker>,
    pub(super) writeback: bool,
    pub(crate) async_dio: AsyncDio,
    /// A file that is opened for writing can be told to pass the kernel's cache by, be mapped even so, and be read
    /// through the cache by others.
    pub(super) answers_writes: bool,
    pub(super) bdi: Arc<BackingDevice>,
    pub(super) sync: SyncPolicy,
    pub(super) read_only: bool,
    device: String,
    pub(super) lost_writeback: Arc<LostWriteback>,
    notify: Option<Box<Notify>>,
    pub(super) handles: OpenHandles,
    invalidations: Arc<AttributeInvalidations>,
}

impl FuseShell {
    pub(crate) fn new(
        volume: Arc<Volume>,
        waker: Arc<Waker>,
        bdi: Arc<BackingDevice>,
        options: &MountOptions,
        device: String,
    ) -> Self {
        Self {
            volume,
            waker,
            writeback: options.writeback,
            async_dio: options.async_dio,
            answers_writes: false,
            bdi,
            sync: options.sync,
            read_only: options.volume.read_only,
            device,
            lost_writeback: Arc::default(),
            notify: None,
            handles: OpenHandles::default(),
            invalidations: Arc::default(),
        }
    }

    /// What programs had written to the kernel's cache and did not fit. Who asks with fsync(2) or close(2)
    /// is told; the kernel has forgotten it.
    pub(crate) fn lost_writeback(&self) -> Arc<LostWriteback> {
        self.lost_writeback.clone()
    }

    /// Inodes whose attributes the kernel is to ask for again.
    pub(crate) fn invalidations(&self) -> Arc<AttributeInvalidations> {
        self.invalidations.clone()
    }

    /// Something of file `ino` did not fit: all who may have written it are to be told by their next write(2).
    pub(super) fn tell_writers(&self, ino: u64) {
        if self.handles.lose(ino) {
            self.lost_writeback.reported(ino);
        }
        self.shown(ino);
    }

    /// NodeAttributes of `ino` go to the kernel. With them it would not ask before the next write(2), of which somebody
    /// may have to be told something.
    pub(super) fn shown(&self, ino: u64) {
        if self.asks_before_writes() && self.handles.have_news(ino) {
            self.invalidations.post(ino);
        }
    }

    /// Whether the kernel asks with a handle before a write(2). Where its cache does not write back, write(2) is
    /// answered for itself, and what asks so is a read at the end of the file, or lseek(2).
    fn asks_before_writes(&self) -> bool {
        self.writeback
    }

    /// Whether a write(2) through `handle` is refused: once for each loss, and as long as there is no room.
    pub(super) fn is_refused(&self, ino: u64, handle: u64) -> bool {
        if !self.asks_before_writes() || !self.handles.have_news(ino) {
            return false;
        }
        let told = self.handles.ask(ino, handle, !self.room().is_full());
        if told == WriteVerdict::ReportLoss {
            self.lost_writeback.reported(ino);
        }
        told != WriteVerdict::Allowed
    }

    /// A file as the kernel takes it.
    pub(super) fn entry(&self, found: &FileEntry) -> sfs_fuse::NodeEntry {
        self.shown(found.ino);
        entry(found)
    }

    /// The volume is full, and `bytes` of file `ino` that the kernel wanted to write back do not fit.
    pub(super) fn miss(&self, ino: u64, bytes: Range<u64>) {
        if self.lost_writeback.add(ino, bytes) {
            tracing::error!(
                "{}: full: what the kernel's cache has of inode {ino} does not fit and is lost; there \
                 may be more",
                self.device
            );
        }
    }

    /// What the kernel is told of an operation on `ino` that has failed.
    pub(super) fn errno(&self, ino: u64, error: &Error) -> Errno {
        if error_to_errno::is_failure(error) {
            tracing::error!("{}: inode {ino}: {error}", self.device);
        }
        error_to_errno::of(error)
    }

    /// The room that there is.
    pub(super) fn room(&self) -> FreeSpace {
        let space = self.volume.space();
        let total = space.total_blocks.saturating_mul(BLOCK_SIZE as u64);
        FreeSpace { free: space.free_bytes(), total, held_max: self.bdi.held_max() }
    }

    /// Somebody has shut the volume down.
    pub(super) fn log_shutdown(&self, pid: i32) {
        tracing::warn!(
            "{}: process {pid} has shut it down: nothing is written any more",
            self.device
        );
    }

    /// `notify` tells the kernel that a directory has changed.
    pub(crate) fn notify_by(&mut self, notify: Box<Notify>) {
        self.notify = Some(notify);
    }

    /// After a change of directory `ino`, before the answer: attributes that are on their way to another
    /// process were taken before it, and the kernel would believe them for as long as [`TTL`].
    pub(super) fn directory_changed(&self, ino: u64) {
        if let Some(notify) = &self.notify
            && let Err(error) = notify(ino)
        {
            tracing::debug!("{}: the kernel keeps what it knows of {ino}: {error}", self.device);
        }
    }

    /// After an operation on the names of directory `ino`.
    pub(super) fn names_changed(&self, ino: u64) -> Result<()> {
        self.waker.note();
        if self.sync == SyncPolicy::Never { Ok(()) } else { self.volume.sync_file(ino) }
    }
}

/// Who asks, now.
pub(super) fn caller(request: &FuseRequest<'_>) -> Caller {
    Caller { uid: request.uid, gid: request.gid, now: clock::now() }
}

fn entry(entry: &FileEntry) -> sfs_fuse::NodeEntry {
    sfs_fuse::NodeEntry {
        node: entry.ino,
        generation: generation(entry),
        name_ttl: TTL,
        attributes_ttl: TTL,
        attributes: inode_attributes::of(entry.ino, &entry.inode),
    }
}

/// Tells apart files that have had one number: what was made just before a crash may be gone, and its
/// number is given to the next. Who has kept a handle of the one must not be led to the other.
fn generation(FileEntry { ino, inode }: &FileEntry) -> u64 {
    // The kernel knows the root before it asks, and keeps 32 bits.
    let Timestamp { secs, nanos } = inode.btime;
    if *ino == ROOT_INO { 0 } else { u64::from(secs as u32 ^ nanos) }
}

#[cfg(test)]
mod tests {
    use sfs_core::format::{Inode, Label, Layout, Superblock};
    use sfs_core::request::VolumeOptions;
    use sfs_device::RamDevice;

    use super::*;

    const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

    #[test]
    fn files_with_one_number_have_different_generations() {
        let root = sfs_core::root_directory(0, 0, Timestamp { secs: 7, nanos: 8 });
        let at = |ino, secs, nanos| {
            let btime = Timestamp { secs, nanos };
            generation(&FileEntry { ino, inode: Inode { btime, ..root } })
        };
        assert_ne!(at(20, 1_700_000_000, 5), at(20, 1_700_000_000, 6));
        assert_ne!(at(20, 1_700_000_000, 5), at(20, 1_700_000_001, 5));
        assert_eq!(at(20, -1, 999_999_999) >> 32, 0);
        assert_eq!(at(ROOT_INO, 1_700_000_000, 5), 0, "as the kernel has it");
    }

    /// A new volume, and the shell of its mount.
    fn shell(options: &MountOptions) -> FuseShell {
        let device = Arc::new(RamDevice::new(1 << 14));
        let superblock = Superblock {
            uuid: [7; 16],
            label: Label::NONE,
            layout: Layout::new(1 << 14, 256, 0).expect("it fits"),
            hash_key: [1, 2],
            data_layout: Default::default(),
            created: NOW,
            ..Superblock::new(Layout::new(1 << 14, 256, 0).expect("it fits"))
        };
        let root = sfs_core::root_directory(0, 0, NOW);
        sfs_core::make(device.clone(), &superblock, &root).expect("a volume");
        let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("it opens");
        let waker = Arc::new(Waker::default());
        FuseShell::new(Arc::new(volume), waker, Arc::default(), options, "device".into())
    }

    #[test]
    fn who_reads_is_told_nothing_of_what_a_mapping_has_lost() {
        for writeback in [true, false] {
            let shell = shell(&MountOptions { writeback, ..MountOptions::default() });
            let caller = Caller { uid: 0, gid: 0, now: NOW };
            let file =
                shell.volume.make_node(ROOT_INO, b"f", 0o100_600, 0, &caller).expect("a file");
            let handle = shell.opened(file.ino, libc::O_RDWR.cast_unsigned(), true).handle;
            shell.tell_writers(file.ino);
            assert_eq!(shell.is_refused(file.ino, handle), writeback);
            assert!(!shell.is_refused(file.ino, handle), "nothing is on the volume");
        }
    }

    #[test]
    fn what_is_deleted_does_not_count_as_lost() {
        let shell = shell(&MountOptions::default());
        let caller = Caller { uid: 0, gid: 0, now: NOW };
        let file = shell.volume.make_node(ROOT_INO, b"f", 0o100_600, 0, &caller).expect("a file");
        shell.miss(file.ino, 0..1 << 20);
        shell.volume.unlink(ROOT_INO, b"f", &caller).expect("it is removed");
        assert!(shell.lost_writeback.is_any(), "somebody may have it open");
        shell.forget([(file.ino, 1)]);
        assert!(!shell.lost_writeback.is_any());
    }
}

//! State that the operations share, and the steps that follow several of them.
//!
//! A change wakes the background thread, and is synced where `-o sync` or `-o dirsync` asks for it.
//! A failure of the device or the image is logged once, with its error number as the reply. A loss
//! of write-back is recorded, and reported to the writers of the file.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{Caller, FileEntry};
use sfs_core::{Error, Result, Volume};
use sfs_device::BLOCK_SIZE;
use sfs_fuse::{AsyncDio, Errno, FuseRequest};

use super::caching::Caching;
use super::failure_log::FailureLog;
use super::free_space::FreeSpace;
use super::invalidations::AttributeInvalidations;
use super::latencies::Latencies;
use super::lost_writeback::LostWriteback;
use super::open_handles::{OpenHandles, WriteVerdict};
use super::read_ahead::ReadAhead;
use super::{error_to_errno, held_notices, inode_attributes};
use crate::background::Waker;
use crate::bdi::BackingDevice;
use crate::file_clock;
use crate::freeze::Freezer;
use crate::log_thread::LogWork;
use crate::monitor::Monitor;
use crate::mount_options::{AccessLists, MountOptions, SyncPolicy};
use crate::mounted_volume::MountedVolume;
use crate::request_recorder::RequestRecorder;
use crate::survival::Journal;

/// Bytes of `cache=` for each file that the kernel may refer to; a reference takes a quarter of that.
const CACHE_BYTES_PER_REFERENCE: usize = 256;

/// Function that tells the kernel of a changed directory.
pub(crate) type Notify = dyn Fn(u64) -> io::Result<()> + Send + std::marker::Sync;

/// Function that is called when the connection has ended, perhaps several times.
pub(crate) type AtEnd = dyn Fn() + Send + std::marker::Sync;

/// Volume as the kernel sees it. A clone shares everything with this one.
#[derive(Clone)]
pub(crate) struct FuseShell {
    pub(super) volume: Arc<Volume>,
    /// The volume of now, for whoever outlives a state of it.
    mounted: Arc<MountedVolume>,
    pub(super) waker: Arc<Waker>,
    pub(super) log_work: Arc<LogWork>,
    /// Budget of the write buffer in bytes.
    pub(super) write_buffer: usize,
    pub(super) writeback: bool,
    pub(crate) async_dio: AsyncDio,
    /// `true` if the kernel lets a file that is open for writing bypass its cache, although other
    /// processes map the file or read it through the cache.
    pub(super) can_bypass_cache: bool,
    pub(super) bdi: Arc<BackingDevice>,
    /// `Off` also if the kernel does not offer what access lists need.
    pub(super) access_lists: AccessLists,
    pub(super) sync: SyncPolicy,
    device: String,
    pub(super) lost_writeback: Arc<LostWriteback>,
    notify: Option<Arc<Notify>>,
    pub(super) at_end: Option<Arc<AtEnd>>,
    pub(super) handles: Arc<OpenHandles>,
    pub(super) read_ahead: Arc<ReadAhead>,
    invalidations: Arc<AttributeInvalidations>,
    /// Maximum number of files that the kernel may refer to before it is asked to forget some.
    referenced_files_max: usize,
    failures: Arc<FailureLog>,
    pub(super) freezer: Freezer,
    /// Place of the questions about the process that sent a request.
    pub(super) monitor: Arc<Monitor>,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) latencies: Arc<Latencies>,
    /// Held during a trim: one at a time.
    pub(super) trimming: Arc<Mutex<()>>,
    /// Records of a mount that survives its daemon.
    pub(super) journal: Option<Arc<Journal>>,
    /// How long the kernel may keep names and attributes.
    pub(super) caching: Caching,
    /// `true` after the reason why there are no swap files was logged.
    has_refused_swap: Arc<AtomicBool>,
}

impl FuseShell {
    pub(crate) fn new(
        volume: Arc<Volume>,
        (waker, log_work): (Arc<Waker>, Arc<LogWork>),
        bdi: Arc<BackingDevice>,
        options: &MountOptions,
        device: String,
    ) -> Self {
        let mounted = Arc::new(MountedVolume::new(volume.clone()));
        let failures = Arc::new(FailureLog::new(&mounted, device.clone()));
        let speed = bdi.read_speed();
        let freezer = Freezer::new(mounted.clone(), waker.clone(), device.clone());
        let read_ahead = Arc::new(ReadAhead::new(volume.clone(), options.volume.cache, speed));
        Self {
            volume,
            mounted,
            waker,
            log_work,
            write_buffer: options.volume.write_buffer,
            failures,
            freezer,
            monitor: Arc::default(),
            recorder: Arc::default(),
            latencies: Arc::default(),
            trimming: Arc::default(),
            journal: None,
            caching: Caching::default(),
            has_refused_swap: Arc::default(),
            writeback: options.writeback,
            async_dio: options.async_dio,
            can_bypass_cache: false,
            bdi,
            access_lists: options.access_lists,
            sync: options.sync,
            device,
            lost_writeback: Arc::default(),
            notify: None,
            at_end: None,
            handles: Arc::default(),
            read_ahead,
            invalidations: Arc::default(),
            referenced_files_max: options.volume.cache / CACHE_BYTES_PER_REFERENCE,
        }
    }

    /// Returns the shell of `volume`, another state of the volume. Everything else is shared with this one: open handles, what is to
    /// be reported, and how the kernel is told.
    pub(super) fn on(&self, volume: Arc<Volume>) -> Self {
        let read_ahead = Arc::new(self.read_ahead.on(volume.clone()));
        Self { volume, read_ahead, ..self.clone() }
    }

    /// Returns the volume of now, for whoever outlives a state of it.
    pub(crate) fn mounted(&self) -> Arc<MountedVolume> {
        self.mounted.clone()
    }

    /// Has the kernel cache names and attributes for a short time: it sends no request again, or the volume changes beside this mount.
    pub(crate) fn cache_shortly(&mut self) {
        self.caching.is_short = true;
    }

    /// Notes that this daemon has the mount of another one from now on, and whether that has died.
    pub(crate) fn note_start(&mut self, follows_a_death: bool) {
        self.caching.revived = follows_a_death.then(Instant::now);
    }

    /// Returns the record of data that the kernel could not write back. The kernel reports
    /// the loss to fsync(2) and close(2), and then forgets it.
    pub(crate) fn lost_writeback(&self) -> Arc<LostWriteback> {
        self.lost_writeback.clone()
    }

    /// Returns the open handles.
    pub(crate) fn handles(&self) -> Arc<OpenHandles> {
        self.handles.clone()
    }

    /// Has the kernel ask again for the attributes of files with losses, after the mount was taken over from another program.
    pub(crate) fn post_losses(&self) {
        self.handles.lossy_files().into_iter().for_each(|ino| self.attributes_shown(ino));
    }

    /// Returns the recorder of requests.
    pub(crate) fn recorder(&self) -> Arc<RequestRecorder> {
        self.recorder.clone()
    }

    /// Returns the latencies of the requests.
    pub(crate) fn latencies(&self) -> Arc<Latencies> {
        self.latencies.clone()
    }

    /// Returns how content is read ahead.
    pub(crate) fn read_ahead(&self) -> &ReadAhead {
        &self.read_ahead
    }

    /// Returns the lock that is held during a trim.
    pub(crate) fn trimming(&self) -> Arc<Mutex<()>> {
        self.trimming.clone()
    }

    /// Returns what freezes and thaws the mount: requests for changes pass its gate.
    pub(crate) fn freezer(&self) -> Freezer {
        self.freezer.clone()
    }

    /// Calls `at_end` once the connection has ended, while requests may still wait for something that nobody needs any more.
    pub(crate) fn call_at_end(&mut self, at_end: Arc<AtEnd>) {
        self.at_end = Some(at_end);
    }

    /// Asks `monitor` about the processes that send requests.
    pub(crate) fn set_monitor(&mut self, monitor: Arc<Monitor>) {
        self.monitor = monitor;
    }

    /// Returns the queue of inodes whose attributes the kernel must ask for again.
    pub(crate) fn invalidations(&self) -> Arc<AttributeInvalidations> {
        self.invalidations.clone()
    }

    /// Makes the next write(2) of every writer of file `ino` report with `errno` that data of the file was lost.
    pub(super) fn report_loss_to_writers(&self, ino: u64, errno: Errno) {
        if self.handles.record_loss(ino, errno) {
            self.lost_writeback.reported(ino);
        }
        self.attributes_shown(ino);
    }

    /// Must be called for each reply with attributes of `ino`. With valid attributes, the kernel
    /// would send no request before the next write(2), which may have a loss to report; an
    /// invalidation makes the kernel send one.
    pub(super) fn attributes_shown(&self, ino: u64) {
        if self.asks_before_writes() && self.handles.has_unreported_loss(ino) {
            self.invalidations.post(ino);
        }
    }

    /// Returns whether the kernel asks for attributes, with a handle, before a write(2). Without write-back caching
    /// each write(2) is a request of its own, and a request with a handle is a read at the end of the file or
    /// lseek(2).
    fn asks_before_writes(&self) -> bool {
        self.writeback
    }

    /// Returns the error of a write(2) through `handle` if the write is refused: once for each
    /// loss, and while the volume is full.
    pub(super) fn write_refusal(&self, ino: u64, handle: u64) -> Option<Errno> {
        if !self.asks_before_writes() || !self.handles.has_unreported_loss(ino) {
            return None;
        }
        match self.handles.check_write(ino, handle, !self.free_space().is_full()) {
            WriteVerdict::Allowed => None,
            WriteVerdict::ReportLoss(errno) => {
                self.lost_writeback.reported(ino);
                Some(errno)
            }
            WriteVerdict::StillFull => Some(error_to_errno::of(&Error::NoSpace)),
        }
    }

    /// Converts a reference to a file for the kernel.
    pub(super) fn entry(&self, found: &FileEntry) -> sfs_fuse::NodeEntry {
        self.attributes_shown(found.ino);
        if self.volume.referenced_files() > self.referenced_files_max {
            self.invalidations.post_prune();
        }
        entry(found, self.caching.ttl())
    }

    /// Asks the kernel by `send` to forget the files that it has not looked up for the longest
    /// time, until three quarters of the maximum are left. Files in use stay.
    pub(crate) fn prune(&self, send: impl Fn(&[u64]) -> io::Result<()>) {
        let count = self.volume.referenced_files();
        let surplus = count.saturating_sub(self.referenced_files_max / 4 * 3);
        if let Err(error) = send(&self.volume.old_references(surplus)) {
            tracing::debug!("{}: the kernel keeps its {count} files: {error}", self.device);
        }
    }

    /// Records that `bytes` of file `ino`, which the kernel wrote back, are lost because of
    /// `error`.
    pub(super) fn record_loss(&self, ino: u64, bytes: Range<u64>, error: &Error) {
        let is_full = matches!(error, Error::NoSpace);
        if !self.lost_writeback.add(ino, bytes, is_full) {
            return;
        }
        let device = &self.device;
        match error {
            Error::NoSpace => tracing::error!(
                "{device}: the volume is full: data of inode {ino} in the kernel's cache does not \
                 fit and is lost; more data may be lost"
            ),
            Error::NoMemory => tracing::error!(
                "{device}: no memory: data of inode {ino} in the kernel's cache is lost; more data \
                 may be lost; mount with a lower write_buffer=, or give the daemon more memory"
            ),
            // The failure itself is logged with its path.
            error if error_to_errno::is_failure(error) => {}
            error => tracing::error!(
                "{device}: data of inode {ino} in the kernel's cache is lost: {error}; more data \
                 may be lost"
            ),
        }
    }

    /// Returns the error number for an operation on `ino` that has failed, and logs a failure.
    pub(super) fn errno(&self, ino: u64, error: &Error) -> Errno {
        if error_to_errno::is_failure(error) {
            self.failures.log(ino, error);
        }
        error_to_errno::of(error)
    }

    /// Reads the free space of the volume.
    pub(super) fn free_space(&self) -> FreeSpace {
        let space = self.volume.certain_space();
        let total_bytes = space.total_blocks.saturating_mul(BLOCK_SIZE as u64);
        FreeSpace {
            free_bytes: space.available_bytes(),
            total_bytes,
            dirty_bytes_max: self.bdi.dirty_bytes_max(),
        }
    }

    /// Refuses to tell where a block of a file is, and logs the reason once.
    pub(super) fn refuse_block_address(&self) {
        if !self.has_refused_swap.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: a program asked where the blocks of a file are, as swapon(8) does; the volume moves \
                 blocks, so files on it cannot be used for swapping",
                self.device
            );
        }
    }

    /// Notes that file `ino`, which is open with `open_flags`, was read or opened for reading. Returns whether its time of
    /// access has moved. For a write to a part of a page the kernel reads through a descriptor that cannot read.
    pub(super) fn note_access(&self, ino: u64, open_flags: u32) -> bool {
        self.access_time(open_flags)
            .is_some_and(|now| self.volume.note_access(ino, now).unwrap_or(false))
    }

    /// Returns the time of an access by a handle, if it counts as one.
    pub(super) fn access_time(&self, open_flags: u32) -> Option<Timestamp> {
        // While the mount rests, nothing is written.
        let flags = open_flags.cast_signed();
        let is_access = flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_NOATIME == 0;
        (is_access && !self.waker.is_resting()).then(file_clock::now)
    }

    /// Logs that a process has shut the volume down.
    pub(super) fn log_shutdown(&self, pid: i32) {
        tracing::warn!(
            "{}: process {pid} has shut the volume down: nothing is written any more",
            self.device
        );
    }

    /// Sets the function that tells the kernel of changed attributes.
    pub(crate) fn notify_by(&mut self, notify: Arc<Notify>) {
        self.notify = Some(notify);
    }

    /// Tells the kernel that attributes of inode `ino` have changed without a request for them: those of a directory, or of a
    /// file by an access list, a flag, a preallocation or its time of access. Must be called before the reply: attributes that are
    /// on their way to another process were read before the change, and the kernel would cache them. Cached
    /// data stays, so the kernel waits for no request.
    pub(super) fn attributes_changed(&self, ino: u64) {
        if held_notices::hold(ino) {
            return;
        }
        if let Some(notify) = &self.notify
            && let Err(error) = notify(ino)
        {
            tracing::debug!("{}: the kernel keeps its attributes of {ino}: {error}", self.device);
        }
    }

    /// Wakes the background thread after a change of the names or attributes of inode `ino`, and
    /// syncs the inode if the mount options ask for it.
    pub(super) fn names_changed(&self, ino: u64) -> Result<()> {
        self.waker.note();
        if self.sync == SyncPolicy::Never {
            return Ok(());
        }
        self.log_work.note_sync(&self.volume);
        self.volume.sync_file(ino)
    }
}

/// Returns the caller of a request, and the current time.
pub(super) fn caller(request: &FuseRequest<'_>) -> Caller {
    Caller { uid: request.uid, gid: request.gid, now: file_clock::now(), umask: None }
}

fn entry(entry: &FileEntry, ttl: Duration) -> sfs_fuse::NodeEntry {
    sfs_fuse::NodeEntry {
        node: entry.ino,
        generation: generation(entry),
        name_ttl: ttl,
        attributes_ttl: ttl,
        attributes: inode_attributes::of(entry.ino, &entry.inode),
    }
}

/// Returns the generation of an inode, which distinguishes files with the same number: a file that
/// was made just before a crash may be gone, and its number is given to the next file. A file
/// handle of the first file must not open the second.
fn generation(FileEntry { ino, inode }: &FileEntry) -> u64 {
    // The kernel knows the root before it asks, and keeps 32 bits.
    let Timestamp { secs, nanos } = inode.btime;
    if *ino == ROOT_INO { 0 } else { u64::from(secs as u32 ^ nanos) }
}

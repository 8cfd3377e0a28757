//! The daemon's answers to requests at its control socket.
//!
//! A client cannot write to the volume once the last checkpoint has begun:
//! [`ControlHandler::is_over`] is locked while a client's request writes. The kernel's mount is
//! never changed here, but by `sfs-mount -o remount`.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sfs_core::Error;
use sfs_core::request::LifetimeTotals;
use sfs_device::FileDevice;
use sfs_system::mountinfo::{DeviceNumber, MountRecord, MountTable};

use super::messages::{ControlReply, ControlRequest};
use super::server::{AfterUpgrade, HandleRequest, Upgrade};
use crate::background::Waker;
use crate::bdi::BackingDevice;
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::freeze::{FREEZE_SECS_MAX, Freezer, ThawReason};
use crate::fuse::{Latencies, ReadFigures};
use crate::handover::UPGRADE_SECS_MAX;
use crate::handover::giving::{Failure, Giver, HandedOver};
use crate::handover::state::HandedDescriptors;
use crate::inspect::scrubber::Scrubber;
use crate::mount::explain;
use crate::mount_options::MountOptions;
use crate::mount_options::remount::access_times_of;
use crate::mounted_volume::MountedVolume;
use crate::object_volume::ObjectVolume;
use crate::object_volume::reader::ObjectReader;
use crate::recent_cleanings::RecentCleanings;
use crate::request_recorder::RequestRecorder;
use crate::resize_report::{self, ResizeReport};
use crate::sandbox::Limits;
use crate::stat_report::{LatencyReport, ReadsReport, SandboxReport, StoreReport, VolumeReport};
use crate::survival::Journal;
use crate::transport::ActiveTransport;
use crate::volume_cache::VolumeCache;

/// Refusal of a change to read-only.
const FROZEN: &str = "is frozen; thaw it first ('sfs-ctl thaw')";

/// State of a mount that requests need.
pub(crate) struct ControlHandler {
    pub(crate) volume: Arc<MountedVolume>,
    pub(crate) freezer: Freezer,
    pub(crate) recorder: Arc<RequestRecorder>,
    /// The device, to be opened for writing.
    pub(crate) opened: Arc<FileDevice>,
    pub(crate) waker: Arc<Waker>,
    /// Latencies of the requests.
    pub(crate) latencies: Arc<Latencies>,
    /// The last cleaning rounds.
    pub(crate) cleanings: Arc<RecentCleanings>,
    pub(crate) bdi: Arc<BackingDevice>,
    /// The volume in an object store, if it is in one.
    pub(crate) objects: Option<Arc<ObjectVolume>>,
    /// The state of one that is mounted read-only, beside its writer.
    pub(crate) reader: Option<Arc<ObjectReader>>,
    /// The SSD cache, if the volume is mounted with one.
    pub(crate) cache: Option<Arc<VolumeCache>>,
    /// Totals of earlier mounts.
    pub(crate) before: LifetimeTotals,
    pub(crate) options: MountOptions,
    /// `true` if the mount is read-only because the device is, against its options.
    pub(crate) is_write_protected: bool,
    /// Transport, and the reason for it.
    pub(crate) transport: (ActiveTransport, String),
    /// Path of the device.
    pub(crate) device: String,
    pub(crate) number: DeviceNumber,
    /// The kernel's table of mounts, which the sandbox could not open.
    pub(crate) mounts: Arc<MountTable>,
    /// Limits of the daemon; `None` with `nosandbox`.
    pub(crate) limits: Option<Limits>,
    /// `true` once the last checkpoint has begun. Locked while the volume is written for a client.
    pub(crate) is_over: Arc<Mutex<bool>>,
    /// `true` once the kernel has unmounted: work that was asked for ends soon.
    pub(crate) is_ending: Arc<AtomicBool>,
    pub(crate) reads: ReadFigures,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) giver: Giver,
    /// Held during a part of a trim.
    pub(crate) trimming: Arc<Mutex<()>>,
    /// Records of a mount that survives this process.
    pub(crate) journal: Option<Arc<Journal>>,
}

impl HandleRequest for ControlHandler {
    fn handle(&self, request: &ControlRequest) -> ControlReply {
        let outcome = match request {
            ControlRequest::Status => return ControlReply::Status(Box::new(self.report())),
            ControlRequest::Segments { first } => return self.segments(*first),
            ControlRequest::Watch => {
                // Whoever watches is about to unmount.
                self.objects.iter().for_each(|objects| objects.announce_end());
                return ControlReply::Watching;
            }
            ControlRequest::Trace { .. } | ControlRequest::Upgrade { .. } => {
                return ControlReply::Watching;
            }
            ControlRequest::Allow(list) => self.allow(list).map(|()| ControlReply::Allowed),
            ControlRequest::BeginWriting => self.begin_writing().map(|()| ControlReply::Allowed),
            ControlRequest::Changed => self.note_change().map(|()| ControlReply::Allowed),
            ControlRequest::Freeze(secs) => self.freeze(*secs).map(|()| ControlReply::Frozen),
            ControlRequest::Thaw => self.thaw().map(|()| ControlReply::Thawed),
            ControlRequest::Rest => self.rest().map(|()| ControlReply::Resting),
            ControlRequest::Resize { bytes } => self.resize(*bytes).map(ControlReply::Resized),
            ControlRequest::Heat { from, top } => Ok(ControlReply::Heat(self.heat(*from, *top))),
            ControlRequest::Paths(inodes) => Ok(ControlReply::Paths(self.paths(inodes))),
            ControlRequest::FileBlocks { inode, from } => {
                self.file_part(*inode, *from).map(ControlReply::FileBlocks)
            }
            ControlRequest::Clean(segments) => self.clean(*segments).map(ControlReply::Cleaned),
            ControlRequest::Defragment { inode, from } => {
                self.defragment(*inode, *from).map(ControlReply::Defragmented)
            }
            ControlRequest::Trim(start) => self.trim(*start).map(ControlReply::Trimmed),
            ControlRequest::Checkpoint => self.checkpoint().map(ControlReply::Checkpoint),
            ControlRequest::Scrub(request) => {
                self.scrub(request).map(|report| ControlReply::Scrub(Box::new(report)))
            }
            ControlRequest::Cache(request) => self.cache(request),
        };
        outcome.unwrap_or_else(ControlReply::from)
    }

    fn trace(&self, client: &UnixStream, names: bool) -> io::Result<()> {
        self.send_trace(client, names)
    }

    fn upgrade(
        &self,
        client: &UnixStream,
        sockets: HandedDescriptors,
        pause_max: Duration,
    ) -> Upgrade {
        let range = 1..=UPGRADE_SECS_MAX;
        if !range.contains(&pause_max.as_secs()) {
            let refusal = ExitError::usage(format_args!("give 1 to {UPGRADE_SECS_MAX} seconds"));
            return Upgrade { reply: Some(refusal.into()), then: AfterUpgrade::ServeOn };
        }
        let (reply, then) = match self.giver.hand_over(client, sockets, pause_max) {
            Ok(HandedOver::ByMonitor) => {
                return Upgrade { reply: None, then: AfterUpgrade::End };
            }
            Ok(HandedOver::ToProgram(report)) => {
                (ControlReply::Upgraded(report), AfterUpgrade::End)
            }
            Err(Failure::Refused(refusal)) => (refusal.into(), AfterUpgrade::ServeOn),
            Err(Failure::Replaced(refusal)) => (refusal.into(), AfterUpgrade::End),
            Err(Failure::Lost(failure)) => {
                tracing::error!("{}: the mount is lost: {failure}", self.device);
                let line = format_args!("{failure}; no program serves the mount any more");
                let failure = ExitError::with_status(failure.status, line);
                (failure.into(), AfterUpgrade::EndWithError)
            }
        };
        Upgrade { reply: Some(reply), then }
    }
}

impl ControlHandler {
    /// Reports the numbers of the volume. The report has no mount point, which the kernel's table of mounts has.
    pub(super) fn report(&self) -> VolumeReport {
        let (volume, transport) = (&self.volume.now(), &self.transport);
        let report = VolumeReport::of_mounted(volume, &self.before, &self.device, transport);
        let cache = Some(self.bdi.dirty_bound().into());
        let latencies = LatencyReport::of(&self.latencies);
        let reads = Some(ReadsReport::new(&self.reads, self.opened.ring_requests()));
        let sandbox = Some(SandboxReport::from(self.limits));
        let cleanings = self.cleanings.report();
        let store = self.objects.as_deref().map(StoreReport::of);
        let store = store.or_else(|| self.reader.as_deref().map(StoreReport::of_reader));
        VolumeReport { store, cache, reads, latencies, sandbox, cleanings, ..report }
    }

    /// Reports the numbers of the volume, with the mount point and the state of the kernel's mount.
    pub(crate) fn report_of_mount(&self) -> VolumeReport {
        let report = self.report();
        let Ok(Some(mount)) = self.mount() else { return report };
        let mount_point = Some(mount.dir.to_string_lossy().into_owned());
        VolumeReport { mount_point, read_only: mount.is_read_only(), ..report }
    }

    /// Checks that the mount can be changed to the options of `list`.
    fn allow(&self, list: &str) -> Result<(), ExitError> {
        let device = &self.device;
        let options = self.options.changed_by(list)?;
        if options.volume.read_only {
            // The end of the freeze writes.
            let asks = list.split(',').rfind(|option| matches!(*option, "ro" | "rw")) == Some("ro");
            return match asks && self.freezer.is_frozen() {
                true => Err(ExitError::mount(format_args!("{device}: {FROZEN}"))),
                false => Ok(()),
            };
        }
        if self.is_write_protected {
            return Err(ExitError::mount(format_args!("{device}: is write-protected")));
        }
        if self.reader.as_ref().is_some_and(|reader| reader.cache().is_some()) {
            return Err(ExitError::mount(format_args!(
                "{device}: shows what a local cache was left with, which is only read; unmount it, and mount it with another cache file"
            )));
        }
        if self.reader.is_some() {
            return Err(ExitError::mount(format_args!(
                "{device}: is mounted beside its writer; unmount it, and mount it with -o cache_file=FILE"
            )));
        }
        if self.options.volume.skip_recovery {
            return Err(ExitError::mount(format_args!(
                "{device}: was mounted with norecovery, without its latest state; unmount it and mount it again"
            )));
        }
        if self.volume.now().is_read_only() { Ok(()) } else { self.write_all() }
    }

    /// Opens the device for writing and begins writing, if the volume was mounted read-only.
    fn begin_writing(&self) -> Result<(), ExitError> {
        let _is_over = self.keep_mounted()?;
        if self.volume.now().is_read_only() {
            self.opened.allow_writing().map_err(ExitError::mount)?;
        }
        // Before the first write: a process that goes on must not take the volume for one at rest.
        self.end_rest();
        if self.volume.now().is_read_only() {
            let begun = self.volume.now().begin_writing(file_clock::now(), &mut |_| {});
            begun.map_err(|error| explain(&error, self.opened.path(), &self.opened))?;
        }
        // Work is due again after a rest.
        self.waker.note();
        Ok(())
    }

    /// Adopts the options of the kernel's mount.
    fn note_change(&self) -> Result<(), ExitError> {
        let Some(mount) = self.mount()? else { return Ok(()) };
        self.volume.now().set_access_times(access_times_of(&mount));
        // A rest may have begun meanwhile, for another client.
        if mount.is_read_only() { Ok(()) } else { self.begin_writing() }
    }

    /// Freezes the mount for at most `secs` seconds.
    fn freeze(&self, secs: u64) -> Result<(), ExitError> {
        let device = &self.device;
        if !(1..=FREEZE_SECS_MAX).contains(&secs) {
            return Err(ExitError::usage(format_args!("give 1 to {FREEZE_SECS_MAX} seconds")));
        }
        let mounts = self.mounts.mounts().map_err(|error| no_table(&error))?;
        if let Some(reason) = freeze_obstacle(&mounts, self.number) {
            return Err(ExitError::mount(format_args!("{device}: {reason}")));
        }
        self.follow_remount()?;
        let _is_over = self.keep_mounted()?;
        let (table, number) = (self.mounts.clone(), self.number);
        // Without an answer of the kernel the time-out decides.
        let is_mounted = move || !matches!(table.of_number(number), Ok(None));
        self.recorded(|| self.freezer.freeze(Duration::from_secs(secs), is_mounted))
    }

    /// Begins writing if the volume rests although the kernel's mount is for writing: another program than `sfs-mount` has remounted it.
    pub(super) fn follow_remount(&self) -> Result<(), ExitError> {
        let rests = self.journal.as_ref().is_some_and(|journal| journal.is_resting());
        let is_for_writing = || Ok(self.mount()?.is_some_and(|mount| !mount.is_read_only()));
        if rests && is_for_writing()? { self.begin_writing() } else { Ok(()) }
    }

    fn thaw(&self) -> Result<(), ExitError> {
        if self.freezer.thaw(ThawReason::Asked) {
            return Ok(());
        }
        let device = &self.device;
        Err(ExitError::mount(format_args!(
            "{device}: is not frozen; if it was, its time-out has passed, and a copy made since then is useless"
        )))
    }

    pub(super) fn mount(&self) -> Result<Option<MountRecord>, ExitError> {
        self.mounts.of_number(self.number).map_err(|error| no_table(&error))
    }

    /// Makes everything durable and lets the background thread rest. The kernel's mount must be read-only by now.
    fn rest(&self) -> Result<(), ExitError> {
        let device = &self.device;
        self.check_read_only()?;
        if self.freezer.is_frozen() {
            return Err(ExitError::mount(format_args!("{device}: {FROZEN}")));
        }
        if self.volume.now().is_read_only() {
            self.journal.iter().for_each(|journal| journal.rest());
            return self.check_read_only().inspect_err(|_| {
                let _ = self.begin_writing();
            });
        }
        // In this order, as a handover takes them.
        let is_over = self.keep_mounted()?;
        let step = (self.waker.rest(), self.giver.log_work.hold());
        let outcome = self.sync_all();
        if outcome.is_ok() {
            self.journal.iter().for_each(|journal| journal.rest());
        }
        drop((step, is_over));
        if outcome.is_err() {
            self.waker.note();
        }
        outcome?;
        self.check_read_only().inspect_err(|_| self.end_rest())?;
        if self.waker.is_resting() {
            return Ok(());
        }
        self.end_rest();
        Err(ExitError::mount(format_args!("{device}: was changed meanwhile; try again")))
    }

    /// Checks that the kernel's mount is read-only.
    fn check_read_only(&self) -> Result<(), ExitError> {
        let is_read_only = self.mount()?.is_some_and(|mount| mount.is_read_only());
        let refusal = || ExitError::mount(format_args!("{}: is mounted for writing", self.device));
        is_read_only.then_some(()).ok_or_else(refusal)
    }

    fn end_rest(&self) {
        self.journal.iter().for_each(|journal| journal.end_rest());
    }

    /// Grows the volume.
    fn resize(&self, bytes: Option<u64>) -> Result<ResizeReport, ExitError> {
        let device = &self.device;
        let _is_over = self.keep_changeable()?;
        let report = resize_report::grow(&self.volume.now(), bytes)
            .map_err(|error| ExitError::mount(format_args!("{device}: {error}")))?;
        tracing::info!("{device}: {report}");
        Ok(report)
    }

    /// Keeps the last checkpoint from being begun, as long as the returned value lives.
    pub(super) fn keep_mounted(&self) -> Result<MutexGuard<'_, bool>, ExitError> {
        let is_over = self.is_over.lock();
        if *is_over { Err(self.is_unmounting()) } else { Ok(is_over) }
    }

    pub(super) fn is_unmounting(&self) -> ExitError {
        ExitError::mount(format_args!("{}: is being unmounted", self.device))
    }

    /// Returns the error of work that the volume has refused or failed.
    pub(super) fn refusal(&self, error: &Error) -> ExitError {
        let device = &self.device;
        match error {
            Error::Stopped | Error::ReadOnly => ExitError::mount(format_args!(
                "{device}: is read-only after a failed write or a shutdown; see the log, and run \
                 sfs-fsck"
            )),
            error => ExitError::mount(format_args!("{device}: {error}")),
        }
    }

    fn write_all(&self) -> Result<(), ExitError> {
        let _is_over = self.keep_mounted()?;
        self.sync_all()
    }

    fn sync_all(&self) -> Result<(), ExitError> {
        self.recorded(|| self.volume.now().sync_all().map_err(|error| self.refusal(&error)))
    }

    /// Makes everything durable by `sync`, and records that for the process that goes on after the death of this one.
    pub(super) fn recorded<T>(
        &self,
        sync: impl FnOnce() -> Result<T, ExitError>,
    ) -> Result<T, ExitError> {
        let begun = self.journal.as_ref().map(|journal| (journal, journal.begin_sync_all()));
        let synced = sync()?;
        begun.into_iter().for_each(|(journal, begun)| journal.end_sync(begun));
        Ok(synced)
    }
}

fn no_table(error: &io::Error) -> ExitError {
    ExitError::system(format_args!("/proc/self/mountinfo: {error}"))
}

/// Returns the reason why the filesystem `number` among `mounts` must not be frozen.
fn freeze_obstacle(mounts: &[MountRecord], number: DeviceNumber) -> Option<&'static str> {
    let own = || mounts.iter().filter(|mount| mount.number == number);
    if own().any(|mount| mount.dir == Path::new("/")) {
        Some("is the root filesystem, and every program would hang; not frozen")
    } else if own().any(MountRecord::is_read_only) {
        Some("is mounted read-only, and nothing is written to it")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_filesystem_is_not_frozen() {
        let obstacle = |lines: &str| {
            let mounts = MountRecord::parse_all(lines.as_bytes());
            let own = mounts.iter().find(|mount| mount.kind == "fuseblk.sfs").expect("a mount");
            freeze_obstacle(&mounts, own.number)
        };
        let at = |dir: &str, options: &str| {
            format!("30 1 0:40 / {dir} rw - fuseblk.sfs /dev/sdb {options}\n")
        };
        let other_root = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(obstacle(&(other_root.to_owned() + &at("/mnt", "rw"))), None);
        let root = obstacle(&at("/", "rw"));
        assert!(root.is_some_and(|reason| reason.contains("root filesystem")), "{root:?}");
        let both = obstacle(&(at("/mnt", "rw") + &at("/", "rw")));
        assert!(both.is_some_and(|reason| reason.contains("root filesystem")), "{both:?}");
        let read_only = obstacle(&(other_root.to_owned() + &at("/mnt", "ro")));
        assert!(read_only.is_some_and(|reason| reason.contains("read-only")), "{read_only:?}");
    }
}

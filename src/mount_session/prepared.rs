//! Preparing a mount: everything up to the first thread.
//!
//! [`prepare`] opens device and volume, mounts or takes a mount over, and limits the process.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::geteuid;
use parking_lot::Mutex;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use sfs_core::format::{FORMAT_VERSION, Features};
use sfs_core::request::LifetimeTotals;
use sfs_core::{ResizeError, Volume};
use sfs_device::FileDevice;
use sfs_system::memory_limit::MemoryLimit;
use signal_hook::iterator::Signals;

use super::confinement::{self, Sockets};
use super::own_mount::{self, OwnMount, UnannouncedMount};
use super::read_rings;
use super::request::MountRequest;
use super::source::{Medium, Source, SourceVolume};
use super::survives::Survival;
use super::taken_mount;
use crate::background::Waker;
use crate::bdi::{self, BackingDevice};
use crate::device_speed::DeviceSpeed;
use crate::exit_error::ExitError;
use crate::freeze::Freezer;
use crate::fuse::{FuseShell, Latencies, LostWriteback, OpenHandles, ReadAhead, ReadFigures};
use crate::handover::taking::Taken;
use crate::kernel_release;
use crate::log_thread::LogWork;
use crate::logging;
use crate::memory_budget;
use crate::monitor::Monitor;
use crate::mount::{self, MountTarget, OpenedDevice};
use crate::mount_options::MountOptions;
use crate::mounted_volume::MountedVolume;
use crate::panic_hook;
use crate::ready_pipe::ReadyPipe;
use crate::request_recorder::RequestRecorder;
use crate::resize_report::{self, ResizeReport};
use crate::sandbox::Limits;
use crate::survival::{self, Journal, Revival};
use crate::timed_device::TimedDevice;
use crate::transport::{Following, Serving, TransportChoice};
use crate::volume_cache::{self, BegunCache, VolumeCache};

/// A mount that has no threads yet, and is limited to what it needs.
pub(super) struct Prepared {
    pub(super) volume: Arc<MountedVolume>,
    pub(super) device: Arc<FileDevice>,
    pub(super) timed: Arc<TimedDevice>,
    pub(super) options: MountOptions,
    pub(super) is_write_protected: bool,
    /// Budgets that do not fit the memory, for the user.
    pub(super) too_large: Option<String>,
    pub(super) before: LifetimeTotals,
    pub(super) name: String,
    pub(super) waker: Arc<Waker>,
    pub(super) log_work: Arc<LogWork>,
    pub(super) bdi: Arc<BackingDevice>,
    pub(super) freezer: Freezer,
    pub(super) monitor: Arc<Monitor>,
    pub(super) shell: ShellParts,
    pub(super) reads: ReadFigures,
    pub(super) unannounced: Option<UnannouncedMount>,
    pub(super) serving: Serving,
    pub(super) own: OwnMount,
    /// Root directory of a mount that does not answer yet.
    pub(super) root: Option<File>,
    pub(super) sockets: Sockets,
    pub(super) limits: Option<Limits>,
    pub(super) signals: Signals,
    /// SSD cache of the volume.
    pub(super) cache: Option<Arc<VolumeCache>>,
    /// Reason why the volume's cache is not used, for the user.
    pub(super) no_cache: Option<String>,
    /// Use of the cache, which ends after the volume was closed.
    pub(super) begun: Option<BegunCache>,
    /// Medium of the volume.
    pub(super) medium: Medium,
    /// Records of a mount that survives this process.
    pub(super) journal: Option<Arc<Journal>>,
}

/// Parts of the shell that others use as well.
pub(super) struct ShellParts {
    pub(super) lost_writeback: Arc<LostWriteback>,
    pub(super) handles: Arc<OpenHandles>,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) latencies: Arc<Latencies>,
    pub(super) trimming: Arc<Mutex<()>>,
}

impl ShellParts {
    fn of(shell: &FuseShell) -> Self {
        Self {
            lost_writeback: shell.lost_writeback(),
            handles: shell.handles(),
            recorder: shell.recorder(),
            latencies: shell.latencies(),
            trimming: shell.trimming(),
        }
    }
}

/// Prepares the mount: makes it, or takes it over from another program. Nothing is written to a volume that is taken over before
/// the other program writes nothing any more. `no_root` is why daemons that follow have no root directory.
pub(super) fn prepare(
    (request, no_root): (&MountRequest, Option<String>),
    path: &Path,
    dir: &Path,
    pipe: &mut ReadyPipe,
    (monitor, taken): (Arc<Monitor>, &mut Option<Taken>),
) -> Result<Prepared, ExitError> {
    let (medium, opened, timed) = Medium::open(request, path, pipe, &monitor, taken.as_mut())?;
    let mut limit = MemoryLimit::of_this_process();
    let survival = match taken {
        // The first daemon has decided, and has records only if its mount survives.
        Some(_) if request.follows_a_death() => Survival::GoesOn,
        Some(_) => Survival::Off,
        None => request.survival(dir, &opened, no_root)?,
    };
    let survives = survival.is_on();
    let OpenedDevice { device, mut options, is_write_protected } = opened;
    options.survive = Some(survives);
    let mut transport = request.transport;
    if survives {
        transport = TransportChoice::Dev;
        limit.bytes = limit.bytes.saturating_sub(survival::MEMORY_BYTES);
        // The next daemon waits for the end of this one. A dump takes long, and ends never if its handler writes to the mount.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(ExitError::system)?;
    }
    let too_large = memory_budget::fit(&mut options.volume, limit)?;
    // The kernel opens the source of such a mount.
    let is_block_device = !request.is_in_store() && device.is_block_device();
    let direct_io = device.direct_io();
    options.volume.has_log_thread = true;
    options.volume.commits_soon = !hears_of_syncs(is_block_device, transport);
    let timed = timed.unwrap_or_else(|| Arc::new(TimedDevice::new(device.clone())));
    options.volume.epoch = volume_cache::random_epoch();
    let source = Source { medium, device, timed };
    let SourceVolume { volume, cache, no_cache } =
        source.volume(path, &options, pipe, (taken.as_ref(), limit))?;
    let before = volume.lifetime_before();
    let name = path.display().to_string();
    let begun = cache.as_ref().map(|cache| cache.begin(options.volume.epoch, &name, &volume));
    let grown = if taken.is_none() { grow(&volume, &options) } else { None };
    let waker = Arc::new(Waker::default());
    let read_speed = source.read_speed(&volume, cache.as_deref(), taken.as_ref());
    // From here on an error drops the medium before the volume, which writes nothing when it is dropped.
    let Source { medium, device, timed } = source;
    read_rings::adjust(&device, &volume, read_speed);
    let reads_asynchronously = match taken {
        Some(taken) => taken.reads_asynchronously(),
        None => reads_asynchronously(&options, read_speed),
    };
    let bdi = Arc::new(BackingDevice::new(device.clone(), read_speed, reads_asynchronously));
    let log_work = Arc::new(LogWork::new(Some(device.clone())));
    let threads = (waker.clone(), log_work.clone());
    let mut shell = FuseShell::new(volume.clone(), threads, bdi.clone(), &options, name.clone());
    let freezer = shell.freezer();
    let mounted = shell.mounted();
    shell.set_monitor(monitor.clone());
    // After `umount -f` requests still wait for a store that does not answer.
    if let Some(objects) = medium.objects().cloned() {
        shell.call_at_end(Arc::new(move || objects.begin_to_end()));
    }
    if let Some(reader) = medium.reader().cloned() {
        shell.call_at_end(Arc::new(move || reader.begin_to_end()));
        shell.cache_shortly();
    }
    let parts = ShellParts::of(&shell);
    let reads = shell.read_ahead().figures(read_speed);
    let handles = parts.handles.clone();
    let opened = Box::new(move || handles.opened_now());
    let both: (_, Box<survival::OpenedNow>) = (volume.clone(), opened);
    let mut obstacle = None;
    let (journal, revival) = match (taken.as_mut(), survival) {
        (Some(taken), _) => survival::revive(taken.take_records(), both, &name)?,
        (None, Survival::Begins(areas)) => (Some(survival::begin(*areas, both, &name)), None),
        (None, Survival::Impossible(reason)) => {
            obstacle = Some(reason);
            (None, None)
        }
        (None, _) => (None, None),
    };
    if let Some(journal) = &journal {
        shell.set_journal(journal.clone());
    }
    // The kernel claims the device of a mount, and not a cache.
    if !request.is_in_store() {
        device.yield_claim();
    }
    let signals = own_mount::signals()?;
    let (unannounced, mut serving, own, root) = match taken {
        Some(taken) => {
            taken.adopt(&volume, &parts.handles, &parts.lost_writeback);
            if let Some(revival) = &revival {
                revival.adopt_references(&volume);
                parts.handles.adopt_opened(revival.handles());
            }
            shell.post_losses();
            shell.note_start(request.follows_a_death());
            let served = (shell, mount::threads(&options, request.is_in_store()));
            let (serving, own) = taken_mount::session(taken, served, monitor.clone(), &name)?;
            (None, serving, own, None)
        }
        None => {
            let target = MountTarget { device: path, is_block_device, dir };
            let (unannounced, serving, own, root) =
                mount_and_open(&target, &options, (transport, request), shell, monitor.clone())?;
            (Some(unannounced), serving, own, Some(root))
        }
    };
    if let Some(reader) = medium.reader() {
        serving.follow(Following::of(reader.clone(), &options.volume, name.clone()));
    }
    device.admit_inspection().map_err(|error| ExitError::mount(format_args!("{name}: {error}")))?;
    if !request.foreground {
        logging::to_system();
    }
    panic_hook::end_the_process(name.clone(), survives);
    if !direct_io && medium.reader().is_none() {
        tracing::warn!("{name}: its filesystem refuses direct I/O; using the page cache");
    }
    if let Some(obstacle) = obstacle {
        serving.reason += &format!("; the mount does not survive its daemon: {obstacle}");
    }
    log_start(&name, &volume, &serving, grown.as_ref());
    let number = own.number();
    let sockets = match taken {
        Some(taken) => Sockets::adopt(dir, &options, taken),
        None => Sockets::listen(dir, number, &options),
    };
    let limits = confinement::limit(path, number, &options, &bdi, &sockets, &serving)?;
    if let Some(taken) = taken {
        taken.wait_for_commit()?;
        let is_resting = revival.as_ref().is_some_and(Revival::is_resting);
        taken_mount::begin_writing(&volume, (taken.is_read_only(), is_resting), &own, &name);
    }
    if let (Some(mut revival), Some(journal)) = (revival, &journal) {
        if !serving.sends_again() {
            revival.forget_replies();
        }
        serving.replay(&revival, journal)?;
        revival.end(journal);
    }
    Ok(Prepared {
        volume: mounted,
        device,
        timed,
        options,
        is_write_protected,
        too_large,
        before,
        name,
        waker,
        log_work,
        bdi,
        freezer,
        monitor,
        shell: parts,
        reads,
        unannounced,
        serving,
        own,
        root,
        sockets,
        limits,
        signals,
        cache,
        no_cache,
        begun,
        medium,
        journal,
    })
}

/// Grows the volume to the size of its device, if `-o grow` asks for that. The volume is mounted in any case.
fn grow(volume: &Volume, options: &MountOptions) -> Option<Result<ResizeReport, ResizeError>> {
    let is_wanted = options.grow && !options.volume.read_only;
    is_wanted.then(|| resize_report::grow(volume, None))
}

/// Returns whether the kernel may read asynchronously from a device of this speed.
fn reads_asynchronously(options: &MountOptions, read_speed: Option<DeviceSpeed>) -> bool {
    // The kernel asks for no more than 128 KiB at a time otherwise.
    let is_fed =
        bdi::can_be_configured() && ReadAhead::window_max(options.volume.cache, read_speed) > 0;
    options.async_reads.are_wanted(read_speed, is_fed)
}

/// Logs how the mount is served, and what became of `-o grow`.
fn log_start(
    name: &str,
    volume: &Volume,
    serving: &Serving,
    grown: Option<&Result<ResizeReport, ResizeError>>,
) {
    let (transport, reason) = (serving.transport, &serving.reason);
    tracing::info!("{name}: transport {transport}: {reason}");
    match grown {
        Some(Ok(report)) => tracing::info!("{name}: {report}"),
        Some(Err(error)) => tracing::warn!("{name}: was not grown: {error}"),
        None => {}
    }
    warn_about(volume, serving.enforces_lists, name);
}

/// Logs warnings about a volume that was just opened, and whose access lists the kernel enforces or not.
fn warn_about(volume: &Volume, enforces_lists: bool, name: &str) {
    let has_lists = volume.superblock().features.read_only_compatible & Features::ACCESS_LISTS != 0;
    if has_lists && !enforces_lists {
        tracing::warn!(
            "{name}: this mount ignores the volume's access lists: the mode alone decides about access"
        );
    }
    if let Some(version) = volume.upgraded_from() {
        tracing::warn!(
            "{name}: upgraded from format version {version} to {FORMAT_VERSION}: \
             older programs cannot use the volume any more"
        );
    }
    if !volume.remembered().is_empty() {
        tracing::warn!(
            "{name}: this volume has recorded errors; 'sfs-ctl stat' shows them, and sfs-fsck should be run"
        );
    }
}

/// Returns whether sync(2) reaches the volume: the kernel sends SYNCFS, and the transport supports
/// it.
fn hears_of_syncs(is_block_device: bool, transport: TransportChoice) -> bool {
    let is_kernel_mount = is_block_device && geteuid().is_root();
    transport != TransportChoice::Fuser
        && mount::syncfs::is_sent(is_kernel_mount, &kernel_release::running())
}

/// Mounts, and agrees with the kernel on the protocol. The [`UnannouncedMount`] comes first in the tuple, so that
/// it is dropped last: an unmount may wait for an answer, and gets an error only once [`Serving`] has closed the
/// connection.
fn mount_and_open(
    target: &MountTarget<'_>,
    options: &MountOptions,
    (transport, request): (TransportChoice, &MountRequest),
    shell: FuseShell,
    monitor: Arc<Monitor>,
) -> Result<(UnannouncedMount, Serving, OwnMount, File), ExitError> {
    let table = own_mount::table()?;
    let channel = mount::mount(target, options)?;
    let own = OwnMount::at(target.dir, table, monitor, target.device.display().to_string())?;
    let unannounced = UnannouncedMount::new(own.clone());
    let root = own_mount::root(target.dir)?;
    let threads = (mount::threads(options, request.is_in_store()), request.never_sent_again);
    let opened = transport.open(channel, shell, threads);
    let serving = opened.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => ExitError::mount(error),
        _ => ExitError::mount(format_args!("cannot agree on FUSE with the kernel: {error}")),
    })?;
    Ok((unannounced, serving, own, root))
}

//! A mount from its command line to its last checkpoint.
//!
//! [`run`] opens the device and the volume, mounts, and starts the threads: those of the transport,
//! the background thread, the signal thread and the thread of the control socket. When the
//! transport's loop ends, the background thread is stopped and the volume is closed with its last
//! checkpoint. The first write to the device comes after all checks, and the last checkpoint comes
//! after the last request.

mod confinement;
mod own_mount;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use confinement::Sockets;
use nix::mount::MntFlags;
use nix::unistd::geteuid;
use own_mount::{OwnMount, UnannouncedMount};
use parking_lot::Mutex;
use sfs_core::format::{FORMAT_VERSION, Features};
use sfs_core::{ResizeError, Volume, read_superblock};
use sfs_device::{BLOCK_SIZE, FileDevice};
use sfs_system::memory_limit::MemoryLimit;
use sfs_system::mountinfo;

use crate::background::{Background, Waker};
use crate::bdi::{self, BackingDevice};
use crate::control::{ControlClient, ControlHandler, ControlServer, ControlSocket};
use crate::device_speed::{self, DeviceSpeed};
use crate::exit_error::{self, ExitError};
use crate::freeze::{Freezer, ThawReason};
use crate::fuse::{FuseShell, ReadAhead};
use crate::health_log::HealthLog;
use crate::inspect::scrubber::Scrubber;
use crate::kernel_release;
use crate::log_thread::{LogThread, LogWork};
use crate::logging;
use crate::memory_budget;
use crate::metrics::MetricsServer;
use crate::monitor::Monitor;
use crate::mount::{self, MountTarget, OpenedDevice, explain, open_device, open_volume};
use crate::mount_options::MountOptions;
use crate::panic_hook;
use crate::ready_pipe::{self, Detached, ReadyPipe};
use crate::recent_cleanings::RecentCleanings;
use crate::resize_report::{self, ResizeReport};
use crate::timed_device::TimedDevice;
use crate::transport::{Serving, TransportChoice};
use crate::unsafe_calls;
use crate::volume_cache::{self, VolumeCache};

/// Number of threads that make several requests to the device at the same time: those that serve reads, and two that read ahead.
const READ_RINGS: usize = 6;

/// Arguments of `sfs-mount`.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Device or image file.
    pub device: PathBuf,
    /// Mount point.
    pub dir: PathBuf,
    /// Options of `-o`.
    pub options: MountOptions,
    /// Transport of requests.
    pub transport: TransportChoice,
    /// `true` if this process serves the mount, instead of returning when the mount answers.
    pub foreground: bool,
    /// `true` if more is logged.
    pub verbose: bool,
    /// `true` if everything is checked, but nothing is mounted.
    pub fake: bool,
}

/// Mounts the volume. Without `foreground`, the call returns when the mount answers, and another
/// process serves the mount.
///
/// # Errors
///
/// [`ExitError`] with the status that mount(8) defines, and a line for the user.
pub fn run(request: &MountRequest) -> Result<(), ExitError> {
    request.transport.check(&request.options)?;
    let dir = check_dir(&request.dir)?;
    let path = request.device.canonicalize().unwrap_or_else(|_| request.device.clone());
    // The daemon has another working directory.
    let request = &with_absolute_cache(request);
    if request.fake {
        let pipe = &mut ReadyPipe::foreground();
        let mut opened = open_device(&path, &request.options, pipe)?;
        refuse_newer(&opened)?;
        // A volume that is opened for writing has another epoch, and its cache would be empty.
        opened.options.volume.read_only = true;
        let timed = Arc::new(TimedDevice::new(opened.device.clone()));
        open_volume((opened.device.clone(), timed), &path, &opened.options, pipe)?;
        if opened.is_write_protected {
            ready_pipe::warn(&format!(
                "WARNING: {} is write-protected, would be mounted read-only",
                path.display()
            ));
        }
        return Ok(());
    }
    let mut pipe = if request.foreground {
        logging::to_terminal(request.verbose);
        ReadyPipe::foreground()
    } else {
        match ready_pipe::detach()? {
            Detached::Starter => return Ok(()),
            Detached::Daemon(pipe) => pipe,
        }
    };
    match serve(request, &path, &dir, &mut pipe) {
        Ok(()) => Ok(()),
        Err(failure) => match pipe.report_failure(failure) {
            Some(failure) => Err(failure),
            None => Ok(()),
        },
    }
}

/// Returns the request with an absolute path of the cache device.
fn with_absolute_cache(request: &MountRequest) -> MountRequest {
    let mut request = request.clone();
    if let Some(path) = &mut request.options.cache_device {
        *path = path.canonicalize().unwrap_or_else(|_| path.clone());
    }
    request
}

/// Refuses a volume with a feature that this program must know to write, unless it is mounted read-only.
fn refuse_newer(opened: &OpenedDevice) -> Result<(), ExitError> {
    // Another error is met again when the volume is opened, and explained there.
    let Ok(superblock) = read_superblock(&*opened.device) else { return Ok(()) };
    match superblock.write_incompatibility().filter(|_| !opened.options.volume.read_only) {
        None => Ok(()),
        Some(reason) => {
            let error = sfs_core::Error::Incompatible(reason);
            Err(explain(&error, opened.device.path(), &opened.device))
        }
    }
}

/// Returns the absolute path of the mount point, unless it is no directory or already has a FUSE mount.
fn check_dir(dir: &Path) -> Result<PathBuf, ExitError> {
    let shown = dir.display();
    let mounts = mountinfo::mounts().unwrap_or_default();
    let mounted = mountinfo::mount_point(dir, &mounts);
    let at = |absolute: &Path| mounts.iter().rev().find(|mount| mount.dir == absolute);
    if let Some(mount) = mounted.as_deref().and_then(at).filter(|mount| mount.is_sfs())
        && ControlClient::is_dead(mount)
    {
        return Err(ExitError::mount(format_args!(
            "{shown}: the daemon of an earlier mount has died; 'sfs-umount {shown}' removes that mount"
        )));
    }
    let absolute = dir.canonicalize().map_err(|error| {
        ExitError::mount(format_args!("{shown}: mount point: {}", exit_error::reason(&error)))
    })?;
    if !absolute.is_dir() {
        return Err(ExitError::mount(format_args!("{shown}: mount point is not a directory")));
    }
    match at(&absolute) {
        Some(mount) if mount.kind.starts_with("fuse") => Err(ExitError::mount(format_args!(
            "{shown}: {} is mounted there already",
            mount.source.display()
        ))),
        _ => Ok(absolute),
    }
}

/// Makes the device's rings, before the sandbox and after the monitor was forked, which inherits none. Returns the speed of
/// reading. The kernel gives a thread that reads by a ring threads of its own, without limits: they end with the thread here.
fn measure_with_rings(
    device: &FileDevice,
    cache: Option<&VolumeCache>,
    volume: &Volume,
) -> Option<DeviceSpeed> {
    let measure = || {
        device.make_read_rings(READ_RINGS);
        if let Some(cache) = cache {
            cache.make_read_rings(READ_RINGS);
        }
        device_speed::measure(device, &volume.superblock().layout)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sfs-measure".into());
        thread.spawn_scoped(scope, measure).ok()?.join().ok().flatten()
    })
}

/// Serves the mount in this process, from opening the device to the last checkpoint.
fn serve(
    request: &MountRequest,
    path: &Path,
    dir: &Path,
    pipe: &mut ReadyPipe,
) -> Result<(), ExitError> {
    unsafe_calls::limit_allocator();
    let _ = unsafe_calls::become_io_flusher();
    // If the daemon is killed, dirty data of the kernel's cache is lost with it. Only root may set
    // the value.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let monitor = Arc::new(start_monitor(&request.options, pipe)?);
    let opened = open_device(path, &request.options, pipe)?;
    let OpenedDevice { device, mut options, is_write_protected } = opened;
    let limit = MemoryLimit::of_this_process();
    let too_large = memory_budget::fit(&mut options.volume, limit)?;
    let (is_block_device, direct_io) = (device.is_block_device(), device.direct_io());
    options.volume.has_log_thread = true;
    options.volume.commits_soon = !hears_of_syncs(is_block_device, request.transport);
    let timed = Arc::new(TimedDevice::new(device.clone()));
    let volume_cache::Opened { cache, warning: no_cache } =
        volume_cache::open(&device, &options, memory_budget::cache_index_bytes(limit));
    options.volume.epoch = volume_cache::random_epoch();
    let used = match &cache {
        Some(cache) => cache.before(timed.clone()),
        None => timed.clone(),
    };
    let volume = open_volume((device.clone(), used), path, &options, pipe)?;
    let before = volume.lifetime_before();
    let name = path.display().to_string();
    let begun = cache.as_ref().map(|cache| cache.begin(options.volume.epoch, &name, &volume));
    let grown = grow(&volume, &options);
    let waker = Arc::new(Waker::default());
    let read_speed = measure_with_rings(&device, cache.as_deref(), &volume);
    volume.set_read_gap(read_speed.map_or(0, DeviceSpeed::gap_blocks));
    let turn_bytes = read_speed.map_or(usize::MAX, DeviceSpeed::turn_bytes);
    device.set_turn(turn_bytes, read_speed.map_or(0, DeviceSpeed::request_bytes));
    volume.set_read_turn(turn_bytes / BLOCK_SIZE);
    // The kernel asks for no more than 128 KiB at a time otherwise.
    let is_fed =
        bdi::can_be_configured() && ReadAhead::window_max(options.volume.cache, read_speed) > 0;
    let reads_asynchronously = options.async_reads.are_wanted(read_speed, is_fed);
    let bdi = Arc::new(BackingDevice::new(device.clone(), read_speed, reads_asynchronously));
    let log_work = Arc::new(LogWork::new(Some(device.clone())));
    let threads = (waker.clone(), log_work.clone());
    let mut shell = FuseShell::new(volume.clone(), threads, bdi.clone(), &options, name.clone());
    let freezer = Freezer::new(volume.clone(), waker.clone(), name.clone());
    shell.set_gate(freezer.gate());
    shell.set_monitor(monitor.clone());
    let (lost_writeback, recorder) = (shell.lost_writeback(), shell.recorder());
    let latencies = shell.latencies();
    let reads = shell.read_ahead().figures(read_speed);
    let cleanings = Arc::new(RecentCleanings::default());
    volume.observe_cleaning(cleanings.clone());
    let trimming = shell.trimming();
    let scrubber = Arc::new(Scrubber::new(volume.clone(), name.clone()));
    device.yield_claim();
    let target = MountTarget { device: path, is_block_device, dir };
    let signals = own_mount::signals()?;
    let (unannounced, serving, own, root) =
        mount_and_open(&target, &options, request.transport, shell, monitor)?;
    let (transport, reason) = (serving.transport, serving.reason.clone());
    if !request.foreground {
        logging::to_system();
    }
    panic_hook::end_the_process(name.clone());
    if !direct_io {
        tracing::warn!("{name}: its filesystem refuses direct I/O; using the page cache");
    }
    tracing::info!("{name}: transport {transport}: {reason}");
    match &grown {
        Some(Ok(report)) => tracing::info!("{name}: {report}"),
        Some(Err(error)) => tracing::warn!("{name}: was not grown: {error}"),
        None => {}
    }
    warn_about(&volume, serving.enforces_lists, &name);
    let number = own.number();
    let sockets = Sockets::listen(dir, number, &options);
    let limits = confinement::limit(path, number, &options, &bdi, &sockets, &serving)?;
    let no_thread = |error| ExitError::system(format_args!("cannot start a thread: {error}"));
    let thawing = freezer.clone();
    own.unmount_on(signals, move || {
        thawing.thaw(ThawReason::Unmount);
    })?;
    let look = watch(volume.clone(), timed, log_work.clone(), name.clone());
    let log_thread = LogThread::start(volume.clone(), log_work).map_err(no_thread)?;
    let background =
        Background::start(volume.clone(), waker.clone(), bdi.clone(), name.clone(), look);
    let background = background.map_err(no_thread)?;
    if let Some(cache) = &cache {
        cache.start().map_err(no_thread)?;
    }
    if let Some(warning) = &no_cache {
        tracing::warn!("{warning}");
    }
    let is_over = Arc::new(Mutex::new(false));
    let is_ending = Arc::new(AtomicBool::new(false));
    let handler = Arc::new(ControlHandler {
        volume: volume.clone(),
        freezer: freezer.clone(),
        recorder,
        opened: device.clone(),
        waker,
        latencies,
        reads,
        cleanings,
        bdi: bdi.clone(),
        cache: cache.clone(),
        before,
        options,
        is_write_protected,
        transport: (transport, reason),
        device: name.clone(),
        number,
        mounts: own.table(),
        limits,
        is_over: is_over.clone(),
        is_ending: is_ending.clone(),
        scrubber: scrubber.clone(),
        trimming,
    });
    let control = sockets.control.and_then(|socket| start_control(dir, socket, handler.clone()));
    let report = move || handler.report_of_mount();
    let metrics = MetricsServer::start(&name, sockets.metrics, Arc::new(report));
    // The mount answers only once this thread runs.
    let own_while_serving = own.clone();
    let serve = move || serving.run(|error| own_while_serving.lose(error));
    let serving = std::thread::Builder::new().name("sfs-serve".into()).spawn(serve);
    let serving = serving.map_err(no_thread)?;
    let answered = wait_for_answer(root, &own).inspect(|()| {
        bdi.configure(volume.certain_space().available_bytes());
        let warning = || format!("WARNING: {name} is write-protected, mounted read-only");
        let warnings =
            is_write_protected.then(warning).into_iter().chain(too_large).chain(no_cache);
        pipe.report_ready(&warnings.collect::<Vec<_>>());
    });
    match answered {
        Ok(_) => unannounced.keep(),
        Err(_) => drop(unannounced),
    }
    let outcome = join(serving, &own, &name, answered);
    own.end();
    is_ending.store(true, Ordering::Release);
    scrubber.begin_to_stop();
    drop(metrics);
    log_thread.stop();
    background.stop();
    *is_over.lock() = true;
    freezer.thaw(ThawReason::Unmount);
    let closed = close(&volume, &name);
    if let Some(begun) = begun {
        begun.end();
    }
    // Finding the names of files with lost data may read the whole tree, so it comes after all data has been written.
    let lost = lost_writeback.report(&volume, dir);
    if !lost.unreported.is_empty() {
        tracing::error!("{name}: {lost}");
    }
    if let Some(control) = control {
        control.end(&closed, lost);
    }
    closed?;
    outcome.map_err(|error| {
        ExitError::system(format_args!("{}: the mount does not answer: {error}", dir.display()))
    })
}

/// Waits until the mount with the directory `root` answers.
fn wait_for_answer(root: File, own: &OwnMount) -> io::Result<()> {
    let dev = bdi::wait_for(&root)?;
    if own.has(dev) { Ok(()) } else { Err(ErrorKind::ConnectionAborted.into()) }
}

/// Waits until the mount has been served to its end. Returns the error of the session if the mount
/// has not answered (`answered`), was aborted or has lost requests.
fn join(
    serving: JoinHandle<io::Result<()>>,
    own: &OwnMount,
    name: &str,
    answered: io::Result<()>,
) -> io::Result<()> {
    let Ok(Err(error)) = serving.join() else { return answered };
    tracing::debug!("{name}: the session ended: {error}");
    let is_aborted = error.kind() == ErrorKind::ConnectionAborted;
    if is_aborted {
        // No process will answer requests to this mount.
        let _ = own.detach(MntFlags::MNT_DETACH);
    }
    if answered.is_err() || is_aborted || own.is_lost() { Err(error) } else { Ok(()) }
}

/// Grows the volume to the size of its device, if `-o grow` asks for that. The volume is mounted in any case.
fn grow(volume: &Volume, options: &MountOptions) -> Option<Result<ResizeReport, ResizeError>> {
    let is_wanted = options.grow && !options.volume.read_only;
    is_wanted.then(|| resize_report::grow(volume, None))
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

/// Returns a function that tells the volume how long writing takes, adjusts the length of batches, and logs what becomes wrong
/// with the volume.
fn watch(
    volume: Arc<Volume>,
    timed: Arc<TimedDevice>,
    log_work: Arc<LogWork>,
    name: String,
) -> impl FnMut() + Send + 'static {
    let mut log = HealthLog::default();
    move || {
        timed.take_measurements().into_iter().for_each(|micros| volume.note_write_speed(micros));
        log_work.adjust(&volume);
        log.look(&volume, &name);
    }
}

/// Returns whether sync(2) reaches the volume: the kernel sends SYNCFS, and the transport supports
/// it.
fn hears_of_syncs(is_block_device: bool, transport: TransportChoice) -> bool {
    let is_kernel_mount = is_block_device && geteuid().is_root();
    transport != TransportChoice::Fuser
        && mount::syncfs::is_sent(is_kernel_mount, &kernel_release::running())
}

/// Writes the last checkpoint and closes the volume. An error is logged as well.
fn close(volume: &Volume, name: &str) -> Result<(), ExitError> {
    volume.close().map_err(|error| {
        let failure = match volume.is_closed() {
            true => format!(
                "{name}: {error}; the data that was not yet written is lost, and all other data is \
                 on the device; run sfs-fsck"
            ),
            false => format!(
                "{name}: the last checkpoint failed: {error}; the data written last may be lost"
            ),
        };
        tracing::error!("{failure}");
        ExitError::mount(failure)
    })
}

/// Mounts, and agrees with the kernel on the protocol. The [`UnannouncedMount`] comes first in the tuple, so that
/// it is dropped last: an unmount may wait for an answer, and gets an error only once [`Serving`] has closed the
/// connection.
fn mount_and_open(
    target: &MountTarget<'_>,
    options: &MountOptions,
    transport: TransportChoice,
    shell: FuseShell,
    monitor: Arc<Monitor>,
) -> Result<(UnannouncedMount, Serving, OwnMount, File), ExitError> {
    let table = own_mount::table()?;
    let channel = mount::mount(target, options)?;
    let own = OwnMount::at(target.dir, table, monitor, target.device.display().to_string())?;
    let unannounced = UnannouncedMount::new(own.clone());
    let root = own_mount::root(target.dir)?;
    let opened = transport.open(channel, shell, mount::threads(options));
    let serving = opened.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => ExitError::mount(error),
        _ => ExitError::mount(format_args!("cannot agree on FUSE with the kernel: {error}")),
    })?;
    Ok((unannounced, serving, own, root))
}

/// Starts the process that keeps the privileges which the sandbox takes from this one.
fn start_monitor(options: &MountOptions, pipe: &mut ReadyPipe) -> Result<Monitor, ExitError> {
    if !options.sandbox {
        return Ok(Monitor::default());
    }
    Monitor::start(pipe).map_err(|error| {
        ExitError::system(format_args!("cannot start the monitor: {error}; see -o nosandbox"))
    })
}

/// Starts the control socket. A mount works without one; programs that need it report that it is missing.
fn start_control(
    dir: &Path,
    socket: ControlSocket,
    handler: Arc<ControlHandler>,
) -> Option<ControlServer> {
    match socket.serve(handler) {
        Ok(control) => Some(control),
        Err(error) => {
            tracing::warn!("{}: no control socket: {error}", dir.display());
            None
        }
    }
}

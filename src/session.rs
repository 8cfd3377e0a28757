//! A mount from beginning to end.
//!
//! Owns: the order: look, open, mount, serve, unmount, last checkpoint.
//! Promises: nothing is written to the device before everything has been checked; the last
//! checkpoint comes after the last request.
//! Never: returns in the daemon without having written everything, unless the device failed.

mod mounted;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mounted::{Mounted, Unanswered};
use nix::mount::MntFlags;
use parking_lot::Mutex;
use sfs_core::format::{CorruptionKind, FORMAT_VERSION, LOCATOR_ADDRESS, Structure};
use sfs_core::{Error, Volume};
use sfs_device::{Access, FileDevice, OpenError, OpenErrorKind};
use sfs_mkfs::signatures;

use crate::answers::Answers;
use crate::attributes::now;
use crate::background::{Alarm, Background};
use crate::backing::Backing;
use crate::control::Control;
use crate::daemonize::{self, Herald};
use crate::fuse::Shell;
use crate::mount::{self, Place, reason};
use crate::mountinfo::DeviceNumber;
use crate::options::MountOptions;
use crate::transport::{self, Choice, Serving};
use crate::{Failure, backing, logging, mountinfo, panics};

/// What to mount where, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The device or image file.
    pub device: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// `-o`.
    pub options: MountOptions,
    /// How requests come from the kernel.
    pub transport: transport::Choice,
    /// Stay, instead of returning when the mount answers.
    pub foreground: bool,
    /// Say more.
    pub verbose: bool,
    /// Do everything but mount.
    pub fake: bool,
}

/// Mounts. Without `foreground` it returns when the mount answers, and another process serves it.
pub fn run(request: &Request) -> Result<(), Failure> {
    let dir = check_dir(&request.dir)?;
    let path = request.device.canonicalize().unwrap_or_else(|_| request.device.clone());
    if request.fake {
        let opened = open_device(&path, &request.options)?;
        open_volume(opened.device.clone(), &path, &opened.options)?;
        if opened.is_write_protected {
            daemonize::warn(&format!(
                "WARNING: {} is write-protected, would be mounted read-only",
                path.display()
            ));
        }
        return Ok(());
    }
    let mut herald = if request.foreground {
        logging::to_terminal(request.verbose);
        Herald::foreground()
    } else {
        match daemonize::detach() {
            Ok(herald) => herald,
            Err(outcome) => return outcome,
        }
    };
    match serve(request, &path, &dir, &mut herald) {
        Ok(()) => Ok(()),
        Err(failure) => match herald.failed(failure) {
            Some(failure) => Err(failure),
            None => Ok(()),
        },
    }
}

fn check_dir(dir: &Path) -> Result<PathBuf, Failure> {
    let shown = dir.display();
    let absolute = dir.canonicalize().map_err(|error| {
        Failure::mount(format_args!("{shown}: mount point: {}", reason(&error)))
    })?;
    if !absolute.is_dir() {
        return Err(Failure::mount(format_args!("{shown}: mount point is not a directory")));
    }
    match mountinfo::at(&absolute) {
        Ok(Some(mount)) if mount.kind.starts_with("fuse") => Err(Failure::mount(format_args!(
            "{shown}: {} is mounted there already",
            mount.source.display()
        ))),
        _ => Ok(absolute),
    }
}

/// A device, and how it can be mounted.
struct OpenedDevice {
    device: Arc<FileDevice>,
    options: MountOptions,
    is_write_protected: bool,
}

/// Opens for writing, if that is asked for: not what is write-protected, as mount(8) does it.
fn open_device(path: &Path, options: &MountOptions) -> Result<OpenedDevice, Failure> {
    sfs_mkfs::refuse_in_use_by_loop(path).map_err(Failure::mount)?;
    let mut options = options.clone();
    let mut is_write_protected = false;
    let access = if options.volume.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut device = FileDevice::open(path, access);
    if let Err(OpenError { kind: OpenErrorKind::WriteProtected, .. }) = device {
        options = options.read_only();
        is_write_protected = true;
        device = FileDevice::open(path, Access::ReadOnly);
    }
    let device = device.map_err(|error| match error.kind {
        OpenErrorKind::Permission => Failure::usage(&error),
        _ => Failure::mount(&error),
    })?;
    Ok(OpenedDevice { device: Arc::new(device), options, is_write_protected })
}

fn open_volume(
    device: Arc<FileDevice>,
    path: &Path,
    options: &MountOptions,
) -> Result<Arc<Volume>, Failure> {
    match Volume::open(device.clone(), options.volume.clone(), now()) {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(error) => Err(explain(&error, path, &device)),
    }
}

/// Why a volume cannot be opened, and what to do.
pub(crate) fn explain(error: &Error, path: &Path, device: &FileDevice) -> Failure {
    let shown = path.display();
    match error {
        Error::Corrupt(what)
            if what.structure == Structure::Superblock && what.kind == CorruptionKind::Magic =>
        {
            let found = signatures::Ends::read_device(device).map(|ends| signatures::detect(&ends));
            match found.ok().and_then(|found| found.into_iter().next()) {
                Some(found) if found.name == signatures::SFS => Failure::mount(format_args!(
                    "{shown}: both superblocks of the SFS volume on it are damaged"
                )),
                Some(found) => Failure::mount(format_args!(
                    "{shown}: not an SFS volume but {}; mount it as that",
                    found.name
                )),
                None => Failure::mount(format_args!(
                    "{shown}: not an SFS volume; 'sfs-mkfs {shown}' makes one"
                )),
            }
        }
        Error::Corrupt(_) => {
            Failure::mount(format_args!("{shown}: {error}; run 'sfs-fsck -n {shown}'"))
        }
        Error::Incompatible(reason) if reason.allows_reading() => {
            Failure::mount(format_args!("{shown}: {error}; mount it with '-o ro', or upgrade sfs"))
        }
        Error::Incompatible(_) => Failure::mount(format_args!("{shown}: {error}; upgrade sfs")),
        Error::DeviceTooSmall { volume, .. } if *volume <= LOCATOR_ADDRESS + 1 => {
            Failure::mount(format_args!("{shown}: too small for an SFS volume"))
        }
        Error::DeviceTooSmall { .. } => Failure::mount(format_args!(
            "{shown}: {error}; it was truncated, or is not the device that was formatted"
        )),
        error => Failure::mount(format_args!("{shown}: {error}")),
    }
}

/// Everything that the process which stays does.
fn serve(request: &Request, path: &Path, dir: &Path, herald: &mut Herald) -> Result<(), Failure> {
    let _ = crate::sys::become_io_flusher();
    // With the daemon goes what the kernel's cache holds. Only root may ask for this.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let OpenedDevice { device, options, is_write_protected } = open_device(path, &request.options)?;
    let (is_block_device, direct_io) = (device.is_block_device(), device.direct_io());
    let volume = open_volume(device.clone(), path, &options)?;
    let before = volume.lifetime_before();
    let remembers = !volume.remembered().is_empty();
    let name = path.display().to_string();
    let alarm = Arc::new(Alarm::default());
    let backing = Arc::new(Backing::default());
    let shell = Shell::new(volume.clone(), alarm.clone(), backing.clone(), &options, name.clone());
    let overflow = shell.overflow();
    device.yield_claim();
    let place = Place { device: path, is_block_device, dir };
    let signals = mounted::signals()?;
    let (unanswered, serving, mounted) =
        mount_and_open(&place, &options, request.transport, shell)?;
    let (transport, reason) = (serving.transport, serving.reason.clone());
    if !request.foreground {
        logging::to_system();
    }
    panics::end_the_process(name.clone());
    if !direct_io {
        tracing::warn!("{name}: its filesystem refuses direct I/O; using the page cache");
    }
    if let Some(version) = volume.upgraded_from() {
        tracing::warn!(
            "{name}: upgraded from format version {version} to {FORMAT_VERSION}: \
             there is no way back to older programs"
        );
    }
    tracing::info!("{name}: transport {transport}: {reason}");
    if remembers {
        tracing::warn!(
            "{name}: errors were met on this volume; 'sfs-ctl stat' shows them, and sfs-fsck should be run"
        );
    }
    let no_thread = |error| Failure::system(format_args!("no thread: {error}"));
    mounted.unmount_on(signals)?;
    let background =
        Background::start(volume.clone(), alarm.clone(), backing.clone(), name.clone());
    let background = background.map_err(no_thread)?;
    let is_over = Arc::new(Mutex::new(false));
    let control = start_control(dir, mounted.number(), |number| Answers {
        volume: volume.clone(),
        alarm,
        backing: backing.clone(),
        before,
        options,
        is_write_protected,
        transport: (transport, reason),
        device: name.clone(),
        number,
        is_over: is_over.clone(),
    });
    // The loop has to run before the mount can answer.
    let of_serving = mounted.clone();
    let serve = move || serving.run(|error| of_serving.lose(error));
    let serving = std::thread::Builder::new().name("sfs-serve".into()).spawn(serve);
    let serving = serving.map_err(no_thread)?;
    let mut outcome = Ok(());
    match backing::wait_for(dir) {
        Ok(dev) if mounted.has(dev) => {
            backing.configure(dev, volume.space().free_bytes());
            unanswered.keep();
            let warning = || format!("WARNING: {name} is write-protected, mounted read-only");
            herald.ready(is_write_protected.then(warning).as_deref());
        }
        answer => {
            drop(unanswered);
            outcome = answer.and(Err(ErrorKind::ConnectionAborted.into())).map(|_: u64| ());
        }
    }
    if let Ok(Err(error)) = serving.join() {
        tracing::debug!("{name}: the session ended: {error}");
        let is_cut = error.kind() == ErrorKind::ConnectionAborted;
        if is_cut {
            // Nobody will answer there.
            let _ = mounted.detach(MntFlags::MNT_DETACH);
        }
        if outcome.is_err() || is_cut || mounted.is_lost() {
            outcome = Err(error);
        }
    }
    mounted.end();
    background.stop();
    *is_over.lock() = true;
    let closed = volume.close().map_err(|error| {
        let failure = match volume.is_closed() {
            true => format!(
                "{name}: {error}; what waited there is lost, all else is on it; run sfs-fsck"
            ),
            false => format!(
                "{name}: the last checkpoint failed: {error}; what was written last may be lost"
            ),
        };
        tracing::error!("{failure}");
        Failure::mount(failure)
    });
    // What is lost has its names looked for in all of the tree: nothing that can be saved waits for that.
    let lost = overflow.missing(&volume, dir);
    if !lost.untold.is_empty() {
        tracing::error!("{name}: {lost}");
    }
    if let Some(control) = control {
        control.end(&closed, lost);
    }
    closed?;
    outcome.map_err(|error| {
        Failure::system(format_args!("{}: the mount does not answer: {error}", dir.display()))
    })
}

/// Puts the volume into the kernel's tree, and shakes hands. The mount is told of after who serves it, as it
/// has to outlive it: taking away what is still open may wait for an answer.
fn mount_and_open(
    place: &Place<'_>,
    options: &MountOptions,
    transport: Choice,
    shell: Shell,
) -> Result<(Unanswered, Serving, Mounted), Failure> {
    let table = mounted::table()?;
    let door = mount::mount(place, options)?;
    let mounted = Mounted::at(place.dir, table, place.device.display().to_string())?;
    let unanswered = Unanswered::new(mounted.clone());
    let opened = transport.open(door, shell, mount::threads(options));
    let serving = opened.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => Failure::mount(error),
        _ => Failure::mount(format_args!("the kernel does not agree about FUSE: {error}")),
    })?;
    Ok((unanswered, serving, mounted))
}

/// A mount works without it; the programs that would use it say that it is not there.
fn start_control(
    dir: &Path,
    number: DeviceNumber,
    answers: impl FnOnce(DeviceNumber) -> Answers,
) -> Option<Control> {
    match Control::start(number, answers(number)) {
        Ok(control) => Some(control),
        Err(error) => {
            tracing::warn!("{}: no control socket: {error}", dir.display());
            None
        }
    }
}

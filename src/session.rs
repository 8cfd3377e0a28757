//! A mount from beginning to end.
//!
//! Owns: the order: look, open, mount, serve, unmount, last checkpoint.
//! Promises: nothing is written to the device before everything has been checked; the last
//! checkpoint comes after the last request.
//! Never: returns in the daemon without having written everything, unless the device failed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::MntFlags;
use parking_lot::Mutex;
use sfs_core::format::{CorruptionKind, SUPERBLOCK_ADDRESS, Structure};
use sfs_core::{Error, Volume};
use sfs_device::{Access, FileDevice, OpenErrorKind};
use sfs_mkfs::signatures;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::answers::Answers;
use crate::attributes::now;
use crate::background::{Alarm, Background};
use crate::control::Control;
use crate::daemonize::{self, Herald};
use crate::fuse::Shell;
use crate::mount::{self, Place, reason};
use crate::mountinfo::DeviceNumber;
use crate::options::MountOptions;
use crate::transport::{self, Choice, Serving};
use crate::{Failure, backing, logging, mountinfo, unmount};

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
        let device = open_device(&path, request.options.volume.read_only)?;
        return open_volume(device, &path, &request.options).map(drop);
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

fn open_device(path: &Path, read_only: bool) -> Result<Arc<FileDevice>, Failure> {
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let device = FileDevice::open(path, access).map_err(|error| match error.kind {
        OpenErrorKind::Permission => Failure::usage(&error),
        OpenErrorKind::WriteProtected => Failure::mount(format_args!("{error}; try -o ro")),
        _ => Failure::mount(&error),
    })?;
    Ok(Arc::new(device))
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
        Error::NewerFormat(_) => Failure::mount(format_args!("{shown}: {error}; upgrade sfs")),
        Error::DeviceTooSmall { volume, .. } if *volume <= SUPERBLOCK_ADDRESS + 1 => {
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
    let device = open_device(path, request.options.volume.read_only)?;
    let (is_block_device, direct_io) = (device.is_block_device(), device.direct_io());
    let volume = open_volume(device.clone(), path, &request.options)?;
    let before = volume.lifetime_before();
    let name = path.display().to_string();
    let alarm = Arc::new(Alarm::default());
    let shell = Shell::new(volume.clone(), alarm.clone(), &request.options, name.clone());
    device.yield_claim();
    let place = Place { device: path, is_block_device, dir };
    let (serving, unanswered) = mount_and_open(&place, &request.options, request.transport, shell)?;
    let (transport, reason) = (serving.transport, serving.reason.clone());
    if !request.foreground {
        logging::to_system();
    }
    if !direct_io {
        tracing::warn!("{name}: its filesystem refuses direct I/O; using the page cache");
    }
    tracing::info!("{name}: transport {transport}: {reason}");
    unmount_on_signal(dir.to_owned(), name.clone())?;
    let background = Background::start(volume.clone(), alarm.clone(), name.clone());
    let is_over = Arc::new(Mutex::new(false));
    let control = start_control(dir, |number| Answers {
        volume: volume.clone(),
        alarm,
        before,
        options: request.options.clone(),
        transport: (transport, reason),
        device: name.clone(),
        number,
        is_over: is_over.clone(),
    });
    // The loop has to run before the mount can answer.
    let is_lost = Arc::new(AtomicBool::new(false));
    let lost = lost(dir.to_owned(), name.clone(), is_lost.clone());
    let serve = move || serving.run(lost);
    let serving = std::thread::Builder::new().name("sfs-serve".into()).spawn(serve);
    let serving = serving.map_err(|error| Failure::system(format_args!("no thread: {error}")))?;
    let mut outcome = Ok(());
    match backing::wait_for(dir) {
        Ok(dev) if !is_lost.load(Ordering::Relaxed) => {
            backing::configure(dev);
            unanswered.keep();
            herald.ready();
        }
        answer => {
            drop(unanswered);
            outcome = Err(answer.err().unwrap_or_else(|| ErrorKind::ConnectionAborted.into()));
        }
    }
    if let Ok(Err(error)) = serving.join() {
        tracing::debug!("{name}: the session ended: {error}");
        outcome = outcome.map_err(|_| error);
    }
    background.stop();
    *is_over.lock() = true;
    let closed = volume.close().map_err(|error| {
        tracing::error!("{name}: {error}; what was written last may be lost");
        Failure::mount(format_args!("{name}: {error}; what was written last may be lost"))
    });
    if let Some(control) = control {
        control.end(&closed);
    }
    closed?;
    outcome.map_err(|error| {
        Failure::system(format_args!("{}: the mount does not answer: {error}", dir.display()))
    })
}

/// A mount that nobody answers yet. It goes with this: rather no mount than one that hangs.
struct Unanswered<'a>(Option<&'a Path>);

impl Unanswered<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            let _ = unmount::detach(dir, MntFlags::MNT_DETACH);
        }
    }
}

/// Puts the volume into the kernel's tree, and shakes hands.
fn mount_and_open<'a>(
    place: &Place<'a>,
    options: &MountOptions,
    transport: Choice,
    shell: Shell,
) -> Result<(Serving, Unanswered<'a>), Failure> {
    let door = mount::mount(place, options)?;
    let unanswered = Unanswered(Some(place.dir));
    let opened = transport.open(door, shell, mount::threads(options));
    let serving = opened.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => Failure::mount(error),
        _ => Failure::mount(format_args!("the kernel does not agree about FUSE: {error}")),
    })?;
    Ok((serving, unanswered))
}

/// What is done when requests do not reach us any more.
fn lost(dir: PathBuf, name: String, is_lost: Arc<AtomicBool>) -> impl Fn(&std::io::Error) + Sync {
    move |error| {
        tracing::error!("{name}: the kernel's requests do not reach us any more: {error}");
        is_lost.store(true, Ordering::Relaxed);
        let _ = unmount::detach(&dir, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }
}

/// A mount works without it; the programs that would use it say that it is not there.
fn start_control(dir: &Path, answers: impl FnOnce(DeviceNumber) -> Answers) -> Option<Control> {
    let started = mountinfo::at(dir).and_then(|mount| match mount {
        Some(mount) => Control::start(mount.number, answers(mount.number)),
        None => Err(std::io::ErrorKind::NotFound.into()),
    });
    match started {
        Ok(control) => Some(control),
        Err(error) => {
            tracing::warn!("{}: no control socket: {error}", dir.display());
            None
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP unmount; when the mount is in use, it goes as soon as it is not.
fn unmount_on_signal(dir: PathBuf, name: String) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::system(format_args!("signals: {error}")))?;
    let wait = move || {
        for _ in signals.forever() {
            let gone = unmount::detach(&dir, MntFlags::empty())
                .or_else(|_| unmount::detach(&dir, MntFlags::MNT_DETACH));
            match gone {
                Ok(()) => return,
                Err(failure) => tracing::error!("{name}: {failure}"),
            }
        }
    };
    let thread = std::thread::Builder::new().name("sfs-signals".into()).spawn(wait);
    thread.map(drop).map_err(|error| Failure::system(format_args!("no thread: {error}")))
}

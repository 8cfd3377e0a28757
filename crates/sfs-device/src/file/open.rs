//! How an image file or block device is opened.
//!
//! Owns: the claim that keeps users apart, the choice of direct I/O, the reasons of refusal.
//! Promises: an exclusive open has no rival; each reason is a kind of its own.
//! Never: writes to the medium.

use std::fmt;
use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::geometry::DeviceNumber;
use crate::{BLOCK_SIZE, Block, DeviceError, Geometry, Operation, sys};

/// How often a block device's lock is asked for, and how long it is waited for in between.
/// We hold the kernel's claim by then, so whoever has the lock is only looking.
const LOCK_ATTEMPTS: u32 = 40;
/// An image's lock outlives its owner for a moment: a process that was being started meanwhile has
/// a copy of the descriptor until it runs.
const IMAGE_LOCK_ATTEMPTS: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What may be done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes, discards and flushes nothing.
    ReadOnly,
    /// Everything.
    ReadWrite,
}

/// Whether others may use the device at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Exclusive,
    Shared,
}

/// A device that could not be opened; prints as one line.
#[derive(Debug)]
pub struct OpenError {
    /// What was to be opened.
    pub path: PathBuf,
    /// Why it was not.
    pub kind: OpenErrorKind,
}

/// Why a device could not be opened.
#[derive(Debug)]
pub enum OpenErrorKind {
    /// There is nothing at the path.
    Missing,
    /// A directory.
    Directory,
    /// Something else that stores no blocks: a terminal, a pipe, a socket.
    NotStorage,
    /// The user may not.
    Permission,
    /// Mounted, or in use by another program.
    Busy,
    /// To be written to, but write-protected.
    WriteProtected,
    /// A card reader without a card, or a device that went away.
    NoMedium,
    /// To be created, but already there.
    Exists,
    /// Anything else that the system said.
    System(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            OpenErrorKind::Missing => f.write_str("no such file or device"),
            OpenErrorKind::Directory => f.write_str("is a directory"),
            OpenErrorKind::NotStorage => f.write_str("is neither a file nor a block device"),
            OpenErrorKind::Permission => f.write_str("permission denied"),
            OpenErrorKind::Busy => f.write_str("is mounted or in use"),
            OpenErrorKind::WriteProtected => f.write_str("is write-protected"),
            OpenErrorKind::NoMedium => f.write_str("has no medium"),
            OpenErrorKind::Exists => f.write_str("exists already"),
            OpenErrorKind::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            OpenErrorKind::System(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OpenError> for DeviceError {
    fn from(error: OpenError) -> DeviceError {
        DeviceError::of_blocks(Operation::Open, 0, 0, io::Error::other(error))
    }
}

impl From<io::Error> for OpenErrorKind {
    fn from(error: io::Error) -> OpenErrorKind {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => OpenErrorKind::Missing,
            Some(libc::EISDIR) => OpenErrorKind::Directory,
            Some(libc::EACCES | libc::EPERM) => OpenErrorKind::Permission,
            Some(libc::EBUSY | libc::ETXTBSY) => OpenErrorKind::Busy,
            Some(libc::EROFS) => OpenErrorKind::WriteProtected,
            Some(libc::ENOMEDIUM | libc::ENXIO | libc::ENODEV) => OpenErrorKind::NoMedium,
            Some(libc::EEXIST) => OpenErrorKind::Exists,
            _ => OpenErrorKind::System(error),
        }
    }
}

/// What an open found.
pub(super) struct Opened {
    pub(super) file: File,
    /// As long as it is open, nobody else can claim the block device.
    pub(super) claim: Option<File>,
    pub(super) geometry: Geometry,
    pub(super) is_block_device: bool,
    pub(super) direct_io: bool,
}

pub(super) fn open(path: &Path, access: Access, sharing: Sharing) -> Result<Opened, OpenErrorKind> {
    // Before the open, which would wait at a pipe, rewind a tape or take a terminal.
    let is_block_device = storage_kind(fs::metadata(path)?.file_type())?;
    let only_user = is_block_device && sharing == Sharing::Exclusive;
    let claim = only_user.then(|| open_file(path, access, true)).transpose()?;
    let (file, wants_direct_io) = open_file(path, access, false)?;
    let metadata = file.metadata()?;
    if storage_kind(metadata.file_type())? != is_block_device {
        return Err(OpenErrorKind::Busy); // Someone replaced it meanwhile.
    }
    if sharing == Sharing::Exclusive {
        lock(&file, access, is_block_device)?;
    }
    if is_block_device && access == Access::ReadWrite && sys::block_device_is_read_only(&file)? {
        return Err(OpenErrorKind::WriteProtected);
    }
    let geometry = match is_block_device {
        true => Geometry::from_sysfs(
            Path::new("/sys"),
            DeviceNumber {
                major: libc::major(metadata.st_rdev()),
                minor: libc::minor(metadata.st_rdev()),
            },
            sys::block_device_length(&file)?,
        ),
        false => Geometry::of_image(metadata.len()),
    };
    let direct_io = wants_direct_io && keep_direct_io(&file, &geometry)?;
    let claim = claim.map(|(file, _)| file);
    Ok(Opened { file, claim, geometry, is_block_device, direct_io })
}

pub(super) fn create(path: &Path, length: u64) -> Result<(), OpenError> {
    let explain = |error: io::Error| OpenError { path: path.to_owned(), kind: error.into() };
    let file = File::create_new(path).map_err(explain)?;
    file.set_len(length).map_err(|error| {
        // Ours and empty; if it cannot go, the first error still says more.
        let _ = fs::remove_file(path);
        explain(error)
    })
}

/// Whether it is a block device and not an image file; neither is an error.
fn storage_kind(file_type: FileType) -> Result<bool, OpenErrorKind> {
    if file_type.is_dir() {
        Err(OpenErrorKind::Directory)
    } else if file_type.is_file() || file_type.is_block_device() {
        Ok(file_type.is_block_device())
    } else {
        Err(OpenErrorKind::NotStorage)
    }
}

/// Opens for direct I/O if the filesystem has it; returns whether it has.
fn open_file(path: &Path, access: Access, only_user: bool) -> io::Result<(File, bool)> {
    let open = |direct_io| {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        let direct_io = if direct_io { libc::O_DIRECT } else { 0 };
        let only_user = if only_user { libc::O_EXCL } else { 0 };
        options.custom_flags(direct_io | only_user);
        options.open(path)
    };
    match open(true) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(false)?, false)),
        other => Ok((other?, true)),
    }
}

/// Some filesystems accept the flag at open and refuse the first request, as do devices whose
/// logical block is larger than ours. The descriptor stays, and with it the lock.
fn keep_direct_io(file: &File, geometry: &Geometry) -> io::Result<bool> {
    if geometry.block_count == 0 {
        return Ok(true);
    }
    let mut block = Block::zeroed(1);
    match file.read_at(Block::bytes_of_mut(&mut block), 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            sys::leave_direct_io(file)?;
            Ok(false)
        }
        // Any other error is for the caller's own first request to meet.
        _ => Ok(true),
    }
}

fn lock(file: &File, access: Access, is_block_device: bool) -> Result<(), OpenErrorKind> {
    let attempts = if is_block_device { LOCK_ATTEMPTS } else { IMAGE_LOCK_ATTEMPTS };
    for attempt in 1..=attempts {
        let result = match access {
            Access::ReadOnly => file.try_lock_shared(),
            Access::ReadWrite => file.try_lock(),
        };
        match result {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) if attempt < attempts => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(OpenErrorKind::Busy)
}

const _: () = assert!(BLOCK_SIZE.is_multiple_of(512), "direct I/O needs whole sectors");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_io_can_be_left_without_another_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        create(&path, 8192).unwrap();
        let (file, direct_io) = open_file(&path, Access::ReadOnly, false).unwrap();
        lock(&file, Access::ReadOnly, false).unwrap();
        let mut byte = [0];
        let unaligned = file.read_at(&mut byte, 1);
        if !direct_io || unaligned.is_ok() {
            println!("skip: no strict direct I/O in {}", directory.path().display());
            return;
        }
        assert_eq!(unaligned.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(keep_direct_io(&file, &Geometry::of_image(8192)).unwrap());
        sys::leave_direct_io(&file).unwrap();
        assert_eq!(file.read_at(&mut byte, 1).unwrap(), 1);

        let rival = File::open(&path).unwrap();
        assert!(matches!(lock(&rival, Access::ReadWrite, false), Err(OpenErrorKind::Busy)));
    }

    #[test]
    fn whoever_only_looks_at_a_block_device_is_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let onlooker = file.reopen().unwrap();
        onlooker.lock_shared().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(file.as_file(), Access::ReadWrite, true));
            onlooker.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn reasons_of_the_system_have_kinds() {
        let kind = |errno| OpenErrorKind::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(kind(libc::EACCES), OpenErrorKind::Permission));
        assert!(matches!(kind(libc::EBUSY), OpenErrorKind::Busy));
        assert!(matches!(kind(libc::EROFS), OpenErrorKind::WriteProtected));
        assert!(matches!(kind(libc::ENOMEDIUM), OpenErrorKind::NoMedium));
        assert!(matches!(kind(libc::EMFILE), OpenErrorKind::System(_)));
    }
}

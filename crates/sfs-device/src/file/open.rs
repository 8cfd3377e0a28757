//! Opening of image files and block devices: exclusive claims, locks, direct I/O, and the errors.
//!
//! An exclusive open takes the kernel's claim (`O_EXCL`) on a block device and an advisory lock on the
//! file. Direct I/O is chosen if the filesystem and the device accept it. No function of the module writes to
//! the medium.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::block::{BLOCK_SIZE, Block};
use crate::error::{DeviceError, Operation};
use crate::geometry::{BlockDeviceNumber, Geometry};
use crate::sys;

/// Number of attempts to lock a block device. The kernel's claim is already held, so the holder of
/// the lock only inspects the device, and will soon unlock it.
const LOCK_ATTEMPTS: u32 = 40;
/// Number of attempts to lock an image. The lock can outlive its owner briefly: a process that is
/// being started holds a copy of the descriptor until its `exec`.
const IMAGE_LOCK_ATTEMPTS: u32 = 5;
/// Pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Requests that a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads and flushes.
    ReadOnly,
    /// All requests.
    ReadWrite,
}

/// Use of the device by other programs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Exclusive,
    Shared,
}

/// Error of opening a device, printed as one line.
#[derive(Debug)]
pub struct OpenError {
    /// Path of the device.
    pub path: PathBuf,
    /// Reason of the failure.
    pub kind: OpenErrorKind,
}

/// Reason why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenErrorKind {
    /// The path does not exist.
    #[error("no such file or device")]
    Missing,
    /// The path is a directory.
    #[error("is a directory")]
    Directory,
    /// The path is another object that stores no blocks: a terminal, a pipe, a socket.
    #[error("is neither a file nor a block device")]
    NotStorage,
    /// The user lacks the permission.
    #[error("permission denied")]
    Permission,
    /// The device is mounted, or in use by another program.
    #[error("is mounted or in use")]
    Busy,
    /// A block device that is not mounted, and that another program has locked: to inspect it, as udev does, or as the daemon of a
    /// mount that is gone.
    #[error("is locked by another program, such as udev")]
    Locked,
    /// The device is write-protected and was to be opened for writing.
    #[error("is write-protected")]
    WriteProtected,
    /// The card reader has no card, or the device was removed.
    #[error("has no medium")]
    NoMedium,
    /// The file was to be created, and exists.
    #[error("exists already")]
    Exists,
    /// Any other error of the system.
    #[error("{0}")]
    System(#[source] io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.kind)
    }
}

impl Error for OpenError {
    /// Returns the source of the kind, because the kind itself is printed with the path.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
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

/// Result of an open.
pub(super) struct OpenedFile {
    pub(super) file: File,
    /// Exclusive descriptor of a block device; while it is open, every other claim fails.
    pub(super) claim: Option<File>,
    pub(super) geometry: Geometry,
    pub(super) is_block_device: bool,
    pub(super) direct_io: bool,
}

pub(super) fn open(
    path: &Path,
    access: Access,
    sharing: Sharing,
) -> Result<OpenedFile, OpenErrorKind> {
    // The type is checked first, because an open would block on a pipe, rewind a tape or take a terminal.
    let is_block_device = storage_kind(fs::metadata(path)?.file_type())?;
    let needs_claim = is_block_device && sharing == Sharing::Exclusive;
    let claim = needs_claim.then(|| open_file(path, access, true)).transpose()?;
    let (file, accepts_direct_io) = open_file(path, access, false)?;
    let metadata = file.metadata()?;
    if storage_kind(metadata.file_type())? != is_block_device {
        return Err(OpenErrorKind::Busy); // Another program replaced the file between the two calls.
    }
    if sharing == Sharing::Exclusive {
        lock(&file, access, is_block_device)?;
    }
    if is_block_device && access == Access::ReadWrite && sys::block_device_is_read_only(&file)? {
        return Err(OpenErrorKind::WriteProtected);
    }
    let geometry = geometry_of(&file, &metadata, is_block_device)?;
    let direct_io = accepts_direct_io && probe_direct_io(&file, &geometry)?;
    let claim = claim.map(|(file, _)| file);
    Ok(OpenedFile { file, claim, geometry, is_block_device, direct_io })
}

/// Returns what there is to know of a device that another program has opened exclusively, and how it was opened.
pub(super) fn adopt(file: File) -> Result<(OpenedFile, Access), OpenErrorKind> {
    let metadata = file.metadata()?;
    let is_block_device = storage_kind(metadata.file_type())?;
    let geometry = geometry_of(&file, &metadata, is_block_device)?;
    let flags = sys::open_flags(&file)?;
    let is_writable = flags & libc::O_ACCMODE == libc::O_RDWR;
    let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
    let direct_io = flags & libc::O_DIRECT != 0;
    Ok((OpenedFile { file, claim: None, geometry, is_block_device, direct_io }, access))
}

fn geometry_of(
    file: &File,
    metadata: &fs::Metadata,
    is_block_device: bool,
) -> io::Result<Geometry> {
    if !is_block_device {
        return Ok(Geometry::of_image(metadata.len()));
    }
    let number = BlockDeviceNumber {
        major: libc::major(metadata.st_rdev()),
        minor: libc::minor(metadata.st_rdev()),
    };
    Ok(Geometry::from_sysfs(Path::new("/sys"), number, sys::block_device_length(file)?))
}

/// Checks that a block device is not write-protected.
pub(super) fn check_unprotected(file: &File, is_block_device: bool) -> Result<(), OpenErrorKind> {
    if is_block_device && sys::block_device_is_read_only(file)? {
        return Err(OpenErrorKind::WriteProtected);
    }
    Ok(())
}

/// Opens the file at `path`, which `reader` has open for reading, for writing as well, and makes the lock of `reader`
/// that of a writer. The first descriptor keeps the lock.
pub(super) fn reopen(
    path: &Path,
    reader: &File,
    is_block_device: bool,
    direct_io: bool,
) -> Result<File, OpenErrorKind> {
    let (file, _) = open_file(path, Access::ReadWrite, false)?;
    let (found, expected) = (file.metadata()?, reader.metadata()?);
    let identity = |file: &fs::Metadata| (file.st_dev(), file.st_ino(), file.st_rdev());
    if identity(&found) != identity(&expected) {
        return Err(OpenErrorKind::Busy); // Another program replaced the file.
    }
    check_unprotected(&file, is_block_device)?;
    if !direct_io {
        sys::disable_direct_io(&file)?;
    }
    if is_block_device {
        return Ok(file); // The lock of a block device excludes every other holder already.
    }
    if let Err(error) = lock(reader, Access::ReadWrite, is_block_device) {
        // A failed change of the lock may have lost it.
        lock(reader, Access::ReadOnly, is_block_device)?;
        return Err(error);
    }
    Ok(file)
}

/// Makes a sparse file with the permissions `mode`, but for what the mask of the process takes away.
pub(super) fn create(path: &Path, length: u64, mode: u32) -> Result<(), OpenError> {
    let explain = |error: io::Error| OpenError { path: path.to_owned(), kind: error.into() };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let file = file.map_err(explain)?;
    file.set_len(length).map_err(|error| {
        // The new file is empty. An error of its removal says less than the first error.
        let _ = fs::remove_file(path);
        explain(error)
    })
}

/// Returns whether the type is a block device and not a regular file; any other type is an error.
fn storage_kind(file_type: FileType) -> Result<bool, OpenErrorKind> {
    if file_type.is_dir() {
        Err(OpenErrorKind::Directory)
    } else if file_type.is_file() || file_type.is_block_device() {
        Ok(file_type.is_block_device())
    } else {
        Err(OpenErrorKind::NotStorage)
    }
}

/// Opens with direct I/O if the filesystem accepts the flag; returns whether the filesystem did.
fn open_file(path: &Path, access: Access, exclusive: bool) -> io::Result<(File, bool)> {
    let open = |direct_io| {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        let direct_io = if direct_io { libc::O_DIRECT } else { 0 };
        let exclusive = if exclusive { libc::O_EXCL } else { 0 };
        options.custom_flags(direct_io | exclusive);
        options.open(path)
    };
    match open(true) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(false)?, false)),
        other => Ok((other?, true)),
    }
}

/// Tries a read with direct I/O, and disables direct I/O if the read is refused; returns whether direct
/// I/O works.
///
/// Some filesystems accept the flag at open and refuse the first request, as do devices whose logical
/// block is larger than [`BLOCK_SIZE`]. The descriptor is not reopened, because its lock would be lost.
fn probe_direct_io(file: &File, geometry: &Geometry) -> io::Result<bool> {
    if geometry.block_count == 0 {
        return Ok(true);
    }
    let mut block = Block::zeroed(1);
    match file.read_at(Block::bytes_of_mut(&mut block), 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            sys::disable_direct_io(file)?;
            Ok(false)
        }
        // The first request of the caller will report any other error.
        _ => Ok(true),
    }
}

/// Lets programs that lock a block device for inspection do so, as udev does at every event. Any other holder for use stays excluded,
/// because [`lock`] wants a block device for itself.
pub(super) fn share_lock(file: &File) -> io::Result<()> {
    file.lock_shared()
}

/// Locks for use: readers of an image share it, a block device has one user.
///
/// # Errors
///
/// [`OpenErrorKind::Locked`] for a block device, whose claim the caller has, and [`OpenErrorKind::Busy`] for an image.
fn lock(file: &File, access: Access, is_block_device: bool) -> Result<(), OpenErrorKind> {
    let attempts = if is_block_device { LOCK_ATTEMPTS } else { IMAGE_LOCK_ATTEMPTS };
    for attempt in 1..=attempts {
        let result = match access {
            Access::ReadOnly if !is_block_device => file.try_lock_shared(),
            Access::ReadOnly | Access::ReadWrite => file.try_lock(),
        };
        match result {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) if attempt < attempts => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    Err(if is_block_device { OpenErrorKind::Locked } else { OpenErrorKind::Busy })
}

const _: () = assert!(BLOCK_SIZE.is_multiple_of(512), "direct I/O needs whole sectors");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabling_direct_io_keeps_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        create(&path, 8192, 0o600).unwrap();
        let (file, direct_io) = open_file(&path, Access::ReadOnly, false).unwrap();
        lock(&file, Access::ReadOnly, false).unwrap();
        let mut byte = [0];
        let unaligned = file.read_at(&mut byte, 1);
        if !direct_io || unaligned.is_ok() {
            println!("skip: no strict direct I/O in {}", directory.path().display());
            return;
        }
        assert_eq!(unaligned.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(probe_direct_io(&file, &Geometry::of_image(8192)).unwrap());
        sys::disable_direct_io(&file).unwrap();
        assert_eq!(file.read_at(&mut byte, 1).unwrap(), 1);

        let second = File::open(&path).unwrap();
        assert!(matches!(lock(&second, Access::ReadWrite, false), Err(OpenErrorKind::Busy)));
    }

    #[test]
    fn a_device_goes_to_another_program_with_its_lock() {
        use crate::{Device, FileDevice, Stream};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let first = FileDevice::create(&path, 8192).unwrap();
        let descriptor = File::from(first.descriptors().0.try_clone_to_owned().unwrap());
        let direct_io = first.direct_io();
        drop(first);
        let second = FileDevice::adopt(&path, descriptor, None).unwrap();
        assert_eq!(second.direct_io(), direct_io);
        let busy = FileDevice::open(&path, Access::ReadOnly).map(drop);
        assert!(matches!(busy.unwrap_err().kind, OpenErrorKind::Busy));
        second.write(1, &[&Block::zeroed(1)], Stream::default()).unwrap();
        drop(second);
        let reader = FileDevice::open(&path, Access::ReadOnly).unwrap();
        let descriptor = File::from(reader.descriptors().0.try_clone_to_owned().unwrap());
        let adopted = FileDevice::adopt(&path, descriptor, None).unwrap();
        adopted.write(1, &[&Block::zeroed(1)], Stream::default()).unwrap_err();
        let directory = File::open(directory.path()).unwrap();
        let refused = FileDevice::adopt(&path, directory, None).map(drop);
        assert!(matches!(refused.unwrap_err().kind, OpenErrorKind::Directory));
    }

    #[test]
    fn an_open_waits_for_a_short_lock_on_a_block_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inspecting = file.reopen().unwrap();
        inspecting.lock_shared().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(file.as_file(), Access::ReadWrite, true));
            inspecting.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_shared_lock_of_a_block_device_admits_inspection_and_no_other_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = || file.reopen().unwrap();
        lock(file.as_file(), Access::ReadWrite, true).unwrap();
        assert!(other().try_lock_shared().is_err(), "it is locked for use");
        share_lock(file.as_file()).unwrap();
        other().try_lock_shared().unwrap();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let refused = lock(&other(), access, true);
            assert!(matches!(refused, Err(OpenErrorKind::Locked)), "{access:?}");
        }
    }

    #[test]
    fn errors_of_the_system_map_to_kinds() {
        let kind = |errno| OpenErrorKind::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(kind(libc::EACCES), OpenErrorKind::Permission));
        assert!(matches!(kind(libc::EBUSY), OpenErrorKind::Busy));
        assert!(matches!(kind(libc::EROFS), OpenErrorKind::WriteProtected));
        assert!(matches!(kind(libc::ENOMEDIUM), OpenErrorKind::NoMedium));
        assert!(matches!(kind(libc::EMFILE), OpenErrorKind::System(_)));
    }
}

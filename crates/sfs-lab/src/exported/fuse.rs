//! The FUSE filesystem of an exported model: a directory with the disk and its control file.
//!
//! A single thread takes the requests in their order. The methods translate between FUSE and
//! [`ServedDisk`], and hold no data. In real time reads and writes are handed to threads of their own, so that several wait in the
//! disk, and none waits for a thread to wake.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, SessionACL, TimeOrNow, WriteFlags,
};
use sfs_device::{BLOCK_SIZE, DeviceError};

use super::disk::ServedDisk;

/// Name of the file with the contents of the disk.
pub const DISK: &str = "disk";

/// Name of the file with the counters as JSON. Writing `reset` to the file sets the counters to
/// zero; [`super::ControlCommand`] has the other commands.
pub const CONTROL: &str = "control";

const DISK_INO: INodeNo = INodeNo(2);
const CONTROL_INO: INodeNo = INodeNo(3);

/// Time for which the kernel may cache attributes: names and sizes never change.
const TTL: Duration = Duration::from_secs(24 * 3600);

/// Largest write request, in bytes.
const WRITE_MAX: u32 = 1 << 20;

/// FALLOC_FL_KEEP_SIZE of fallocate(2), which has no effect on a file of constant size.
const KEEP_SIZE: i32 = 0x01;
/// FALLOC_FL_PUNCH_HOLE of fallocate(2), to which a loop device translates a discard.
const PUNCH_HOLE: i32 = 0x02;
/// FALLOC_FL_ZERO_RANGE of fallocate(2), to which a loop device translates zeros that must not be
/// discarded.
const ZERO_RANGE: i32 = 0x10;

struct DiskDirectory(Arc<dyn ServedDisk>);

/// Mounts the disk's directory on `dir` and serves it.
///
/// # Errors
///
/// If FUSE or the directory is missing, or mounting fails otherwise.
pub fn serve(disk: Arc<dyn ServedDisk>, dir: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(1);
    config.mount_options = vec![
        MountOption::FSName("sfs-lab".into()),
        MountOption::Subtype("disk".into()),
        MountOption::DefaultPermissions,
    ];
    fuser::spawn_mount(DiskDirectory(disk), dir, &config)
}

impl DiskDirectory {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            DISK_INO => (FileType::RegularFile, 0o600, self.0.capacity()),
            CONTROL_INO => (FileType::RegularFile, 0o644, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_SIZE as u32,
            flags: 0,
        })
    }

    /// Returns the contents of the control file.
    fn control(&self) -> Vec<u8> {
        self.0.status_text().into_bytes()
    }

    /// Answers a request: here, or on a thread of its own if the disk gains by several requests at a time.
    fn hand_on(&self, answer: impl FnOnce() + Send + 'static) {
        match self.0.serves_together() {
            true => drop(thread::spawn(answer)),
            false => answer(),
        }
    }

    /// Returns the length of the part of a range that is on the disk, or EINVAL for a range that is not
    /// of whole blocks.
    fn len_within(&self, offset: u64, len: u64) -> Result<u64, Errno> {
        let block = BLOCK_SIZE as u64;
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(Errno::EINVAL);
        }
        Ok(len.min(self.0.capacity().saturating_sub(offset)))
    }
}

fn errno(error: &DeviceError) -> Errno {
    error.source.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

fn done(reply: ReplyEmpty, outcome: Result<(), DeviceError>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for DiskDirectory {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let flags = InitFlags::FUSE_BIG_WRITES | InitFlags::FUSE_MAX_PAGES;
        let _ = config.add_capabilities(flags | InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some(DISK) => DISK_INO,
            Some(CONTROL) => CONTROL_INO,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(ino).filter(|_| parent == INodeNo::ROOT) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Accepts the truncation with which `echo reset > control` begins, and changes nothing.
    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(ino) {
            Some(_) if ino == DISK_INO && size.is_some() => reply.error(Errno::EPERM),
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino == CONTROL_INO {
            let text = self.control();
            let from = text.len().min(offset as usize);
            return reply.data(&text[from..text.len().min(from + size as usize)]);
        }
        let len = match self.len_within(offset, u64::from(size)) {
            Ok(len) => len,
            Err(error) => return reply.error(error),
        };
        let disk = self.0.clone();
        self.hand_on(move || match disk.read(offset, len) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino == CONTROL_INO {
            let text = String::from_utf8_lossy(data);
            if self.0.command(&text).is_err() {
                return reply.error(Errno::EINVAL);
            }
            return reply.written(data.len() as u32);
        }
        match self.len_within(offset, data.len() as u64) {
            Ok(len) if len == data.len() as u64 => {
                let (disk, data) = (self.0.clone(), data.to_vec());
                self.hand_on(move || match disk.write(offset, &data) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(error) => reply.error(errno(&error)),
                });
            }
            Ok(_) => reply.error(Errno::ENOSPC),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        if ino != DISK_INO {
            return reply.ok();
        }
        let disk = self.0.clone();
        self.hand_on(move || done(reply, disk.flush()));
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if ino != DISK_INO {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let len = length.min(self.0.capacity().saturating_sub(offset));
        match mode & !KEEP_SIZE {
            PUNCH_HOLE => {
                let disk = self.0.clone();
                self.hand_on(move || done(reply, disk.discard(offset, len)));
            }
            ZERO_RANGE => match self.len_within(offset, len) {
                Ok(len) => done(reply, self.0.zero(offset, len)),
                Err(error) => reply.error(error),
            },
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK_INO, FileType::RegularFile, DISK),
            (CONTROL_INO, FileType::RegularFile, CONTROL),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    /// Reports the block size, which a loop device takes for the granularity of discards.
    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let block = BLOCK_SIZE as u32;
        let blocks = self.0.capacity() / BLOCK_SIZE as u64;
        reply.statfs(blocks, 0, 0, 3, 0, block, 255, block);
    }
}

//! Devices whose power can be cut while a volume on them is mounted.
//!
//! A device is a recording in this process or a file on a filesystem with reflinks. An image shows
//! one moment between the call and its return, and contains each request at most once. Taking an
//! image neither stops nor slows down the load.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use rustix::mount::{UnmountFlags, unmount};
use sfs_device::{BLOCK_SIZE, Block, Device, Event, Keep, RamDevice, RecordingDevice, Stream};
use tempfile::TempDir;

use sfs_testkit::{SeededRng, scratch_directory};

/// Size of the filesystem with reflinks, in bytes.
const BACKING_LEN: u64 = 1 << 30;

/// Filesystems with reflinks, with the program and the package that make them.
const REFLINKED: [(&str, &[&str], &str); 2] = [
    ("btrfs", &["mkfs.btrfs", "-q"], "btrfs-progs"),
    ("xfs", &["mkfs.xfs", "-q", "-m", "reflink=1"], "xfsprogs"),
];

/// A filesystem with reflinks, mounted.
pub(crate) struct Reflinks {
    /// Root of the mount.
    pub(crate) dir: PathBuf,
    _scratch: TempDir,
}

impl Reflinks {
    /// Makes and mounts a filesystem with reflinks; prints the reason if there is none.
    pub(crate) fn new() -> Option<Self> {
        REFLINKED.iter().find_map(|(kind, make, package)| match Self::of(make) {
            Ok(made) => Some(made),
            Err(reason) => {
                eprintln!("no {kind} (package {package}): {reason}");
                None
            }
        })
    }

    fn of(make: &[&str]) -> Result<Self, String> {
        let scratch = scratch_directory();
        let (image, dir) = (scratch.path().join("backing"), scratch.path().join("reflinks"));
        File::create(&image).and_then(|file| file.set_len(BACKING_LEN)).expect("a sparse file");
        fs::create_dir(&dir).expect("a mount point");
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir))?;
        Ok(Self { dir, _scratch: scratch })
    }

    /// Copies `from` to `to` as of one moment: the copy is atomic with respect to writes.
    pub(crate) fn cut(&self, from: &Path, to: &Path) {
        let from = File::open(from).expect("the image");
        let to = File::create(to).expect("a file beside the image");
        rustix::fs::ioctl_ficlone(&to, &from).expect("a reflink");
    }
}

impl Drop for Reflinks {
    fn drop(&mut self) {
        // The kernel takes a moment to release a loop device that was detached.
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

type Recorder = RecordingDevice<RamDevice>;

/// A device in this process, visible to others as the only file of a directory. Every request to
/// the device is recorded.
pub(crate) struct Recorded {
    /// Path of the file.
    pub(crate) path: PathBuf,
    device: Arc<Recorder>,
    /// Durable content, and the requests since the last flush.
    durable: RamDevice,
    since: Vec<Event>,
    // Dropped before the directory that the session is mounted on.
    _session: BackgroundSession,
    scratch: TempDir,
}

impl Recorded {
    /// Returns a device with the content of the file `image`.
    pub(crate) fn new(image: &Path) -> Self {
        let ram = ram_of(image);
        let durable = ram.snapshot();
        let device = Arc::new(Recorder::new(ram, Keep::Contents));
        let scratch = scratch_directory();
        let server = OneFile(device.clone());
        let session = fuser::spawn_mount(server, scratch.path(), &fuser::Config::default());
        let session = session.expect("the volume mounts");
        let path = scratch.path().join(NAME);
        Self { path, device, durable, since: Vec::new(), _session: session, scratch }
    }

    /// Writes the content that is durable at this moment to the file `to`: no request since the
    /// last flush survives the power cut.
    pub(crate) fn cut_to_last_flush(&mut self, to: &Path) {
        self.settle();
        write_out(&self.durable, to);
    }

    /// Writes the content after a power cut at this moment to the file `to`: each request since the
    /// last flush is lost, torn or complete at random.
    pub(crate) fn cut(&mut self, random: &mut SeededRng, to: &Path) {
        self.settle();
        let image = self.durable.snapshot();
        for event in &self.since {
            match random.below(4) {
                0 => {}
                1 => event.apply_torn(&image, |_| random.below(2) == 0),
                _ => event.apply(&image),
            }
        }
        write_out(&image, to);
    }

    /// Makes flushed requests durable.
    fn settle(&mut self) {
        self.since.extend(self.device.take_events());
        if let Some(flush) = self.since.iter().rposition(|event| *event == Event::Flush) {
            self.since.drain(..=flush).for_each(|event| event.apply(&self.durable));
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // A loop device that was detached may still hold the file, and the session would leave the
        // directory mounted.
        let _ = unmount(self.scratch.path(), UnmountFlags::DETACH);
    }
}

/// Writes the content of `image` to the file `to`.
fn write_out(image: &RamDevice, to: &Path) {
    let file = File::create(to).expect("a file");
    let blocks = image.geometry().block_count;
    file.set_len(blocks * BLOCK_SIZE as u64).expect("a sparse file");
    let mut piece = Block::zeroed(256);
    for address in (0..blocks).step_by(piece.len()) {
        let piece = &mut piece[..(blocks - address).min(256) as usize];
        image.read(address, piece).expect("RAM");
        let bytes = Block::bytes_of(piece);
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, address * BLOCK_SIZE as u64).expect("the image is written");
        }
    }
}

fn ram_of(image: &Path) -> RamDevice {
    let bytes = fs::read(image).expect("an image");
    let device = RamDevice::new((bytes.len() / BLOCK_SIZE) as u64);
    let mut block = Block::zeroed(1);
    for (address, bytes) in (0..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
        if bytes.iter().any(|byte| *byte != 0) {
            Block::bytes_of_mut(&mut block).copy_from_slice(bytes);
            device.write(address, &[&block], Stream::default()).expect("RAM");
        }
    }
    device
}

const NAME: &str = "device";
const INO: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(1 << 20);

/// A directory with one file: the device.
struct OneFile(Arc<Recorder>);

impl OneFile {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let time = SystemTime::UNIX_EPOCH;
        let (kind, size) = match ino {
            INO => (FileType::RegularFile, self.0.geometry().block_count * BLOCK_SIZE as u64),
            _ => (FileType::Directory, 0),
        };
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_SIZE as u32,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some(NAME) => reply.entry(&TTL, &self.attributes(INO), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    /// Opens the file for direct I/O, past the page cache, so that each write is one request.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut blocks = Block::zeroed(size as usize / BLOCK_SIZE);
        match self.0.read(offset / BLOCK_SIZE as u64, &mut blocks) {
            Ok(()) => reply.data(Block::bytes_of(&blocks)),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut blocks = Block::zeroed(data.len() / BLOCK_SIZE);
        assert!(data.len().is_multiple_of(BLOCK_SIZE), "SFS writes whole blocks");
        Block::bytes_of_mut(&mut blocks).copy_from_slice(data);
        match self.0.write(offset / BLOCK_SIZE as u64, &[&blocks], Stream::default()) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.flush() {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}

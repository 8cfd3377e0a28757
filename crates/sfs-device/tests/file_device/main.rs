//! Tests of [`FileDevice`] on image files: round trips, refusals, locking and discard.
//!
//! A test that cannot run on this machine prints the reason.

mod loop_device;
mod read_many;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sfs_device::{
    Access, BLOCK_SIZE, Block, Device, DeviceError, FileDevice, OpenErrorKind, Operation, Stream,
};

fn block(tag: u8) -> Block {
    Block([tag; BLOCK_SIZE])
}

/// Makes `count` different blocks.
fn numbered(count: usize) -> Vec<Block> {
    (0..count)
        .map(|no| {
            let mut block = block(no as u8);
            block.0[..8].copy_from_slice(&(no as u64).to_le_bytes());
            block
        })
        .collect()
}

fn read(device: &dyn Device, address: u64, count: usize) -> Vec<Block> {
    let mut buffer = Block::zeroed(count);
    device.read(address, &mut buffer).unwrap();
    buffer.into_vec()
}

/// Image file in a temporary directory, which is removed on drop.
struct ImageFile {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl ImageFile {
    fn new(block_count: u64) -> ImageFile {
        ImageFile::within(&std::env::temp_dir(), block_count)
    }

    fn within(parent: &Path, block_count: u64) -> ImageFile {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let path = directory.path().join("image");
        drop(FileDevice::create(&path, block_count * BLOCK_SIZE as u64).unwrap());
        ImageFile { _directory: directory, path }
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.path, Access::ReadWrite).unwrap()
    }
}

fn open_error(path: &Path, access: Access) -> OpenErrorKind {
    FileDevice::open(path, access).unwrap_err().kind
}

/// Writes several parts in one request, and reads all blocks back.
fn round_trip(device: &dyn Device) {
    let blocks = numbered(64);
    device.write(3, &[&blocks[..1], &blocks[32..], &[], &blocks[1..32]], Stream(2)).unwrap();
    device.flush().unwrap();
    assert_eq!(read(device, 2, 2), [block(0), blocks[0].clone()]);
    assert_eq!(read(device, 4, 32), blocks[32..]);
    assert_eq!(read(device, 36, 31), blocks[1..32]);
    device.write(0, &[], Stream(0)).unwrap();
    device.read(0, &mut []).unwrap();
}

#[test]
fn written_blocks_are_read_back_also_after_a_reopen() {
    let image = ImageFile::new(128);
    round_trip(&image.open());
    let device = FileDevice::open(&image.path, Access::ReadOnly).unwrap();
    assert_eq!(read(&device, 4, 1), numbered(64)[32..33]);
    assert_eq!(device.path(), image.path);
    assert!(!device.is_block_device());
    let geometry = device.geometry();
    assert_eq!(geometry.block_count, 128);
    assert_eq!((geometry.logical_block_size, geometry.physical_block_size), (512, 4096));
    assert_eq!(geometry.discard_granularity, 4096);
}

#[test]
fn a_write_may_have_more_parts_than_one_system_call_takes() {
    let image = ImageFile::new(4096);
    let device = image.open();
    // In reverse order no two parts are adjacent in memory.
    let blocks = numbered(3000);
    let parts: Vec<&[Block]> = blocks.chunks(1).rev().collect();
    device.write(10, &parts, Stream::default()).unwrap();
    let reversed: Vec<Block> = blocks.iter().rev().cloned().collect();
    assert!(read(&device, 10, 3000) == reversed);
    // In this order all parts are adjacent in memory.
    let parts: Vec<&[Block]> = blocks.chunks(1).collect();
    device.write(10, &parts, Stream::default()).unwrap();
    assert!(read(&device, 10, 3000) == blocks);
}

#[test]
fn a_request_past_the_end_is_refused_and_changes_nothing() {
    let image = ImageFile::new(8);
    let device = image.open();
    let refused = |result: Result<(), DeviceError>, operation| {
        let error = result.unwrap_err();
        assert_eq!((error.operation, error.source.kind()), (operation, ErrorKind::InvalidInput));
    };
    refused(device.read(7, &mut Block::zeroed(2)), Operation::Read);
    refused(device.write(7, &[&[block(1)], &[block(1)]], Stream(0)), Operation::Write);
    refused(device.write(u64::MAX, &[&[block(1)]], Stream(0)), Operation::Write);
    refused(device.discard(0, 9), Operation::Discard);
    assert_eq!(read(&device, 0, 8), vec![Block::ZERO; 8]);
    assert_eq!(fs::metadata(&image.path).unwrap().len(), 8 * 4096);
}

#[test]
fn an_incomplete_last_block_is_not_accessible() {
    let image = ImageFile::new(8);
    File::options().write(true).open(&image.path).unwrap().set_len(8 * 4096 - 1).unwrap();
    let device = image.open();
    assert_eq!(device.geometry().block_count, 7);
    device.write(6, &[&[block(1)]], Stream(0)).unwrap();
}

#[test]
fn an_empty_image_opens_with_zero_blocks() {
    let image = ImageFile::new(0);
    let device = image.open();
    assert_eq!(device.geometry().block_count, 0);
    device.flush().unwrap();
}

#[test]
fn a_truncated_image_is_an_error_not_zeros() {
    for length in [4 * 4096, 4 * 4096 + 100] {
        let image = ImageFile::new(8);
        let device = image.open();
        File::options().write(true).open(&image.path).unwrap().set_len(length).unwrap();
        assert_eq!(read(&device, 3, 1), [Block::ZERO]);
        let error = device.read(3, &mut Block::zeroed(2)).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof);
        assert_eq!((error.offset, error.length), (3 * 4096, 2 * 4096));
    }
}

#[test]
fn a_device_opened_for_reading_refuses_changes() {
    let image = ImageFile::new(8);
    let device = FileDevice::open(&image.path, Access::ReadOnly).unwrap();
    let refused = |result: Result<(), DeviceError>, operation| {
        let error = result.unwrap_err();
        let expected = (operation, ErrorKind::ReadOnlyFilesystem);
        assert_eq!((error.operation, error.source.kind()), expected);
    };
    refused(device.write(0, &[&[block(1)]], Stream(0)), Operation::Write);
    refused(device.discard(0, 1), Operation::Discard);
    assert_eq!(read(&device, 0, 8), vec![Block::ZERO; 8]);
}

#[test]
fn a_second_exclusive_open_is_busy() {
    use Access::{ReadOnly, ReadWrite};
    let image = ImageFile::new(8);
    let writer = image.open();
    assert!(matches!(open_error(&image.path, ReadWrite), OpenErrorKind::Busy));
    assert!(matches!(open_error(&image.path, ReadOnly), OpenErrorKind::Busy));
    FileDevice::open_shared(&image.path, ReadOnly).unwrap();
    drop(writer);
    let reader = FileDevice::open(&image.path, ReadOnly).unwrap();
    let other_reader = FileDevice::open(&image.path, ReadOnly).unwrap();
    assert!(matches!(open_error(&image.path, ReadWrite), OpenErrorKind::Busy));
    drop((reader, other_reader));
    image.open();
}

#[test]
fn each_open_error_has_its_kind_and_prints_one_line() {
    let image = ImageFile::new(1);
    let directory = image.path.parent().unwrap();
    let cases: [(PathBuf, &str); 4] = [
        (directory.join("none"), "no such file or device"),
        (image.path.join("below"), "no such file or device"),
        (directory.to_owned(), "is a directory"),
        (PathBuf::from("/dev/null"), "is neither a file nor a block device"),
    ];
    for (path, reason) in cases {
        let error = FileDevice::open(&path, Access::ReadOnly).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {reason}", path.display()));
        let line = DeviceError::from(error).to_string();
        assert_eq!(line, format!("cannot open: {}: {reason}", path.display()));
    }
    assert!(matches!(
        open_error(&directory.join("none"), Access::ReadOnly),
        OpenErrorKind::Missing
    ));
    assert!(matches!(open_error(directory, Access::ReadOnly), OpenErrorKind::Directory));
    assert!(matches!(
        open_error(Path::new("/dev/null"), Access::ReadOnly),
        OpenErrorKind::NotStorage
    ));
}

#[test]
fn create_makes_a_sparse_file_and_refuses_an_existing_path() {
    let image = ImageFile::new(1 << 18);
    let metadata = fs::metadata(&image.path).unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    let error = FileDevice::create(&image.path, 4096).unwrap_err();
    assert!(matches!(error.kind, OpenErrorKind::Exists));
    assert_eq!(fs::metadata(&image.path).unwrap().len(), 1 << 30);

    let too_long = image.path.with_extension("too-long");
    FileDevice::create(&too_long, u64::MAX / 2).unwrap_err();
    assert!(!too_long.exists());
}

#[test]
fn discard_deallocates_space_of_the_image_file() {
    let image = ImageFile::new(1024);
    let device = image.open();
    device.write(0, &[&numbered(1024)], Stream(0)).unwrap();
    device.flush().unwrap();
    let full = fs::metadata(&image.path).unwrap();
    device.discard(256, 512).unwrap();
    device.discard(0, 0).unwrap();
    let punched = fs::metadata(&image.path).unwrap();
    assert_eq!(punched.len(), full.len());
    if punched.blocks() == full.blocks() {
        println!("skip: the filesystem of {} punches no holes", image.path.display());
        return;
    }
    let blocks = numbered(1024);
    assert!(read(&device, 0, 256) == blocks[..256]);
    assert!(read(&device, 256, 512) == vec![Block::ZERO; 512]);
    assert!(read(&device, 768, 256) == blocks[768..]);
}

#[test]
fn memory_filesystems_work_with_or_without_direct_io() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        println!("skip: no /dev/shm");
        return;
    }
    let image = ImageFile::within(shm, 128);
    let device = image.open();
    println!("direct I/O on {}: {}", image.path.display(), device.direct_io());
    round_trip(&device);
}

#[test]
fn a_file_that_refuses_direct_io_is_read_through_the_cache() {
    // sysfs refuses the flag at open. Its files report a length of 4096 bytes and contain fewer.
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if !path.exists() {
        println!("skip: no {}", path.display());
        return;
    }
    let device = FileDevice::open_shared(path, Access::ReadOnly).unwrap();
    assert!(!device.direct_io());
    assert_eq!(device.geometry().block_count, 1);
    let error = device.read(0, &mut [Block::ZERO]).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn concurrent_threads_read_back_their_own_writes() {
    let image = ImageFile::new(8 * 64);
    let device = image.open();
    std::thread::scope(|scope| {
        for thread_no in 0..8_u64 {
            let device = &device;
            scope.spawn(move || {
                for address in (thread_no..8 * 64).step_by(8) {
                    let blocks = [block(address as u8)];
                    device.write(address, &[&blocks], Stream(thread_no as u8)).unwrap();
                    assert_eq!(read(device, address, 1), blocks);
                }
            });
        }
    });
}

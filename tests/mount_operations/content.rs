//! Contents of files: all ways to write and to read.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::ptr;

use rustix::fs::SeekFrom as Sought;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use sfs_device::Block;

use super::harness::{TestVolume, can_mount};
use super::{SIZE, expect_errno, on_volumes, run};
use sfs_testkit::{SeededRng, wait_until};

/// Scenarios that other tests run on other kinds of volumes.
pub(crate) const EVERYTHING: &[fn(&Path)] =
    &[writes, truncations, appends, direct_io, mappings, holes, running_program];

const BLOCK: usize = 4096;

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    options
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("reading")
}

#[test]
fn mounted_writes_read_back_at_any_size_and_offset() {
    on_volumes(writes);
}

/// Writes of all sizes at random offsets, compared with a copy in memory.
fn writes(dir: &Path) {
    let path = dir.join("file");
    let file = options().create_new(true).open(&path).expect("a new file");
    expect_errno(options().create_new(true).open(&path), libc::EEXIST);
    let (mut random, mut model) = (SeededRng::new(3), Vec::new());
    for _ in 0..500 {
        let len_max = 2 << random.below(17);
        let len = 1 + random.below(len_max) as usize;
        let start = random.below(3 << 20) as usize;
        let bytes = random.bytes(len);
        file.write_all_at(&bytes, start as u64).expect("writing");
        if model.len() < start + len {
            model.resize(start + len, 0);
        }
        model[start..start + len].copy_from_slice(&bytes);
        let (from, len) = (random.below(model.len() as u64) as usize, 70_000);
        let mut seen = vec![0; len.min(model.len() - from)];
        file.read_exact_at(&mut seen, from as u64).expect("reading");
        assert!(seen == model[from..from + seen.len()]);
    }
    file.sync_all().expect("syncing");
    assert!(read(&path) == model);
    let large = SeededRng::new(4).bytes(20 << 20);
    fs::write(dir.join("large"), &large).expect("writing");
    assert!(read(&dir.join("large")) == large);
}

#[test]
fn mounted_truncated_bytes_do_not_reappear() {
    on_volumes(truncations);
}

fn truncations(dir: &Path) {
    let bytes = SeededRng::new(5).bytes(100_000);
    for len in [0, 1, 4095, 4096, 4097, 50_000, 99_999, 100_001, 300_000_usize] {
        let path = dir.join(format!("to-{len}"));
        fs::write(&path, &bytes).expect("writing");
        let file = options().open(&path).expect("the entry exists");
        file.set_len(len as u64).expect("truncating");
        let mut model = bytes.clone();
        model.resize(len, 0);
        assert!(read(&path) == model, "to {len}");
        // Truncated bytes must not reappear.
        file.set_len(120_000).expect("extending");
        model.resize(120_000, 0);
        assert!(read(&path) == model, "to {len}, then extended");
    }
    let path = dir.join("emptied");
    fs::write(&path, &bytes).expect("writing");
    let mut file = options().truncate(true).open(&path).expect("opening with O_TRUNC");
    assert_eq!(fs::metadata(&path).expect("the entry exists").len(), 0);
    file.write_all(b"new").expect("writing");
    assert_eq!(read(&path), b"new");
    expect_errno(file.set_len(1 << 62), libc::EFBIG);
}

#[test]
fn mounted_appends_go_to_the_end_of_the_file() {
    on_volumes(appends);
}

fn appends(dir: &Path) {
    let path = dir.join("log");
    let mut model = Vec::new();
    let open = || File::options().append(true).create(true).open(&path).expect("opening");
    let mut files = [open(), open()];
    for index in 0..2000_usize {
        let line = format!("line {index}\n");
        files[index % 2].write_all(line.as_bytes()).expect("appending");
        model.extend_from_slice(line.as_bytes());
    }
    files[0].seek(SeekFrom::Start(0)).expect("seeking");
    files[0].write_all(b"still at the end").expect("appending");
    model.extend_from_slice(b"still at the end");
    assert!(read(&path) == model);
}

#[test]
fn mounted_direct_and_cached_io_see_each_other() {
    on_volumes(direct_io);
}

fn direct_io(dir: &Path) {
    let path = dir.join("direct");
    let direct = options().custom_flags(libc::O_DIRECT).open(&path).expect("opening O_DIRECT");
    let mut blocks = Block::zeroed(256);
    let mut model = SeededRng::new(6).bytes(256 * BLOCK);
    Block::bytes_of_mut(&mut blocks).copy_from_slice(&model);
    direct.write_all_at(Block::bytes_of(&blocks), 0).expect("writing");
    // Writes through the cache and direct reads, and the reverse, in turn.
    let cached = options().open(&path).expect("the entry exists");
    cached.write_all_at(b"cached", 10_000).expect("writing");
    model[10_000..10_006].copy_from_slice(b"cached");
    direct.read_exact_at(Block::bytes_of_mut(&mut blocks), 0).expect("reading");
    assert!(Block::bytes_of(&blocks) == model);
    // FUSE requires no alignment, neither in the file nor in memory.
    let mut part = [0; 10_001];
    for (offset, len) in [(1, 1), (4095, 2), (4097, 10_001), (8192, 100), (12_345, 4096)] {
        direct.read_exact_at(&mut part[..len], offset).expect("reading");
        assert!(part[..len] == model[offset as usize..][..len], "{len} bytes at {offset}");
    }
    assert_eq!(direct.read_at(&mut part, model.len() as u64 - 10).expect("reading"), 10);
    Block::bytes_of_mut(&mut blocks)[..BLOCK].fill(9);
    direct.write_all_at(&Block::bytes_of(&blocks)[..BLOCK], 8192).expect("writing");
    model[8192..8192 + BLOCK].fill(9);
    assert!(read(&path) == model);
}

#[test]
fn mounted_mappings_and_writes_see_each_other() {
    on_volumes(mappings);
}

fn mappings(dir: &Path) {
    let path = dir.join("mapped");
    let len = 1 << 20;
    let mut model = SeededRng::new(7).bytes(len - 100);
    fs::write(&path, &model).expect("writing");
    let file = options().open(&path).expect("the entry exists");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address; only the slice below refers to the mapping, and the
    // slice ends before the mapping does.
    unsafe {
        let at = mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0).expect("mmap");
        let bytes = std::slice::from_raw_parts_mut(at.cast::<u8>(), len);
        assert!(bytes[..model.len()] == model && bytes[model.len()..].iter().all(|b| *b == 0));
        for start in (0..model.len() - 5000).step_by(7777) {
            bytes[start..start + 5000].fill(start as u8);
            model[start..start + 5000].fill(start as u8);
        }
        bytes[model.len()..].fill(0xee); // Past the end: not stored.
        msync(at, len, MsyncFlags::SYNC).expect("msync");
        assert!(read(&path) == model);
        bytes[..4].copy_from_slice(b"last");
        munmap(at, len).expect("munmap");
    }
    model[..4].copy_from_slice(b"last");
    assert!(read(&path) == model);
    drop(file);
    options().open(&path).and_then(|file| file.set_len(len as u64)).expect("extending");
    model.resize(len, 0);
    assert!(read(&path) == model, "data that was written past the end has come back");
}

#[test]
fn mounted_running_programs_are_not_written() {
    on_volumes(running_program);
}

fn running_program(dir: &Path) {
    let path = dir.join("program");
    // Not by this process: a test beside this one that starts a program at the same moment would have it inherit the
    // file, open for writing, and the program could not be started.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status().expect("starting cp");
    assert!(copied.success(), "cp: {copied}");
    let content = read(&path);
    let mut running = Command::new(&path).arg("60").spawn().expect("starting the program");
    let busy = Errno::TXTBSY.raw_os_error();
    expect_errno(File::options().write(true).open(&path), busy);
    expect_errno(File::options().read(true).write(true).open(&path), busy);
    expect_errno(File::options().write(true).truncate(true).open(&path), busy);
    assert!(read(&path) == content, "a running program has changed");
    assert!(running.try_wait().expect("asking").is_none(), "the program has ended");
    running.kill().expect("ending the program");
    running.wait().expect("waiting for the program");
}

#[test]
fn mounted_holes_are_found_between_data() {
    on_volumes(holes);
}

/// Offset of the far end of a sparse file.
const FAR: u64 = 5 << 30;

fn write_sparse(dir: &Path) -> File {
    let file = options().open(dir.join("sparse")).expect("a file");
    file.write_all_at(b"first", 0).expect("writing");
    file.write_all_at(&[1; 2 * BLOCK], 1 << 20).expect("writing");
    file.write_all_at(b"far", FAR).expect("writing");
    file
}

fn holes(dir: &Path) {
    let mut file = write_sparse(dir);
    let sectors = || file.metadata().expect("the entry exists").blocks();
    // Data that is only in memory is no hole, neither for SEEK_HOLE nor for tar, which compares
    // block counts.
    for data in [0, 1 << 20, FAR] {
        assert_eq!(data_from(&file, data), data);
    }
    assert!(sectors() > 0);
    file.sync_all().expect("syncing");
    assert!(sectors() <= 16 * 8, "a sparse file has {} sectors", sectors());
    file.seek(SeekFrom::Start(FAR - 3)).expect("seeking");
    let mut end = Vec::new();
    file.read_to_end(&mut end).expect("reading");
    assert_eq!(end, b"\0\0\0far");
    // The snapshot reads the whole file, so the file is made short again.
    file.set_len(3 << 20).expect("truncating");
    drop(file);
    mapped_data_is_no_hole(dir);
}

/// Returns the offset of the next data, as a program takes it: a file that gives no answer is read as a whole.
fn data_from(file: &File, offset: u64) -> u64 {
    match rustix::fs::seek(file, Sought::Data(offset)) {
        Err(rustix::io::Errno::INVAL) => offset,
        found => found.expect("data"),
    }
}

/// Regression: a copy of the file had zeros in place of data of a mapping that the kernel had not
/// reported.
fn mapped_data_is_no_hole(dir: &Path) {
    let path = dir.join("mapped");
    let file = options().open(&path).expect("a file");
    file.set_len(1 << 20).expect("room");
    let (at, len) = (512 << 10, 1 << 20);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, of a file of this test only, and used until it is unmapped.
    let mapped = unsafe {
        let start =
            mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0).expect("a mapping");
        start.cast::<u8>().add(at).write(7);
        start
    };
    let data = data_from(&file, 0);
    assert!(data <= at as u64, "{data}");
    let reader = File::open(&path).expect("the entry exists");
    match rustix::fs::seek(&reader, Sought::Hole(data)) {
        Ok(hole) => {
            assert!(hole > at as u64);
            expect_errno(rustix::fs::seek(&reader, Sought::Data(len as u64)), libc::ENXIO);
        }
        // With the write-back cache a file that is open for writing gives no answer.
        refused => expect_errno(refused, libc::EINVAL),
    }
    // SAFETY: the mapping belongs to this test, and is not used any more.
    unsafe { munmap(mapped, len).expect("the mapping was there") };
}

/// The kernel's cache cannot be asked for holes; without write-back, SFS answers and holes are
/// found.
#[test]
fn mounted_holes_are_found_without_writeback() {
    if can_mount() {
        run(&TestVolume::new(SIZE), "nowriteback", holes_are_found);
    }
}

fn holes_are_found(dir: &Path) {
    drop(write_sparse(dir));
    // The file is opened only for writing: a readable file could be mapped.
    let file = File::options().write(true).open(dir.join("sparse")).expect("the entry exists");
    let seek = |what| rustix::fs::seek(&file, what);
    let block = BLOCK as u64;
    // The kernel releases a file after close(2) has returned.
    wait_until("a hole", || seek(Sought::Hole(0)).is_ok_and(|hole| hole == block));
    for _written_back in [false, true] {
        assert_eq!(seek(Sought::Data(0)).expect("data"), 0);
        assert_eq!(seek(Sought::Hole(0)).expect("a hole"), block);
        assert_eq!(seek(Sought::Data(block)).expect("data"), 1 << 20);
        assert_eq!(seek(Sought::Hole(1 << 20)).expect("a hole"), (1 << 20) + 2 * block);
        assert_eq!(seek(Sought::Data(2 << 20)).expect("data"), FAR);
        assert_eq!(seek(Sought::Hole(FAR)).expect("the end"), FAR + 3);
        expect_errno(seek(Sought::Data(FAR + 3)), libc::ENXIO);
        file.sync_all().expect("syncing");
    }
    file.set_len(3 << 20).expect("truncating");
}

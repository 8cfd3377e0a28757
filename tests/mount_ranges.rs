//! fallocate(2), copy_file_range(2), and lseek(2) for holes, through the kernel and its cache.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

use harness::{CACHES, TestVolume, can_mount};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sfs_core::format::DataLayout;
use sfs_testkit::{SeededRng, wait_until};

const BLOCK: u64 = 4096;
const NOBODY: u32 = 65_534;

/// Runs `scenario` on volumes of each data layout, with and without the kernel's write-back cache, and checks the
/// volumes.
fn on_volumes(size: &str, scenario: fn(&Path)) {
    if !can_mount() {
        return;
    }
    for data_layout in DataLayout::ALL {
        for options in CACHES {
            // One layout in place stands for all of them with the other cache mode.
            let is_rare = !matches!(data_layout, DataLayout::Log | DataLayout::BlockGroup);
            if is_rare && options != CACHES[0] {
                continue;
            }
            println!("--layout {} -o {options}", data_layout.name());
            let volume = TestVolume::placed(size, data_layout.name());
            let mount = volume.mount(options);
            scenario(&mount.dir);
            mount.unmount();
            volume.check();
        }
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

fn free_blocks(dir: &Path) -> u64 {
    let space = rustix::fs::statvfs(dir).expect("statvfs");
    space.f_bavail * space.f_frsize / BLOCK
}

fn blocks(file: &File) -> u64 {
    file.metadata().expect("the entry exists").blocks() * 512 / BLOCK
}

/// Fills the volume through the kernel's cache.
fn fill(dir: &Path) {
    for no in 0..1000 {
        let file = open(&dir.join(format!("fill-{no}")));
        let written = file.write_all_at(&[9; 1 << 20], 0).and_then(|()| file.sync_all());
        if written.is_err() {
            return;
        }
    }
    panic!("the volume is never full");
}

#[test]
fn mounted_preallocated_blocks_can_be_written_on_a_full_volume() {
    on_volumes("64M", preallocated_blocks_can_be_written);
}

/// As PostgreSQL makes a segment of its log (`wal_init`), with a length that the volume has room for.
fn preallocated_blocks_can_be_written(dir: &Path) {
    const LEN: u64 = 8 << 20;
    let before = free_blocks(dir);
    let file = open(&dir.join("log"));
    fallocate(&file, FallocateFlags::empty(), 0, LEN).expect("there is space");
    assert_eq!(file.metadata().expect("the entry exists").len(), LEN);
    assert_eq!(blocks(&file), LEN / BLOCK);
    assert!(before - free_blocks(dir) >= LEN / BLOCK);
    let mut content = vec![1; LEN as usize];
    file.read_exact_at(&mut content, 0).expect("reading");
    assert!(content.iter().all(|byte| *byte == 0));
    let refused = fallocate(&file, FallocateFlags::empty(), 0, 1 << 30);
    assert_eq!(refused, Err(Errno::NOSPC));
    assert_eq!(file.metadata().expect("the entry exists").len(), LEN);
    fill(dir);
    let mut random = SeededRng::new(3);
    for no in 0..64 {
        let bytes = random.bytes(8192);
        let at = random.below(LEN / 8192) * 8192;
        file.write_all_at(&bytes, at).expect("reserved blocks can be written");
        content[at as usize..][..8192].copy_from_slice(&bytes);
        if no % 8 == 0 {
            file.sync_data().expect("and synced");
        }
    }
    let rest = random.bytes(LEN as usize);
    file.write_all_at(&rest[..LEN as usize / 2], 0).expect("reserved blocks can be written");
    content[..LEN as usize / 2].copy_from_slice(&rest[..LEN as usize / 2]);
    file.sync_all().expect("and synced");
    let mut seen = vec![0; LEN as usize];
    file.read_exact_at(&mut seen, 0).expect("reading");
    assert!(seen == content);
}

#[test]
fn mounted_holes_are_punched_and_ranges_zeroed() {
    on_volumes("256M", holes_are_punched);
}

fn holes_are_punched(dir: &Path) {
    let file = open(&dir.join("file"));
    let mut content = SeededRng::new(1).bytes(100 * BLOCK as usize + 100);
    // The data is dirty in the kernel's cache.
    file.write_all_at(&content, 0).expect("writing");
    let compare = |content: &[u8]| {
        assert!(fs::read(dir.join("file")).expect("reading") == content);
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 5000, 60_000).expect("a hole");
    content[5000..65_000].fill(0);
    compare(&content);
    file.sync_all().expect("syncing");
    assert_eq!(blocks(&file), 101 - 13);
    fallocate(&file, punch, 90 * BLOCK, 1 << 40).expect("a hole over the end");
    content[90 * BLOCK as usize..].fill(0);
    compare(&content);
    assert_eq!(blocks(&file), 90 - 13);
    let zero = FallocateFlags::ZERO_RANGE;
    fallocate(&file, zero, 1000, 80 * BLOCK).expect("a range of zeros");
    content[1000..1000 + 80 * BLOCK as usize].fill(0);
    compare(&content);
    let longer = 120 * BLOCK + 5;
    fallocate(&file, zero, 95 * BLOCK, longer - 95 * BLOCK).expect("a longer file");
    content.resize(longer as usize, 0);
    compare(&content);
    fallocate(&file, zero | FallocateFlags::KEEP_SIZE, 95 * BLOCK, 40 * BLOCK).expect("behind");
    assert_eq!(blocks(&file), 90 + 40);
    compare(&content);
    // Dirty blocks of a file with holes may count twice until they are written.
    file.sync_all().expect("syncing");
    file.set_len(longer).expect("the same size");
    assert_eq!(blocks(&file), 90 + 26, "the size given again frees the blocks behind the end");
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, refused, 0, BLOCK), Err(Errno::OPNOTSUPP));
    }
    // A small file, whose content is in the tree.
    let small = open(&dir.join("small"));
    small.write_all_at(b"0123456789", 0).expect("writing");
    small.sync_all().expect("syncing");
    fallocate(&small, punch, 2, 3).expect("a hole");
    fallocate(&small, FallocateFlags::KEEP_SIZE, 0, 10_000).expect("there is space");
    assert_eq!(fs::read(dir.join("small")).expect("reading"), b"01\0\0\x0056789");
    fallocate(&small, FallocateFlags::empty(), 0, 10_000).expect("there is space");
    small.sync_all().expect("syncing");
    let mut expected = b"01\0\0\x0056789".to_vec();
    expected.resize(10_000, 0);
    assert!(fs::read(dir.join("small")).expect("reading") == expected);
    assert_eq!(blocks(&small), 3);
}

/// fallocate(1), and posix_fallocate(3) of the C library, which writes zeros where the filesystem has no fallocate(2).
#[test]
fn mounted_programs_preallocate() {
    on_volumes("256M", programs_preallocate);
}

fn programs_preallocate(dir: &Path) {
    let path = dir.join("file");
    let run = |arguments: &[&str]| {
        let status = Command::new("fallocate").args(arguments).arg(&path).status();
        assert!(status.expect("fallocate(1) runs").success(), "{arguments:?}");
    };
    run(&["-l", "10MiB"]);
    assert_eq!(blocks(&open(&path)), 2560);
    run(&["-p", "-o", "1MiB", "-l", "1MiB"]);
    assert_eq!(blocks(&open(&path)), 2304);
    run(&["-z", "-o", "0", "-l", "11MiB"]);
    assert_eq!(blocks(&open(&path)), 2816);
    fs::write(dir.join("sparse"), vec![0; 1 << 20]).expect("writing");
    let dug = Command::new("fallocate").arg("-d").arg(dir.join("sparse")).status();
    assert!(dug.expect("fallocate(1) runs").success());
    // It opens the file for writing, so with the write-back cache it finds nothing to dig.
    assert!([0, 256].contains(&blocks(&open(&dir.join("sparse")))));
    assert!(fs::read(dir.join("sparse")).expect("reading") == vec![0; 1 << 20]);
    let file = open(&dir.join("posix"));
    // SAFETY: the descriptor is open, and the call takes no memory.
    let outcome =
        unsafe { libc::posix_fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 64 << 20) };
    assert_eq!((outcome, blocks(&file)), (0, 64 << 8));
    // A user without CAP_FSETID clears suid by it.
    chown(&path, Some(NOBODY), Some(NOBODY)).expect("a new owner");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).expect("a mode");
    let mode = || fs::metadata(&path).expect("the entry exists").mode() & 0o7777;
    run(&["-l", "20MiB"]);
    assert_eq!(mode(), 0o4755, "root keeps suid");
    let mut by_user = Command::new("fallocate");
    by_user.args(["-l", "21MiB"]).arg(&path).uid(NOBODY).gid(NOBODY);
    assert!(by_user.status().expect("fallocate(1) runs").success());
    assert_eq!(mode(), 0o755);
}

#[test]
fn mounted_ranges_are_copied_by_the_daemon() {
    on_volumes("256M", ranges_are_copied);
}

fn ranges_are_copied(dir: &Path) {
    let from = open(&dir.join("from"));
    let bytes = SeededRng::new(2).bytes(20 << 20);
    // The source is dirty in the kernel's cache, and so is a part of the target.
    from.write_all_at(&bytes, 0).expect("writing");
    let to = open(&dir.join("to"));
    to.write_all_at(&[7; 3 * BLOCK as usize], 0).expect("writing");
    let copied = copy_file_range(&from, Some(&mut 100), &to, Some(&mut 5000), 20 << 20);
    let copied = copied.expect("the range is copied");
    assert_eq!(copied, 16 << 20, "a copy is short");
    let mut expected = vec![7; 5000];
    expected.extend_from_slice(&bytes[100..100 + copied]);
    assert!(fs::read(dir.join("to")).expect("reading") == expected);
    // Holes stay holes, also where the target had data.
    let sparse = open(&dir.join("sparse"));
    sparse.write_all_at(b"first", 0).expect("writing");
    sparse.write_all_at(b"last", 8 << 20).expect("writing");
    let mut at = (0, 0);
    loop {
        match copy_file_range(&sparse, Some(&mut at.0), &to, Some(&mut at.1), 64 << 20) {
            Ok(0) => break,
            copied => copied.expect("the range is copied"),
        };
    }
    to.sync_all().expect("syncing");
    expected[..8 << 20].fill(0);
    expected[..5].copy_from_slice(b"first");
    expected[8 << 20..][..4].copy_from_slice(b"last");
    assert!(fs::read(dir.join("to")).expect("reading") == expected);
    assert!(blocks(&to) <= (8 << 8) + 4, "{} blocks", blocks(&to));
    // Within one file, and over itself.
    copy_file_range(&to, Some(&mut 0), &to, Some(&mut (1 << 20)), 5).expect("a copy");
    expected[1 << 20..][..5].copy_from_slice(b"first");
    assert!(fs::read(dir.join("to")).expect("reading") == expected);
    let overlapping = copy_file_range(&to, Some(&mut 0), &to, Some(&mut 3), 5);
    assert_eq!(overlapping, Err(Errno::INVAL));
    let appending = File::options().append(true).open(dir.join("to")).expect("the entry exists");
    assert_eq!(copy_file_range(&from, Some(&mut 0), &appending, None, 5), Err(Errno::BADF));
    assert_eq!(copy_file_range(&from, Some(&mut (1 << 40)), &to, None, 5), Ok(0));
}

/// A file that nobody has open for writing has no dirty data in the kernel's cache: cp(1), tar(1) and `qemu-img` find its
/// holes.
#[test]
fn mounted_holes_of_closed_files_are_found_with_every_cache() {
    on_volumes("256M", holes_of_closed_files_are_found);
}

fn holes_of_closed_files_are_found(dir: &Path) {
    let path = dir.join("sparse");
    let file = open(&path);
    file.write_all_at(b"first", 0).expect("writing");
    file.set_len(8 << 20).expect("room");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let (at, len) = (4 << 20, 8 << 20);
    // SAFETY: the mapping is new, of a file of this test only, and used until it is unmapped.
    let mapped = unsafe {
        let start =
            mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0).expect("a mapping");
        start.cast::<u8>().add(at).write(7);
        start
    };
    drop(file);
    let reader = File::open(&path).expect("the entry exists");
    let seek = |what| seek(&reader, what);
    let is_no_hole = |what, data: u64| match seek(what) {
        Err(Errno::INVAL) => {}
        found => assert!(found.expect("data") <= data),
    };
    // The file is still mapped.
    is_no_hole(SeekFrom::Data(1 << 20), at as u64);
    // SAFETY: the mapping belongs to this test, and is not used any more.
    unsafe { munmap(mapped, len).expect("the mapping was there") };
    // The kernel releases a file after munmap(2) has returned.
    wait_until("a hole", || seek(SeekFrom::Hole(0)) == Ok(BLOCK));
    assert_eq!(seek(SeekFrom::Data(BLOCK)), Ok(at as u64));
    assert_eq!(seek(SeekFrom::Hole(at as u64)), Ok(at as u64 + BLOCK));
    assert_eq!(seek(SeekFrom::Data(at as u64 + BLOCK)), Err(Errno::NXIO));
    let mut copying = Command::new("cp");
    copying.args(["--sparse=auto", "--reflink=never"]).arg(&path).arg(dir.join("copy"));
    let copied = copying.status();
    assert!(copied.expect("cp(1) runs").success());
    let mut seen = Vec::new();
    let mut copy = File::open(dir.join("copy")).expect("the entry exists");
    copy.read_to_end(&mut seen).expect("reading");
    assert!(seen == fs::read(&path).expect("reading"));
    assert_eq!(blocks(&copy), 2);
    // Data in the kernel's cache is never taken for a hole.
    let file = open(&path);
    file.write_all_at(b"new", 6 << 20).expect("writing");
    is_no_hole(SeekFrom::Data(5 << 20), 6 << 20);
}

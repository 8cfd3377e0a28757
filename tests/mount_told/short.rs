//! Files that are opened for writing on a nearly full volume.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::harness::{Mount, TestVolume, can_mount};
use crate::kernel::answers_each_write;
use sfs_testkit::SeededRng;

const MIB: usize = 1 << 20;

/// Bytes that are left free: less than an eighth of the volume.
const LEFT: u64 = 5 << 20;

/// Writes and syncs a file until little space is left.
pub(crate) fn fill(dir: &Path, left: u64) {
    let mut file = File::create(dir.join("filling")).expect("creating");
    let bytes = SeededRng::new(1).bytes(MIB);
    while free_bytes(dir) > left {
        file.write_all(&bytes).and_then(|()| file.sync_all()).expect("there is room");
    }
}

fn free_bytes(dir: &Path) -> u64 {
    let space = rustix::fs::statvfs(dir).expect("statvfs");
    space.f_bavail * space.f_frsize
}

/// Writes until a write fails; returns the bytes that were accepted.
fn write_until_told(mut file: &File, bytes: &[u8]) -> usize {
    for (written, piece) in bytes.chunks(64 << 10).enumerate() {
        if let Err(error) = file.write_all(piece) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
            return written * (64 << 10);
        }
    }
    panic!("all data was accepted");
}

fn new_mount() -> (TestVolume, Mount) {
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    fill(&mount.dir, LEFT);
    (volume, mount)
}

#[test]
fn mounted_nearly_full_volumes_answer_each_write() {
    if !can_mount() || !answers_each_write() {
        return;
    }
    let (volume, mount) = new_mount();
    let bytes = SeededRng::new(2).bytes(2 * LEFT as usize);
    let path = mount.dir.join("file");
    let file = File::create(&path).expect("creating");
    let taken = write_until_told(&file, &bytes);
    assert!(taken > LEFT as usize / 2, "{taken} bytes");
    // Overwriting and deleting still work.
    let old = File::options().write(true).open(mount.dir.join("filling")).expect("opening");
    old.write_all_at(&bytes[..MIB], 0).and_then(|()| old.sync_all()).expect("overwriting");
    file.write_all_at(&bytes[MIB..2 * MIB], 0).expect("overwriting new data");
    file.sync_all().expect("the accepted data fits");
    drop((file, old));
    mount.unmount();
    volume.check();
    let mount = volume.mount("ro");
    let found = fs::read(&path).expect("reading");
    assert!(found[..MIB] == bytes[MIB..2 * MIB] && found[MIB..taken] == bytes[MIB..taken]);
    mount.unmount();
}

/// A file that is open for direct I/O can be mapped, and both views agree.
#[test]
fn mounted_nearly_full_volumes_map_new_files() {
    if !can_mount() {
        return;
    }
    let (_volume, mount) = new_mount();
    let path = mount.dir.join("file");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.expect("creating");
    file.write_all_at(&[b'a'; 8192], 0).expect("there is room");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which is unmapped below and used nowhere else.
    let at = unsafe { mmap(ptr::null_mut(), 8192, access, MapFlags::SHARED, &file, 0) };
    let at = at.expect("a mapping").cast::<u8>();
    // SAFETY: these bytes are mapped, and no other reference has this address.
    let map = unsafe { std::slice::from_raw_parts_mut(at, 8192) };
    assert!(map.iter().all(|byte| *byte == b'a'));
    map[..4096].fill(b'b');
    let mut found = [0; 8192];
    file.read_exact_at(&mut found, 0).expect("reading");
    assert!(found[..4096] == [b'b'; 4096] && found[4096..] == [b'a'; 4096]);
    // SAFETY: as above; the mapping is not used later.
    unsafe { munmap(at.cast(), 8192) }.expect("the memory was mapped");
    file.write_all_at(b"c", 4096).expect("there is room");
    file.read_exact_at(&mut found[..2], 4095).expect("reading");
    assert_eq!(found[..2], *b"bc");
    drop(file);
    mount.unmount();
}

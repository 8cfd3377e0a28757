//! Reports to programs when a full volume has no space for data that the kernel had accepted.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::bound::numbers;
use crate::harness::{Mount, TestVolume, can_mount, sfs_umount_unused, stderr};
use crate::kernel::answers_each_write;
use crate::short::fill;
use sfs_testkit::{SeededRng, wait_until};

const MIB: usize = 1 << 20;

/// Seconds after which a program to which no error is reported is killed.
const DD_SECS: &str = "60";

/// Validity of attributes in the kernel's cache: after this time the kernel asks again.
const SOON: Duration = Duration::from_secs(2);

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", DD_SECS, program]).args(arguments);
    command.env("LC_ALL", "C").output().expect("coreutils are installed")
}

fn free_bytes(mount: &Mount) -> u64 {
    numbers(&mount.dir)["space"]["free_blocks"].as_u64().expect("a number") * 4096
}

/// Unmounts, and returns the exit status and the messages of `sfs-umount`.
fn unmount(mount: Mount) -> (Option<i32>, String) {
    let output = sfs_umount_unused(&mount.dir);
    mount.wait_for_end();
    (output.status.code(), stderr(&output))
}

fn is_no_space<T>(outcome: io::Result<T>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn mounted_full_volumes_fail_dd() {
    if !can_mount() {
        return;
    }
    for size in ["64M", "128M"] {
        let volume = TestVolume::new(size);
        let mount = volume.mount("");
        let bound = free_bytes(&mount) / 4;
        let path = mount.dir.join("zeros");
        let of = format!("of={}", path.display());
        // Written zeros are not a hole, and need space.
        let output = run("dd", &["if=/dev/zero", &of, "bs=64k"]);
        assert_eq!(output.status.code(), Some(1), "{size}: {}", stderr(&output));
        assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
        let claimed = fs::metadata(&path).expect("the entry exists").len();
        let (status, said) = unmount(mount);
        assert_eq!(status, Some(0), "dd has got the error: {said}");
        volume.check();
        let mount = volume.mount("ro");
        let found = numbers(&mount.dir)["space"].clone();
        let used = found["total_blocks"].as_u64().expect("a number")
            - found["free_blocks"].as_u64().expect("a number");
        let beyond = claimed.saturating_sub(used * 4096);
        assert!(beyond <= bound, "{size}: {beyond} bytes beyond the space, {bound} allowed");
        mount.unmount();
    }
}

/// Files that cp(1) reports as copied exist. For the first file that does not fit write(2) fails,
/// or close(2) on an old kernel.
#[test]
fn mounted_full_volumes_fail_cp() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let source = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    fs::write(source.path(), SeededRng::new(3).bytes(3 * MIB)).expect("writing");
    let mount = volume.mount("");
    let copy = |number: i32| mount.dir.join(number.to_string());
    let paths = |number| [source.path().to_owned(), copy(number)].map(|p| p.display().to_string());
    let copied = (0..64).find_map(|number| {
        let [from, to] = paths(number);
        let output = run("cp", &[&from, &to]);
        (!output.status.success()).then(|| (number, stderr(&output)))
    });
    let (count, said) = copied.expect("the volume becomes full");
    // Where writes are cached, close(2) reports the loss.
    let is_reported = said.contains("error writing")
        || !answers_each_write() && said.contains("No space left on device");
    assert!(count > 10 && is_reported, "{count}: {said}");
    let (status, said) = unmount(mount);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    let mount = volume.mount("ro");
    for number in 0..count {
        let [from, to] = [source.path().to_owned(), mount.dir.join(number.to_string())];
        assert!(fs::read(from).expect("reading") == fs::read(to).expect("reading"), "{number}");
    }
    mount.unmount();
}

/// Writes through `file` until a write fails.
fn overfill(file: &File) {
    let bytes = SeededRng::new(4).bytes(64 << 10);
    let told = (0..2048).find(|at| is_no_space(file.write_all_at(&bytes, at * bytes.len() as u64)));
    assert!(told.is_some(), "128 MiB were accepted");
}

#[test]
fn mounted_full_volumes_report_a_loss_once_to_each_writer() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let path = |name: &str| mount.dir.join(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let old = options.open(path("old")).expect("creating");
    old.write_all_at(&[1; MIB], 0).and_then(|()| old.sync_all()).expect("there is room");
    fs::write(path("spare"), SeededRng::new(5).bytes(20 * MIB)).expect("there is room");
    let open = |_| options.open(path("file")).expect("opening");
    let [one, two] = [(), ()].map(open);
    overfill(&one);
    assert!(is_no_space(two.write_at(b"x", 0)), "the second writer gets the same loss");
    assert!(is_no_space(two.write_at(b"x", 0)), "the volume is full");
    // The kernel may still hold pages of the first writer. These pages must be lost while all
    // writers know that the volume is full: a later loss would be reported to each writer again.
    // The error goes to a reader, which has no write to be refused.
    let reader = File::open(path("file")).expect("opening");
    let first = reader.sync_data();
    assert!(first.is_ok() || is_no_space(first), "syncing as a reader");
    drop(reader);
    // A writer that has lost nothing can overwrite and delete.
    old.write_all_at(&[2; MIB], 0).and_then(|()| old.sync_all()).expect("overwriting");
    let later = open(());
    later.write_all_at(&[3; 4096], 0).expect("overwriting");
    // A reply to a request without a handle makes the kernel's attributes valid for a moment.
    fs::metadata(path("file")).expect("the entry exists");
    let end = Instant::now() + SOON;
    while !is_no_space(one.write_at(b"x", 0)) {
        assert!(Instant::now() < end, "the error is not reported again");
        thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(path("spare")).expect("deleting");
    wait_until("there is room", || !is_no_space(one.write_at(b"x", 0)));
    two.write_all_at(b"x", 0).expect("the loss was reported, and there is space");
    assert!(is_no_space(one.sync_all()), "fsync(2) reports the loss once");
    one.sync_all().expect("fsync(2) reports no loss twice");
    drop((one, two, later, old));
    let (status, said) = unmount(mount);
    assert_eq!(status, Some(0), "{said}");
    volume.check();
}

/// Writes more data than fits through a mapping of a new file, which is open for reading and
/// writing.
fn lose_through_a_mapping(path: &Path) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("creating");
    file.set_len(16 * MIB as u64).expect("a hole");
    let (access, len) = (ProtFlags::READ | ProtFlags::WRITE, 16 * MIB);
    // SAFETY: a new mapping with no other reference; it is unmapped after the last use of its
    // bytes.
    unsafe {
        let at = mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0).expect("mapping");
        std::slice::from_raw_parts_mut(at.cast::<u8>(), len).fill(7);
        munmap(at, len).expect("the memory was mapped");
    }
    file
}

/// Without write-back the kernel requests attributes with the handle before it reads at the end of
/// a file.
#[test]
fn mounted_full_volumes_can_be_read_without_writeback() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("writeback=off");
    fill(&mount.dir, 5 * MIB as u64);
    let mut file = lose_through_a_mapping(&mount.dir.join("mapped"));
    let begun = Instant::now();
    while begun.elapsed() < SOON / 2 {
        let end = file.seek(SeekFrom::End(0)).expect("the file has an end");
        let read = file.read_at(&mut [0; 100], end - 10).expect("the file can be read");
        assert_eq!((end, read), (16 * MIB as u64, 10));
    }
    drop(file);
    let (status, said) = unmount(mount);
    assert_eq!(status, Some(64), "{said}");
    volume.check();
}

/// msync(2) and fsync(2) alone report lost data of a mapping. If a program calls neither,
/// sfs-umount reports the loss.
#[test]
fn mounted_losses_of_mappings_are_reported_at_unmount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    fill(&mount.dir, 5 * MIB as u64);
    fs::create_dir(mount.dir.join("dir")).expect("there is room");
    drop(lose_through_a_mapping(&mount.dir.join("dir/mapped")));
    let synced = run("sync", &["--file-system", &mount.dir.display().to_string()]);
    assert_eq!(synced.status.code(), Some(1), "syncfs(2) reports the loss: {}", stderr(&synced));
    let (status, said) = unmount(mount);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("dir/mapped") && said.contains("is lost"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    volume.check();
    let mount = volume.mount("");
    assert_eq!(unmount(mount), (Some(0), String::new()), "nothing was lost this time");
}

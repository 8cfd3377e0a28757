//! Times of files: the times in the kernel's cache equal those on the device.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;

use nix::unistd::{Uid, setfsuid};
use rustix::fs::{XattrFlags, setxattr};
use sfs_device::Block;

use super::on_volumes;

/// Scenarios that other tests run on other kinds of volumes.
pub(crate) const EVERYTHING: &[fn(&Path)] = &[times_of_the_kernel];

/// Number of tries: a failure depends on the moment within a timer tick.
const ROUNDS: usize = 30;

/// An ordinary user.
const NOBODY: Uid = Uid::from_raw(65_534);

#[test]
fn mounted_times_of_the_kernels_cache_are_stored() {
    on_volumes(times_of_the_kernel);
}

fn times_of_the_kernel(dir: &Path) {
    // A file next to the mount, not on the volume.
    let clock = dir.with_file_name("clock");
    for round in 0..ROUNDS {
        let file = |what: &str| dir.join(format!("{what}-{round}"));
        advance(&clock);
        empty(&file("emptied"));
        advance(&clock);
        write_past_the_cache(&file("direct"));
        advance(&clock);
        write_as_another(&file("written"));
        advance(&clock);
        change(&file("changed"), &file("linked"), &file("renamed"));
    }
}

/// Produces a fine-grained time. Since Linux 6.13 the times of files are the later of the tick and
/// the last fine-grained time of any file on any filesystem. The kernel takes a fine-grained time
/// if the file's time was read since its last change.
fn advance(clock: &Path) {
    for _ in 0..2 {
        fs::write(clock, b"tick").expect("writing beside the volume");
        fs::metadata(clock).expect("the entry exists");
    }
}

fn empty(path: &Path) {
    fs::write(path, b"old").expect("writing");
    let mut file = File::options().write(true).truncate(true).open(path).expect("emptying");
    file.write_all(b"new").expect("writing");
}

fn write_past_the_cache(path: &Path) {
    let mut options = File::options();
    options.write(true).create_new(true).custom_flags(libc::O_DIRECT);
    let file = options.open(path).expect("opening O_DIRECT");
    let block = Block::zeroed(1);
    for _ in 0..4 {
        file.write_all_at(Block::bytes_of(&block), 0).expect("writing");
        file.sync_all().expect("syncing");
    }
    file.write_all_at(Block::bytes_of(&block), 0).expect("writing");
}

fn write_as_another(path: &Path) {
    fs::write(path, b"program").expect("writing");
    let write = || {
        setfsuid(NOBODY);
        let file = File::options().append(true).open(path).expect("opening");
        (&file).write_all(b"more").expect("writing");
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o6777)).expect("chmod");
    // A separate thread, since a thread can have its own user ID.
    thread::scope(|scope| scope.spawn(write).join().expect("no panic"));
}

fn change(path: &Path, linked: &Path, renamed: &Path) {
    fs::write(path, b"content").expect("writing");
    let file = File::options().write(true).open(path).expect("the entry exists");
    file.set_len(3).expect("truncating");
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("chmod");
    setxattr(path, "user.name", b"value", XattrFlags::empty()).expect("an attribute");
    fs::hard_link(path, linked).expect("linking");
    fs::rename(path, renamed).expect("renaming");
    file.set_len(5).expect("extending");
    fs::remove_file(linked).expect("unlinking");
}

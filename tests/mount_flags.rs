//! Flags of files on mounted volumes: chattr(1) and lsattr(1) of e2fsprogs, and the changes that the flags forbid.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use harness::{CACHES, TestVolume, can_mount, transport};
use rustix::fs::{FallocateFlags, XattrFlags, copy_file_range, fallocate, setxattr};
use rustix::io::Errno;

fn can_change_flags() -> bool {
    let can = transport() != "fuser";
    if !can {
        eprintln!("skipped: fuser does not pass ioctl(2)");
    }
    can_mount() && can
}

/// Runs chattr(1), and asserts that it succeeds.
fn chattr(change: &str, path: &Path) {
    let output = Command::new("chattr").arg(change).arg(path).output().expect("chattr runs");
    assert!(output.status.success(), "chattr {change}: {output:?}");
}

/// Returns the letters that lsattr(1) shows for a file or directory.
fn lsattr(path: &Path) -> String {
    let output = Command::new("lsattr").arg("-d").arg(path).output().expect("lsattr runs");
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).expect("UTF-8");
    let letters = line.split_whitespace().next().expect("letters");
    letters.chars().filter(|letter| *letter != '-').collect()
}

fn code<T>(outcome: io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

const EPERM: Option<i32> = Some(libc::EPERM);

fn truncate(path: &Path, len: i64) -> io::Result<()> {
    Ok(nix::unistd::truncate(path, len)?)
}

fn opened(path: &Path, append: bool) -> io::Result<File> {
    OpenOptions::new().write(true).append(append).open(path)
}

fn touch(path: &Path, time: SystemTime) -> io::Result<()> {
    // The times are set through a descriptor for reading, as utimensat(2) would by the path.
    File::open(path)?.set_modified(time)
}

#[test]
fn mounted_immutable_files_cannot_be_changed() {
    if !can_change_flags() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let (file, dir) = (mount.dir.join("file"), mount.dir.join("dir"));
        fs::write(&file, b"content").expect("writing");
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("inner"), b"inner").expect("writing");
        let mut open = opened(&file, true).expect("opening");
        chattr("+i", &file);
        chattr("+i", &dir);
        assert_eq!((lsattr(&file).as_str(), lsattr(&dir).as_str()), ("i", "i"));

        assert_eq!(code(opened(&file, false)), EPERM);
        assert_eq!(code(opened(&file, true)), EPERM);
        assert_eq!(code(truncate(&file, 3)), EPERM);
        assert_eq!(code(fs::set_permissions(&file, PermissionsExt::from_mode(0o600))), EPERM);
        assert_eq!(code(chown(&file, Some(1), None)), EPERM);
        assert_eq!(code(touch(&file, SystemTime::UNIX_EPOCH)), EPERM);
        let set = setxattr(&file, "user.x", b"1", XattrFlags::empty());
        assert_eq!(code(set.map_err(io::Error::from)), EPERM);
        assert_eq!(code(fs::hard_link(&file, mount.dir.join("link"))), EPERM);
        assert_eq!(code(fs::rename(&file, mount.dir.join("other"))), EPERM);
        assert_eq!(code(fs::remove_file(&file)), EPERM);
        fs::write(mount.dir.join("new"), b"new").expect("writing");
        assert_eq!(code(fs::rename(mount.dir.join("new"), &file)), EPERM, "{options}");

        assert_eq!(code(File::create(dir.join("new"))), EPERM);
        assert_eq!(code(fs::create_dir(dir.join("new"))), EPERM);
        assert_eq!(code(fs::remove_file(dir.join("inner"))), EPERM);
        assert_eq!(code(fs::rename(dir.join("inner"), mount.dir.join("moved"))), EPERM);
        assert_eq!(code(fs::rename(mount.dir.join("new"), dir.join("new"))), EPERM);
        fs::write(dir.join("inner"), b"changed").expect("files in the directory can be changed");

        // A descriptor that was open before goes on, as the documentation says.
        open.write_all(b" and more").expect("writing");
        open.sync_all().expect("a sync");
        assert_eq!(fs::read(&file).expect("reading"), b"content and more");
        drop(open);

        mount.unmount();
        let mount = volume.mount(options);
        assert_eq!(code(opened(&file, false)), EPERM, "after a remount");
        chattr("-i", &file);
        chattr("-i", &dir);
        fs::write(&file, b"free").expect("writing");
        fs::remove_dir_all(&dir).expect("removing");
        mount.unmount();
        volume.check();
    }
}

/// The kernel knows nothing of the flags, so a descriptor that was open before reaches SFS.
#[test]
fn mounted_open_files_follow_later_flags_in_requests_that_the_cache_does_not_hold() {
    if !can_change_flags() {
        return;
    }
    const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let (path, source) = (mount.dir.join("file"), mount.dir.join("source"));
        fs::write(&path, [1; 10_000]).expect("writing");
        fs::write(&source, [2; 10_000]).expect("writing");
        let open = opened(&path, false).expect("opening");
        let source = File::open(source).expect("opening");
        let reserve = || fallocate(&open, KEEP, 0, 40_960);
        let punch = || fallocate(&open, KEEP | FallocateFlags::PUNCH_HOLE, 0, 4096);
        let copy = || copy_file_range(&source, Some(&mut 0), &open, Some(&mut 0), 10_000);
        chattr("+i", &path);
        assert_eq!(reserve(), Err(Errno::PERM));
        assert_eq!(punch(), Err(Errno::PERM));
        assert_eq!(copy(), Err(Errno::PERM));
        let list = posix_list();
        let set = || setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty());
        assert_eq!(set(), Err(Errno::PERM));
        chattr("-i", &path);
        chattr("+a", &path);
        assert_eq!(punch(), Err(Errno::PERM));
        assert_eq!(reserve(), Ok(()), "an append may need the space");
        chattr("-a", &path);
        assert_eq!(set(), Ok(()));
        assert_eq!(copy(), Ok(10_000));
        assert_eq!(fs::read(&path).expect("reading"), [2; 10_000]);
        drop((open, source));
        mount.unmount();
        volume.check();
    }
}

/// Returns an access list with a named user, as the extended attribute has it.
fn posix_list() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries = [
        entry(1, 6, u32::MAX),
        entry(2, 4, 1000),
        entry(4, 4, u32::MAX),
        entry(16, 4, u32::MAX),
        entry(32, 4, u32::MAX),
    ];
    [2_u32.to_le_bytes().to_vec(), entries.concat()].concat()
}

#[test]
fn mounted_append_only_files_only_grow() {
    if !can_change_flags() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let (file, dir) = (mount.dir.join("log"), mount.dir.join("dir"));
        fs::write(&file, b"one ").expect("writing");
        fs::create_dir(&dir).expect("a directory");
        chattr("+a", &file);
        chattr("+a", &dir);
        assert_eq!(code(opened(&file, false)), EPERM);
        assert_eq!(
            code(File::options().append(true).custom_flags(libc::O_TRUNC).open(&file)),
            EPERM
        );
        assert_eq!(code(truncate(&file, 0)), EPERM);
        let mut log = opened(&file, true).expect("opening to append");
        log.write_all(b"two").expect("appending");
        assert_eq!(code(log.set_len(0)), EPERM);
        log.sync_all().expect("a sync");
        drop(log);
        assert_eq!(fs::read(&file).expect("reading"), b"one two");
        assert_eq!(code(touch(&file, SystemTime::UNIX_EPOCH)), EPERM);
        let touched = Command::new("touch").arg(&file).status().expect("touch runs");
        assert!(touched.success(), "the present time can be set");
        assert_eq!(code(fs::remove_file(&file)), EPERM);
        assert_eq!(code(fs::rename(&file, mount.dir.join("other"))), EPERM);

        fs::write(dir.join("new"), b"new").expect("names can be added");
        fs::hard_link(dir.join("new"), dir.join("link")).expect("links can be added");
        assert_eq!(code(fs::remove_file(dir.join("new"))), EPERM);
        assert_eq!(code(fs::rename(dir.join("new"), dir.join("other"))), EPERM);
        chattr("-a", &dir);
        chattr("-a", &file);
        fs::remove_dir_all(&dir).expect("removing");
        fs::remove_file(&file).expect("removing");
        mount.unmount();
        volume.check();
    }
}

/// The owner may set "no dump" and "no atime", and only an administrator "immutable" and "append-only".
#[test]
fn mounted_flags_are_set_by_those_who_may() {
    if !can_change_flags() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    for dir in [volume.scratch.path(), &mount.dir] {
        fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).expect("the directory is ours");
    }
    let (own, other) = (mount.dir.join("own"), mount.dir.join("other"));
    fs::write(&own, b"").expect("writing");
    fs::write(&other, b"").expect("writing");
    chown(&own, Some(65534), Some(65534)).expect("changing the owner");
    let as_user = |change: &str, path: &Path| {
        let arguments = ["--reuid=65534", "--regid=65534", "--clear-groups", "chattr", change];
        let output = Command::new("setpriv").args(arguments).arg(path).output();
        output.expect("setpriv runs").status.success()
    };
    assert!(as_user("+d", &own) && as_user("+A", &own));
    assert_eq!(lsattr(&own), "dA");
    for change in ["+i", "+a"] {
        assert!(!as_user(change, &own), "{change}");
    }
    assert!(!as_user("+d", &other), "not the owner");
    assert_eq!((lsattr(&own).as_str(), lsattr(&other).as_str()), ("dA", ""));
    // What XFS's programs show is the same.
    let shown = Command::new("xfs_io").args(["-r", "-c", "lsattr"]).arg(&own).output();
    match shown {
        Ok(shown) => {
            let line = String::from_utf8_lossy(&shown.stdout).into_owned();
            let letters = line.split_whitespace().next().unwrap_or_default();
            assert!(letters.contains('d') && letters.contains('A'), "{line}");
        }
        Err(error) => eprintln!("skipped: xfs_io: {error}"),
    }
    // Root without CAP_LINUX_IMMUTABLE is not enough.
    let without = ["--bounding-set=-linux_immutable", "--inh-caps=-linux_immutable", "chattr"];
    let output = Command::new("setpriv").args(without).arg("+i").arg(&own).output();
    assert!(!output.expect("setpriv runs").status.success());
    // Other flags of ext4 are refused, and nothing is changed.
    let output = Command::new("chattr").arg("+c").arg(&own).output().expect("chattr runs");
    assert!(!output.status.success());
    // New files inherit "no dump" and "no atime".
    let dir = mount.dir.join("dir");
    fs::create_dir(&dir).expect("a directory");
    chattr("+dAa", &dir);
    fs::write(dir.join("new"), b"").expect("writing");
    assert_eq!(lsattr(&dir.join("new")), "dA");
    chattr("-a", &dir);
    mount.unmount();
    volume.check();
}

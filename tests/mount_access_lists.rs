//! Access control lists: set by `setfacl`, inherited, kept in step with the mode, and enforced for other users.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{CACHES, TestVolume, can_mount, sfs_mount, stderr, transport};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxFlags, XattrFlags, lgetxattr, linkat, lsetxattr, openat, statx,
};
use sfs_core::format::Superblock;

/// Owner of the files, in a group of his own, and two other users.
const OWNER: u32 = 1001;
const FRIEND: u32 = 1002;
const STRANGER: u32 = 1003;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Returns whether the test can run; prints the reason if not.
fn can_set_lists() -> bool {
    if !can_mount() {
        return false;
    }
    if transport() == "fuser" {
        eprintln!("skipped: fuser does not decode the long SETXATTR, which access lists need");
        return false;
    }
    let is_there = Command::new("setfacl").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: setfacl is not installed (Debian: acl)");
    }
    is_there
}

fn run(program: &str, arguments: &[&str], dir: &Path, user: u32) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).uid(user).gid(user);
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn setfacl(arguments: &[&str], path: &Path) {
    let output = Command::new("setfacl").args(arguments).arg(path).output().expect("setfacl runs");
    assert!(output.status.success(), "setfacl {arguments:?}: {}", stderr(&output));
}

/// Returns whether `user` may read, write and execute (for directories: search) `path`.
fn may(user: u32, path: &Path) -> [bool; 3] {
    ["-r", "-w", "-x"].map(|test| {
        let path = path.to_str().expect("UTF-8");
        run("test", &[test, path], Path::new("/"), user).status.success()
    })
}

/// Changes lists and modes in every way, and shows both. Users are numbers, so that no database matters.
const RULES: &str = r#"
    exec 2>&1
    umask 022
    as() { user=$1; shift; setpriv --reuid $user --regid $user --clear-groups "$@"; }
    show() { echo "-- $step"; for f; do stat -c '%n %A' "$f"; getfacl -n "$f"; done; }
    step=set; mkdir d; touch d/f; chmod 640 d/f; setfacl -m u:1001:rw,g:1002:r d/f; show d/f
    step=chmod; chmod 606 d/f; show d/f
    step=chmod-mask; chmod g+rwx d/f; show d/f
    step=less; setfacl -x u:1001 d/f; show d/f
    step=mask; setfacl -m m::r d/f; show d/f
    step=removed; setfacl -b d/f; show d/f
    step=mode-only; setfacl -m u::rwx,g::rx,o::- d/f; show d/f; setfattr -x system.posix_acl_access d/f
    step=attribute-removed; setfacl -m u:1001:rw d/f; setfattr -x system.posix_acl_access d/f; show d/f
    step=mask-alone; setfacl -n -m m::rwx d/f; show d/f; chmod 604 d/f; show d/f; setfacl -b d/f
    step=default; setfacl -d -m u:1001:rwx,g:1002:rx,o::- d; show d
    step=inherited; umask 077
    touch d/new; mkdir d/sub; mkfifo d/pipe; mknod d/null c 1 3; ln -s new d/link
    show d/new d/sub d/pipe d/null; stat -c '%n %A' d/link
    step=inherited-narrow; (umask 0; touch d/open; mkdir -m 710 d/narrow); show d/open d/narrow
    step=inherited-twice; mkdir d/sub/sub; touch d/sub/sub/f; show d/sub/sub d/sub/sub/f
    step=default-removed; setfacl -k d; touch d/masked; mkdir d/masked-sub; show d d/masked d/masked-sub
    step=default-of-mode; mkdir m; setfacl -d -m u::rwx,g::rwx,o::rx m; touch m/f; mkdir m/d; show m m/f m/d
    step=sgid-inherited; mkdir s; chmod 2775 s; setfacl -d -m u:1001:rwx s; mkdir s/d; touch s/f; show s s/d s/f
    step=sgid; touch own other; chown 1001:1001 own; chown 1001:1002 other; chmod 2755 own other
    as 1001 setfacl -m u:1003:r own other; show own other
    chmod 2755 other; setfacl -m u:1004:r other; show other
    step=sgid-default; mkdir g; chown 1001:1002 g; chmod 2755 g; as 1001 setfacl -d -m u:1003:r g; show g
    step=chown; chown 1003:1003 own; show own
    step=not-the-owner; as 1002 setfacl -m u:1002:rw own; show own
    step=default-of-a-file; setfacl -d -m u:1001:r own
    step=copied; cp -a d copy; show copy copy/f copy/new copy/sub
    step=restored; getfacl -n -R d s > lists; setfacl -R -b d s; setfacl --restore=lists; show d/new d/sub s
    step=many; for i in $(seq 2000 2400); do echo "u:$i:r"; done > users; setfacl -M users d/f; getfacl -n d/f | md5sum
    step=renamed; mv d/new m/new; ln m/new m/hard; chmod 640 m/hard; show m/new
    step=truncated; setfacl -m u:1002:rw own; as 1002 sh -c 'echo more > own'; show own
"#;

/// The expectation is another filesystem of the kernel.
#[test]
fn mounted_access_lists_follow_the_rules_of_other_filesystems() {
    if !can_set_lists() {
        return;
    }
    let volume = TestVolume::new("64M");
    let model = volume.scratch.path().join("model");
    fs::create_dir(&model).expect("a directory");
    fs::set_permissions(&model, PermissionsExt::from_mode(0o777)).expect("we are root");
    if !run("setfacl", &["-m", "u:1001:rwx", "."], &model, 0).status.success() {
        return eprintln!("skipped: no other filesystem with access lists");
    }
    setfacl(&["-b"], &model);
    let outcome = |dir: &Path| {
        let output = run("sh", &["-c", RULES], dir, 0);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let expected = outcome(&model);
    assert!(expected.contains("default:user:1001:rwx"), "{expected}");
    for (options, again) in [(CACHES[0], CACHES[1]), (CACHES[1], CACHES[0])] {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        fs::set_permissions(&mount.dir, PermissionsExt::from_mode(0o777)).expect("we are root");
        let found = outcome(&mount.dir);
        let differs = found.lines().zip(expected.lines()).position(|(a, b)| a != b);
        let until = differs.map_or(0, |line| line + 3);
        let shown: Vec<&str> = found.lines().take(until).collect();
        assert!(
            differs.is_none(),
            "-o {options}: {}\nexpected {:?}",
            shown.join("\n"),
            expected.lines().nth(until - 3)
        );
        assert_eq!(found, expected);
        let lists = |dir: &Path| run("getfacl", &["-n", "-R", "."], dir, 0).stdout;
        let before = lists(&mount.dir);
        mount.unmount();
        volume.check();
        let mount = volume.mount(again);
        assert!(lists(&mount.dir) == before, "the lists are the same on the next mount");
        mount.unmount();
    }
}

/// The kernel decides by the list of now, whatever it cached before.
#[test]
fn mounted_access_lists_are_enforced_at_once() {
    if !can_set_lists() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let (dir, file) = (mount.dir.join("dir"), mount.dir.join("dir/file"));
        fs::create_dir(&dir).expect("a directory");
        fs::write(&file, b"content").expect("writing");
        for (path, mode) in [(&dir, 0o750), (&file, 0o640)] {
            chown(path, Some(OWNER), Some(OWNER)).expect("we are root");
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("we are root");
        }
        let (none, read) = ([false; 3], [true, false, false]);
        assert_eq!([FRIEND, STRANGER].map(|user| may(user, &file)), [none; 2]);
        setfacl(&["-m", "u:1002:rx"], &dir);
        assert_eq!(may(FRIEND, &file), none);
        setfacl(&["-m", "u:1002:rw"], &file);
        assert_eq!(may(FRIEND, &file), [true, true, false]);
        assert_eq!(may(STRANGER, &file), none);
        // The mask limits the friend, and chmod(2) changes the mask.
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("we are root");
        assert_eq!(may(FRIEND, &file), read);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).expect("we are root");
        assert_eq!(may(FRIEND, &file), [true, true, false]);
        // A user whom the list excludes has less than the others.
        fs::set_permissions(&file, PermissionsExt::from_mode(0o664)).expect("we are root");
        setfacl(&["-m", "u:1002:-"], &file);
        assert_eq!(may(FRIEND, &file), none);
        // The directory keeps strangers out until its list names them.
        assert_eq!(may(STRANGER, &file), none);
        setfacl(&["-m", "g:1003:x"], &dir);
        assert_eq!(may(STRANGER, &file), read);
        setfacl(&["-b"], &file);
        assert_eq!(may(FRIEND, &file), read);
        setfacl(&["-b"], &dir);
        assert_eq!([FRIEND, STRANGER].map(|user| may(user, &file)), [none; 2]);
        mount.unmount();
        volume.check();
    }
}

/// The kernel may be reading a reply with the mode of before a list was set, and must not keep that mode.
#[test]
fn mounted_modes_show_the_list_that_was_set_last() {
    if !can_set_lists() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let file = mount.dir.join("file");
    File::create(&file).expect("a file");
    let end = Instant::now() + Duration::from_millis(700);
    let (mut stale, mut rounds) = (0, 0);
    let (step, is_set, is_over) = (Barrier::new(3), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    while !is_set.load(Ordering::Relaxed) {
                        let flags = AtFlags::STATX_FORCE_SYNC;
                        statx(CWD, &file, flags, StatxFlags::BASIC_STATS).expect("it exists");
                    }
                    step.wait();
                    step.wait();
                }
            });
        }
        while !is_over.load(Ordering::Relaxed) {
            let mask = (rounds % 7) as u16 + 1;
            let list =
                list(&[entry(1, 6, !0), entry(4, 4, !0), entry(16, mask, !0), entry(32, 4, !0)]);
            lsetxattr(&file, ACCESS, &list, XattrFlags::empty()).expect("a list");
            is_set.store(true, Ordering::Relaxed);
            // The kernel has taken all replies now. Before, it may declare a mode valid that it has not stored yet.
            step.wait();
            let mode = fs::metadata(&file).expect("the entry exists").permissions().mode();
            stale += u32::from(mode >> 3 & 7 != u32::from(mask));
            rounds += 1;
            is_set.store(false, Ordering::Relaxed);
            is_over.store(Instant::now() >= end, Ordering::Relaxed);
            step.wait();
        }
    });
    assert_eq!(stale, 0, "old modes in {rounds} rounds");
    mount.unmount();
    volume.check();
}

fn entry(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
    let halves = [tag.to_le_bytes(), permissions.to_le_bytes()].concat();
    [&halves[..], &id.to_le_bytes()].concat()
}

fn list(entries: &[Vec<u8>]) -> Vec<u8> {
    [&[2, 0, 0, 0][..], &entries.concat()].concat()
}

/// Files that other requests than CREATE make, and lists that no program should write.
#[test]
fn mounted_access_lists_by_system_calls() {
    if !can_set_lists() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let dir = mount.dir.join("dir");
    fs::create_dir(&dir).expect("a directory");
    setfacl(&["-d", "-m", "u:1002:rw,g::r"], &dir);
    let unnamed = openat(CWD, &dir, OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o666));
    let unnamed = unnamed.expect("an unnamed file");
    let path = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
    linkat(CWD, path, CWD, dir.join("named"), AtFlags::SYMLINK_FOLLOW).expect("a name");
    drop(unnamed);
    File::create(dir.join("made")).expect("a file");
    let value = |path: &Path, name: &str| {
        let mut value = vec![0; 4096];
        lgetxattr(path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    let made = value(&dir.join("made"), ACCESS).expect("a list");
    assert_eq!(value(&dir.join("named"), ACCESS).expect("a list"), made);
    assert_eq!(made.len(), 4 + 5 * 8);
    let absent = value(&dir.join("made"), DEFAULT).expect_err("a file has no default list");
    assert_eq!(absent.raw_os_error(), libc::ENODATA);

    let set = |name: &str, value: &[u8]| {
        let set = lsetxattr(dir.join("made"), name, value, XattrFlags::empty());
        set.err().map(|error| error.raw_os_error())
    };
    let (owner, group) = (entry(1, 6, !0), entry(4, 4, !0));
    let (mask, other) = (entry(16, 7, !0), entry(32, 4, !0));
    let friend = entry(2, 6, FRIEND);
    let around = |named: &[Vec<u8>]| {
        let ends = [group.clone(), mask.clone(), other.clone()];
        list(&[&[owner.clone()][..], named, &ends].concat())
    };
    let twice = around(&[friend.clone(), entry(2, 0, STRANGER), friend.clone()]);
    assert_eq!(set(ACCESS, &twice), Some(libc::EINVAL), "a user twice");
    let unordered =
        list(&[owner.clone(), group.clone(), friend.clone(), mask.clone(), other.clone()]);
    assert_eq!(set(ACCESS, &unordered), Some(libc::EINVAL));
    assert_eq!(set(ACCESS, &around(&[])[..11]), Some(libc::EINVAL));
    assert_eq!(set(DEFAULT, &around(&[])), Some(libc::EACCES));
    assert_eq!(value(&dir.join("made"), ACCESS), Ok(made), "nothing has changed");
    // Users have any order, as in the kernel.
    assert_eq!(set(ACCESS, &around(&[entry(2, 6, 9), entry(2, 4, 5)])), None);
    let users: Vec<_> = (0..507).map(|no| entry(2, 6, 3000 + no)).collect();
    assert_eq!(set(ACCESS, &around(&users)), None, "as many as the kernel asks for");
    assert_eq!(may(3506, &dir.join("made")), [true, true, false]);
    let users: Vec<_> = (0..508).map(|no| entry(2, 6, 3000 + no)).collect();
    assert_eq!(set(ACCESS, &around(&users)), Some(libc::E2BIG));
    mount.unmount();
    volume.check();
}

/// Without the option, or where the transport has no lists, files have only their mode, which stays in step.
#[test]
fn mounted_volumes_without_access_lists_use_the_mode_alone() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let features = || {
        let mut block = [0; 4096];
        let mut image = File::open(&volume.device).expect("the image");
        image.seek(SeekFrom::Start(sfs_core::format::SUPERBLOCK_ADDRESS * 4096)).expect("a seek");
        image.read_exact(&mut block).expect("a block");
        let superblock = Superblock::decode(&block, sfs_core::format::SUPERBLOCK_ADDRESS);
        superblock.expect("a superblock").features.read_only_compatible
    };
    let refused = |path: &Path| {
        let error = lgetxattr(path, ACCESS, &mut [0; 64][..]).expect_err("lists are off");
        assert_eq!(error.raw_os_error(), libc::EOPNOTSUPP);
    };
    let mount = volume.mount("noacl");
    fs::write(mount.dir.join("plain"), b"").expect("writing");
    refused(&mount.dir.join("plain"));
    mount.unmount();
    assert_eq!(features(), 0, "an older program can write to a volume without lists");
    if transport() == "fuser" {
        let output = sfs_mount(&volume.device, &volume.dir, "acl");
        assert_eq!(output.status.code(), Some(1));
        let line = "sfs-mount: mount option 'acl': the transport fuser has no access lists; \
                    leave out the option, or '--transport fuser'\n";
        assert_eq!(stderr(&output), line);
        let mount = volume.mount("");
        refused(&mount.dir.join("plain"));
        return mount.unmount();
    }
    if !can_set_lists() {
        return;
    }
    let mount = volume.mount("acl");
    let file = mount.dir.join("dir/file");
    fs::create_dir(mount.dir.join("dir")).expect("a directory");
    setfacl(&["-d", "-m", "u:1002:rwx"], &mount.dir.join("dir"));
    File::create(&file).expect("a file");
    mount.unmount();
    assert_eq!(features(), 1, "an older program only reads a volume with lists");

    let mount = volume.mount("noacl");
    refused(&file);
    let names = Command::new("getfattr").args(["-m", "-", "--"]).arg(&file).output();
    assert!(names.is_ok_and(|names| names.stdout.is_empty()), "a name without a value is listed");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("we are root");
    let mut umasked = Command::new("sh");
    umasked.args(["-c", "umask 027; : > dir/umasked"]).current_dir(&mount.dir);
    assert!(umasked.status().expect("sh runs").success());
    let mode = fs::metadata(mount.dir.join("dir/umasked")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "nothing is inherited");
    mount.unmount();
    volume.check();

    let mount = volume.mount("");
    assert_eq!(may(FRIEND, &file), [false; 3], "the mask has followed the mode");
    assert_eq!(features(), 1);
    let output = sfs_mount(&volume.device, &volume.dir, "remount,noacl");
    assert!(stderr(&output).contains("'noacl' cannot be changed while mounted"), "{output:?}");
    mount.unmount();
    volume.check();
}

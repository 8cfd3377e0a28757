//! Volumes that are mounted a second time with an ID mapping.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use harness::{TestVolume, can_mount, transport, unmount_unused};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use sfs_testkit::wait_until;

/// Owner on the volume, and owner in the mapped mount.
const KEPT: u32 = 1000;
const SEEN: u32 = 2000;

/// A user namespace that maps [`KEPT`] to [`SEEN`], and root to root.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let child = Command::new("unshare").args(["--user", "sleep", "600"]).spawn();
        let namespace = Self(child.expect("unshare runs"));
        let own = fs::read_link("/proc/self/ns/user").expect("a user namespace");
        let path = namespace.path("ns/user");
        wait_until("the namespace is there", || fs::read_link(&path).is_ok_and(|ns| ns != own));
        for map in ["uid_map", "gid_map"] {
            let lines = format!("0 0 1\n{KEPT} {SEEN} 1\n");
            fs::write(namespace.path(map), lines).expect("we are root");
        }
        namespace
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0.id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls mount_setattr(2): maps the owners of a detached mount by `namespace`.
fn map_owners(tree: &OwnedFd, namespace: &File) -> io::Result<()> {
    // MOUNT_ATTR_IDMAP is set, no attribute is cleared, and the propagation stays.
    let attributes = [0x10_0000u64, 0, 0, namespace.as_raw_fd() as u64];
    // SAFETY: both descriptors are open, and the structure has the size that is passed.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn owners(path: &Path) -> (u32, u32) {
    let metadata = fs::metadata(path).expect("the entry exists");
    (metadata.uid(), metadata.gid())
}

/// Runs `program` in `dir` as a user; returns whether it succeeded.
fn run_as(id: u32, program: &str, dir: &Path, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(dir.join(argument)).uid(id).gid(id);
    command.output().expect("the program runs").status.success()
}

/// The kernel maps the users in an access list, and decides whether the list clears sgid.
fn lists_are_mapped(seen: &Path, kept: &Path) {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return eprintln!("skipped: setfacl is not installed (Debian: acl)");
    }
    let shown = |path: &Path| {
        let output = Command::new("getfacl").args(["-n", "-c"]).arg(path).output();
        String::from_utf8(output.expect("getfacl runs").stdout).expect("UTF-8")
    };
    let set = |group: u32, permissions: &str| {
        chown(kept, Some(KEPT), Some(group)).expect("we are root");
        fs::set_permissions(kept, PermissionsExt::from_mode(0o2755)).expect("we are root");
        let mut command = Command::new("setfacl");
        command.args(["-m", &format!("u:{SEEN}:{permissions}")]).arg(seen).uid(SEEN).gid(SEEN);
        assert!(command.output().expect("setfacl runs").status.success());
        fs::metadata(kept).expect("the entry exists").mode() & 0o7777
    };
    assert_eq!(set(KEPT, "r"), 0o2755);
    assert!(shown(seen).contains(&format!("user:{SEEN}:r--")), "{}", shown(seen));
    assert!(shown(kept).contains(&format!("user:{KEPT}:r--")), "{}", shown(kept));
    assert_eq!(set(0, "x"), 0o755, "the caller is not in the group");
}

#[test]
fn mounted_volumes_map_owners() {
    if !can_mount() {
        return;
    }
    if transport() == "fuser" {
        return eprintln!("skipped: fuser cannot agree on ALLOW_IDMAP");
    }
    for volume in TestVolume::in_image_and_on_loop("64M") {
        let mount = volume.mount("");
        let kept = mount.dir.join("dir");
        fs::create_dir(&kept).expect("a directory");
        fs::write(kept.join("file"), b"content").expect("writing");
        for path in [&kept, &kept.join("file")] {
            chown(path, Some(KEPT), Some(KEPT)).expect("we are root");
        }

        let namespace = Namespace::new();
        let of = File::open(namespace.path("ns/user")).expect("the entry exists");
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, &mount.dir, flags).expect("a mount");
        if let Err(error) = map_owners(&tree, &of) {
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
            mount.unmount();
            eprintln!("skipped: the kernel maps no owners of FUSE filesystems");
            continue;
        }
        let second = volume.scratch.path().join("second");
        fs::create_dir(&second).expect("a directory");
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, "", CWD, &second, whole).expect("the tree is attached");

        let seen = second.join("dir");
        assert_eq!(owners(&seen.join("file")), (SEEN, SEEN));
        for program in ["touch", "mkdir"] {
            assert!(run_as(SEEN, program, &seen, program));
            assert_eq!(owners(&seen.join(program)), (SEEN, SEEN));
            assert_eq!(owners(&kept.join(program)), (KEPT, KEPT));
            // The owner on the volume has no rights in the mapped mount.
            assert!(!run_as(KEPT, program, &seen, "refused"));
        }
        assert!(run_as(SEEN, "rm", &seen, "touch"));
        fs::write(seen.join("of-root"), b"content").expect("root stays root");
        chown(seen.join("of-root"), Some(SEEN), None).expect("we are root");
        assert_eq!(owners(&kept.join("of-root")), (KEPT, 0));
        let unmapped = chown(seen.join("of-root"), Some(3000), None)
            .expect_err("an unmapped owner is refused");
        assert_eq!(unmapped.raw_os_error(), Some(libc::EOVERFLOW));

        lists_are_mapped(&seen.join("file"), &kept.join("file"));

        drop(tree);
        unmount_unused(&second);
        mount.unmount();
        volume.check();
    }
}

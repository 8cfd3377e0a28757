//! The program as a boot runs it: by systemd-fsck, which runs fsck(8), for a device that udev may just look at.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sfs_testkit::LoopDevice;
use tempfile::TempDir;

use super::fixture::populated;
use super::program::image;

const SYSTEMD_FSCK: &str = "/usr/lib/systemd/systemd-fsck";

/// Arguments of systemd-fsck for fsck(8).
const ARGUMENTS: [&str; 4] = ["-a", "-T", "-l", "-M"];

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

/// A system with the program installed as the package does, where udev says of every device what a test wants.
struct System {
    scratch: TempDir,
    image: PathBuf,
}

impl System {
    /// `None` without fsck(8).
    fn new(udev_says: &str) -> Option<Self> {
        if !Path::new("/sbin/fsck").exists() {
            eprintln!("skipped: fsck(8) is not installed");
            return None;
        }
        let scratch = tempfile::tempdir().expect("a directory");
        let image = image(&scratch, &populated().build());
        let programs = scratch.path().join("bin");
        fs::create_dir(&programs).expect("a directory");
        symlink(env!("CARGO_BIN_EXE_sfs-fsck"), programs.join("fsck.sfs")).expect("a link");
        symlink(packaged("systemd/fsck"), scratch.path().join("script")).expect("a link");
        let udevadm = format!(
            "#!/bin/sh\n[ \"$1 $2\" = 'info --query=property' ] && printf 'DEVNAME=%s\\n{udev_says}' \"$3\"\n"
        );
        write_program(&programs.join("udevadm"), &udevadm);
        Some(Self { scratch, image })
    }

    fn run(&self, program: &str, arguments: &[&str], device: &Path) -> Output {
        let path = env::var("PATH").expect("a path");
        let path = format!("{}/bin:{path}:/usr/sbin:/sbin", self.scratch.path().display());
        let mut command = Command::new(program);
        command.args(arguments).arg(device).env("PATH", path).env("LC_ALL", "C");
        command.output().expect("the program runs")
    }

    fn by_script(&self) -> Output {
        let script = self.scratch.path().join("script");
        let script = script.to_str().expect("UTF-8");
        self.run("sh", &[&[script], &ARGUMENTS[..]].concat(), &self.image)
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("an executable program");
}

fn expect_clean(output: &Output, device: &Path) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.starts_with(&format!("{}: clean", device.display())), "{said}");
}

/// fsck(8) knows the type of a device from fstab or from libblkid, which does not know SFS, and takes anything else for ext2.
#[test]
fn fsck_of_the_package_finds_the_program_by_the_type_that_udev_knows() {
    let Some(system) = System::new("ID_FS_TYPE=sfs\\n") else { return };
    let plain = system.run("/sbin/fsck", &ARGUMENTS, &system.image);
    assert!(!plain.status.success(), "fsck(8) itself has found SFS: {plain:?}");
    expect_clean(&system.by_script(), &system.image);
}

#[test]
fn fsck_of_the_package_changes_nothing_for_other_types() {
    for udev_says in ["", "ID_FS_TYPE=ext4\\n", "ID_FS_TYPE=sfs2\\nID_FS_LABEL=sfs\\n"] {
        let Some(system) = System::new(udev_says) else { return };
        let plain = system.run("/sbin/fsck", &ARGUMENTS, &system.image);
        let by_script = system.by_script();
        assert_eq!(plain, by_script, "{udev_says}");
    }
}

/// The real systemd-fsck, with its search path as the package sets it.
#[test]
fn systemd_runs_the_program_at_boot() {
    let Some(system) = System::new("ID_FS_TYPE=sfs\\n") else { return };
    if !Path::new(SYSTEMD_FSCK).exists() {
        return eprintln!("skipped: systemd is not installed");
    }
    let Some(device) = LoopDevice::attach(&system.image) else { return };
    let fsck = fs::read_to_string(packaged("systemd/fsck")).expect("the script");
    write_program(&system.scratch.path().join("bin/fsck"), &fsck);
    expect_clean(&system.run(SYSTEMD_FSCK, &[], &device.path), &device.path);
}

#[test]
fn the_package_has_the_directory_that_systemd_searches_first() {
    let unit = "systemd/systemd-fsck@.service.d/sfs.conf";
    let unit = fs::read_to_string(packaged(unit)).expect("the part of a unit");
    let path = unit.lines().find_map(|line| line.strip_prefix("Environment=PATH="));
    let (first, _) = path.and_then(|path| path.split_once(':')).expect("a path");
    let contents = fs::read_to_string(packaged("debian/contents.txt")).expect("the list");
    let expected = format!("755 /packaging/systemd/fsck {}/fsck", first.trim_start_matches('/'));
    assert!(contents.lines().any(|line| line == expected), "{expected}");
}

/// A check that cannot begin is no check: systemd mounts the volume all the same.
#[test]
fn a_check_waits_for_a_program_that_inspects_the_device() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(&directory, &populated().build());
    let Some(device) = LoopDevice::attach(&image) else { return };
    let inspecting = File::open(&device.path).expect("the device");
    inspecting.lock_shared().expect("the lock of an inspection");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-fsck"));
    command.arg("-a").arg(&device.path).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut checking = command.spawn().expect("sfs-fsck runs");
    let mut line = String::new();
    let said = checking.stderr.take().expect("piped");
    BufReader::new(said).read_line(&mut line).expect("a line");
    assert!(line.starts_with("sfs-fsck: waiting for another program, such as udev"), "{line}");
    inspecting.unlock().expect("unlocking");
    expect_clean(&checking.wait_with_output().expect("sfs-fsck ends"), &device.path);
}

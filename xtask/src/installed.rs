//! `cargo xtask test-installed`: the Debian package in a fresh Debian system, beside ext4.
//!
//! A guest has nothing but Debian's required packages, a kernel, and the package, installed by apt from a file. `packaging/guest/installed.sh`
//! runs in it at every boot and prints the result of each check. The host cuts the power when the guest asks for it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail, ensure};

use crate::{
    dist,
    guest::{self, DebianTree, Disk, Guest, Suite},
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::Workspace,
};

/// Packages of the guest besides those of every guest, as apt has no network there: fuse3 is recommended by the package, and
/// libpam-systemd gives a user a systemd of its own, and needs dbus in a way that debootstrap does not follow.
const PACKAGES: [&str; 4] = ["fuse3", "attr", "dbus", "libpam-systemd"];

const ROOT_LEN: u64 = 2 << 30;
const VOLUME_LEN: u64 = 256 << 20;

/// Longest time between two results of the guest: on a busy host an emulated processor boots for several minutes.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Number of restarts that the script asks for.
const RESTARTS_MAX: u32 = 1;

/// Runs the checks as one step.
pub(crate) fn run(workspace: &Workspace, suite: Suite, tally: &mut Tally) {
    let name = format!("the package in a fresh Debian {}", suite.name());
    match guest::need() {
        Err(missing) => tally.skip(&name, &missing),
        Ok(()) => tally.step(&name, || check(workspace, suite)),
    }
}

/// Returns the Debian system of the guest.
pub(crate) fn tree(workspace: &Workspace, suite: Suite) -> Result<DebianTree> {
    DebianTree::get(workspace, "installed", suite, &PACKAGES)
}

fn check(workspace: &Workspace, suite: Suite) -> Result<StepOutcome> {
    let package = dist::quick_package(workspace)?;
    let tree = tree(workspace, suite)?;
    let (kernel, initrd) = tree.kernel()?;
    let scratch = Scratch::new()?;
    let disk = |name: &'static str| Disk { name, image: scratch.dir.join(format!("{name}.img")) };
    let disks = ["root", "payload", "one", "two", "old"].map(disk);
    tree.write_disk(&disks[0].image, ROOT_LEN)?;
    write_payload(workspace, &package, &scratch.dir, &disks[1].image)?;
    for volume in &disks[2..] {
        File::create(&volume.image)?.set_len(VOLUME_LEN)?;
    }
    let guest = Guest {
        kernel,
        initrd,
        kernel_arguments: "root=/dev/disk/by-id/virtio-root rw".into(),
        memory_mib: 1024,
        disks: disks.into(),
    };
    watch(&guest)
}

/// Writes the package and the scripts of the guest as a tar archive to the image of the payload.
fn write_payload(workspace: &Workspace, package: &Path, dir: &Path, image: &Path) -> Result<()> {
    let tree = dir.join("payload");
    let guest: PathBuf = tree.join("guest");
    fs::create_dir_all(&guest)?;
    fs::copy(package, guest.join("sfs-tools.deb"))?;
    guest::put_scripts(workspace, "installed.sh", &guest)?;
    Cmd::new("tar").arg("-C").arg(&tree).arg("-cf").arg(image).arg("guest").read()?;
    Ok(())
}

/// Starts the guest, starts it again after a restart or a power cut, and counts its checks.
fn watch(guest: &Guest) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    let mut running = guest.start()?;
    let mut restarts = 0;
    loop {
        let line = running.wait_for(TIMEOUT, said)?;
        let Some(line) = line else {
            restarts += 1;
            ensure!(restarts <= RESTARTS_MAX, "the guest restarts again and again");
            running = guest.start()?;
            continue;
        };
        if count(&line, &mut outcome) {
            continue;
        }
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("cut", _) => {
                running.cut()?;
                running = guest.start()?;
            }
            ("end", _) => break,
            _ => bail!("the guest said '{line}'"),
        }
    }
    running.wait_for_end(TIMEOUT)?;
    if outcome.passed == 0 {
        bail!("the guest checked nothing");
    }
    Ok(outcome)
}

/// Returns what a line of the guest says to the host.
pub(crate) fn said(line: &str) -> Option<String> {
    line.split_once("guest: ").map(|(_, said)| said.to_owned())
}

/// Counts the result of a check, and returns whether the guest said one.
pub(crate) fn count(said: &str, outcome: &mut StepOutcome) -> bool {
    match said.split_once(' ') {
        Some(("ok", _)) => outcome.passed += 1,
        Some(("failed", name)) => {
            outcome.failed += 1;
            outcome.notes.push(format!("failed: {name}"));
        }
        _ => return false,
    }
    true
}

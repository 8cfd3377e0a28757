//! `cargo xtask test-root`: a Debian system in QEMU whose root filesystem and `/home` are SFS.
//!
//! The host fills both volumes with `sfs-mkfs --from`, and the initramfs is made by Debian's tools with the hook of the package.
//! `packaging/guest/root.sh` runs in the guest at every boot, while something is written: a restart, a power cut, and an orderly
//! end. After each orderly end the host looks at both volumes: they are unmounted, and a full check finds nothing.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use anyhow::{Result, ensure};

use crate::{
    dist,
    guest::{self, DebianTree, Disk, Guest, Suite},
    installed::{self, count, said},
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::{Programs, Workspace},
};

const UUID: &str = "5f5e1000-aaaa-bbbb-cccc-444455556666";

const ROOT_LEN: &str = "2G";
const HOME_LEN: &str = "256M";

/// Longest time between two lines of the guest, which reads all its files in one of its checks.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Number of times that the guest switches itself off or restarts.
const ENDS: u32 = 2;

/// Runs the checks as one step.
pub(crate) fn run(workspace: &Workspace, suite: Suite, tally: &mut Tally) {
    let name = format!("SFS as root filesystem and /home of Debian {}", suite.name());
    match guest::need() {
        Err(missing) => tally.skip(&name, &missing),
        Ok(()) => tally.step(&name, || check(workspace, suite)),
    }
}

fn check(workspace: &Workspace, suite: Suite) -> Result<StepOutcome> {
    let package = dist::quick_package(workspace)?;
    let programs = dist::quick_programs(workspace)?;
    let scratch = Scratch::new()?;
    let tree = scratch.dir.join("tree");
    Cmd::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(installed::tree(workspace, suite)?.dir)
        .arg(&tree)
        .read()?;
    let tree = DebianTree { dir: tree };
    install(workspace, &package, &tree.dir)?;
    let (kernel, initrd) = tree.kernel()?;
    let disk = |name: &'static str| Disk { name, image: scratch.dir.join(format!("{name}.img")) };
    let disks = ["root", "home"].map(disk);
    let mkfs = || programs.cmd("sfs-mkfs").args(["--quiet", "--segment-size", "1M"]);
    let root = mkfs().args(["--uuid", UUID, "--size", ROOT_LEN, "--from"]).arg(&tree.dir);
    root.arg(&disks[0].image).read()?;
    mkfs().args(["--label", "home", "--size", HOME_LEN]).arg(&disks[1].image).read()?;
    let guest = Guest {
        kernel,
        initrd,
        kernel_arguments: format!("root=UUID={UUID} ro"),
        memory_mib: 1024,
        disks: disks.into(),
    };
    watch(&guest, &programs)
}

/// Installs the package in `tree`, whose root filesystem is SFS by then: the package makes the initramfs anew.
fn install(workspace: &Workspace, package: &Path, tree: &Path) -> Result<()> {
    // On a busy host an emulated machine takes longer than systemd waits.
    let home = "LABEL=home /home sfs defaults,x-systemd.device-timeout=600 0 2";
    let fstab = format!("UUID={UUID} / sfs defaults 0 1\n{home}\n");
    fs::write(tree.join("etc/fstab"), fstab)?;
    fs::copy(package, tree.join("guest/sfs-tools.deb"))?;
    guest::put_scripts(workspace, "root.sh", &tree.join("guest"))?;
    File::create(tree.join("guest/unpacked"))?;
    let inside =
        |program: &str| Cmd::new("chroot").env("PATH", "/usr/sbin:/usr/bin").arg(tree).arg(program);
    inside("dpkg").args(["-i", "/guest/sfs-tools.deb"]).read()?;
    // Else systemd makes its catalogue and caches anew at the first boot, which an emulated processor may not do in the time that
    // the units have.
    for stamp in ["etc/.updated", "var/.updated"] {
        File::create(tree.join(stamp))?;
    }
    Ok(())
}

/// Starts the guest until it has ended, and counts its checks and those of the host.
fn watch(guest: &Guest, programs: &Programs) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    let mut ends = 0;
    while ends < ENDS {
        let mut running = guest.start()?;
        let mut is_cut = false;
        while let Some(line) = running.wait_for(TIMEOUT, said)? {
            if !count(&line, &mut outcome) && line == "cut" {
                is_cut = true;
                break;
            }
        }
        if is_cut {
            running.cut()?;
            continue;
        }
        ends += 1;
        for Disk { name, image } in &guest.disks {
            look(name, image, programs, &mut outcome)?;
        }
    }
    ensure!(outcome.passed > 0, "the guest checked nothing");
    Ok(outcome)
}

/// Checks a volume after an orderly end.
fn look(name: &str, image: &Path, programs: &Programs, outcome: &mut StepOutcome) -> Result<()> {
    let fsck = |arguments: &[&str]| programs.cmd("sfs-fsck").args(arguments).arg(image).output();
    let quick = fsck(&["-p", "--json"])?;
    let text = String::from_utf8_lossy(&quick.stdout).replace(' ', "");
    let full = fsck(&["-n", "-f"])?;
    let checks = [
        (quick.status.success() && text.contains("\"unmounted\":true"), "was unmounted"),
        (full.status.success(), "is sound"),
    ];
    for (passed, what) in checks {
        println!("  host: {name} {what}: {passed}");
        if passed {
            outcome.passed += 1;
        } else {
            outcome.failed += 1;
            outcome.notes.push(format!("failed: {name} {what}"));
            print!("{text}{}", String::from_utf8_lossy(&full.stdout));
        }
    }
    Ok(())
}

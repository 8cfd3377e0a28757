//! `cargo xtask test-kernels`: an older kernel, in a guest: Debian 12 with its Linux 6.1.
//!
//! The guest gets the programs and some test programs of this build, at the paths that they have here, as the tests name them.
//! `packaging/guest/kernels.sh` uses a volume by hand first, then runs the tests.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    cargo::cargo,
    guest::{self, Disk, Guest, Suite},
    installed::{self, count, said},
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::Workspace,
};

/// Test programs that run in the guest, which has the names without the hash of the build.
const TESTS: [&str; 3] = ["kernel_facts", "pausing", "mount_survive"];

/// Tests of the packages whose programs those tests start: cargo builds the programs of a package with its tests.
const TESTS_OF_PROGRAMS: [&str; 2] = ["command", "interrupt"];

/// Programs of SFS that the script and the tests start.
const PROGRAMS: [&str; 5] = ["sfs-mkfs", "sfs-mount", "sfs-umount", "sfs-ctl", "sfs-fsck"];

const ROOT_LEN: u64 = 4 << 30;
const VOLUME_LEN: u64 = 256 << 20;

/// Longest time between two lines of the guest, which runs tests on an emulated processor.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Runs the checks as one step.
pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) {
    let name = "Debian 12 with Linux 6.1";
    match guest::need().and_then(|()| crate::machine::need("strip", "binutils")) {
        Err(missing) => tally.skip(name, &missing),
        Ok(()) => tally.step(name, || check(workspace)),
    }
}

fn check(workspace: &Workspace) -> Result<StepOutcome> {
    let tests = test_programs(workspace)?;
    // The same system as that of the package, which makes one less to build.
    let tree = installed::tree(workspace, Suite::Bookworm)?;
    let (kernel, initrd) = tree.kernel()?;
    let scratch = Scratch::new()?;
    let disk = |name: &'static str| Disk { name, image: scratch.dir.join(format!("{name}.img")) };
    let disks = ["root", "payload", "one"].map(disk);
    tree.write_disk(&disks[0].image, ROOT_LEN)?;
    write_payload(workspace, &tests, &scratch.dir, &disks[1].image)?;
    File::create(&disks[2].image)?.set_len(VOLUME_LEN)?;
    let guest = Guest {
        kernel,
        initrd,
        kernel_arguments: "root=/dev/disk/by-id/virtio-root rw".into(),
        memory_mib: 2048,
        disks: disks.into(),
    };
    watch(&guest)
}

/// Builds the programs and the test programs, and returns the paths of the latter.
fn test_programs(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    // With the whole workspace, so that nothing is built twice.
    let cmd = cargo(workspace).args(["test", "--quiet", "--workspace", "--no-run"]);
    let tests = TESTS.iter().chain(&TESTS_OF_PROGRAMS);
    let cmd = tests.fold(cmd, |cmd, test| cmd.args(["--test", test]));
    let messages = cmd.arg("--message-format=json").read()?;
    let programs = TESTS.map(|test| {
        let found = messages.lines().find_map(|line| executable(line, test));
        found.with_context(|| format!("cargo has built no test program {test}"))
    });
    programs.into_iter().collect()
}

/// Returns the path of the test program `name` if a message of cargo tells of it.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let target = message.get("target")?;
    let is_test = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
    (is_test && target.get("name")? == name).then_some(())?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

/// Writes the programs, the tests and the script as a tar archive to the image of the payload.
fn write_payload(workspace: &Workspace, tests: &[PathBuf], dir: &Path, image: &Path) -> Result<()> {
    let tree = dir.join("payload");
    let guest = tree.join("guest");
    fs::create_dir_all(guest.join("tests"))?;
    guest::put_scripts(workspace, "kernels.sh", &guest)?;
    for (name, program) in TESTS.iter().zip(tests) {
        strip(program, &guest.join("tests").join(name))?;
    }
    let programs = workspace.target.join("debug");
    let inside = tree.join(programs.strip_prefix("/").context("the target directory's path")?);
    fs::create_dir_all(&inside)?;
    for name in PROGRAMS {
        strip(&programs.join(name), &inside.join(name))?;
    }
    fs::write(guest.join("programs"), programs.display().to_string())?;
    let top = inside.strip_prefix(&tree)?.components().next().context("a path")?;
    let mut tar = Cmd::new("tar").arg("-C").arg(&tree).arg("-cf").arg(image).arg("guest");
    if top.as_os_str() != "guest" {
        tar = tar.arg(top);
    }
    tar.read()?;
    Ok(())
}

/// Copies a program without what only a debugger needs.
fn strip(from: &Path, to: &Path) -> Result<()> {
    Cmd::new("strip").args(["--strip-debug", "-o"]).arg(to).arg(from).read().map(drop)
}

/// Starts the guest, and counts its checks.
fn watch(guest: &Guest) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    let mut running = guest.start()?;
    loop {
        let line = running.wait_for(TIMEOUT, said)?.context("the guest has ended too early")?;
        if count(&line, &mut outcome) {
            continue;
        }
        match line.as_str() {
            "end" => break,
            other => bail!("the guest said '{other}'"),
        }
    }
    running.wait_for_end(TIMEOUT)?;
    ensure!(outcome.passed > 0, "the guest checked nothing");
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_cargo_names_the_program_of_a_test() {
        let message = |kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"name":"pausing"}},"executable":"/t/pausing-1"}}"#
            )
        };
        assert_eq!(executable(&message("test"), "pausing"), Some("/t/pausing-1".into()));
        assert_eq!(executable(&message("bin"), "pausing"), None);
        assert_eq!(executable(&message("test"), "mount_survive"), None);
        assert_eq!(executable("not a message", "pausing"), None);
    }
}

//! Upgrades of mounts that survive their daemon: it ends as planned, and another program is started.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::{SeededRng, number_from_env, wait_until};

use super::harness::{TestVolume, can_mount, daemon_of, stderr};
use super::load::Load;
use super::programs::{self, Program, script};
use super::upgrading::{self, print_pauses};
use super::{BETWEEN_MAX_MS, SurvivingMount, WAYS};

impl SurvivingMount<'_> {
    fn try_upgrade(&self, arguments: &[&str]) -> Output {
        upgrading::try_upgrade(&self.dir, arguments)
    }

    /// Upgrades, and returns the length of the pause.
    fn upgrade(&self) -> Duration {
        upgrading::upgrade(self.volume)
    }

    /// Asserts that an upgrade fails with these words, and that the mount is served afterwards.
    fn fails_to_upgrade(&self, arguments: &[&str], words: &str) {
        let output = self.try_upgrade(arguments);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(words), "{words}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let path = self.dir.join("served");
        fs::write(&path, words).expect("the mount is served");
        assert_eq!(fs::read_to_string(&path).expect("the file"), words);
    }
}

/// Mounts `volume` with a copy of the program, which a test replaces.
fn with_copy(volume: &TestVolume) -> Option<(Program, SurvivingMount<'_>)> {
    let program = Program::copy_to(volume.scratch.path());
    Some((SurvivingMount::by(&program.path, volume)?, program)).map(|(mount, of)| (of, mount))
}

/// No program sees an error, and no byte differs, also if the new daemon is killed at any moment.
#[test]
fn programs_see_a_pause_in_an_upgrade() {
    if !can_mount() {
        return;
    }
    let upgrades = number_from_env("SFS_UPGRADES", 5);
    let volume = TestVolume::new("512M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    let mut random = SeededRng::new(number_from_env("SFS_SEED", 1));
    let load = Load::new(&mount.dir);
    let pauses = load.run(|| {
        let mut pauses = Vec::new();
        for number in 0..upgrades {
            std::thread::sleep(Duration::from_millis(random.below(BETWEEN_MAX_MS)));
            pauses.push(mount.upgrade());
            if number % 3 == 1 {
                std::thread::sleep(Duration::from_millis(random.below(50)));
                mount.kill();
            }
        }
        pauses
    });
    print_pauses(pauses);
    load.verify();
    mount.unmount();
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    load.verify();
    mount.unmount();
}

#[test]
fn an_upgrade_that_fails_leaves_the_program_before_serving() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some((program, mount)) = with_copy(&volume) else { return };
    let path = mount.dir.join("deleted");
    fs::write(&path, "content").expect("room");
    let mut open = File::open(&path).expect("the file");
    fs::remove_file(&path).expect("the file");
    let before = mount.daemon();
    program.remove();
    mount.fails_to_upgrade(&[], "cannot start the installed sfs-mount: No such file");
    program.replace_by(b"no program");
    mount.fails_to_upgrade(&[], "cannot start the installed sfs-mount: Exec format error");
    program.replace_by(script("exit 1").as_bytes());
    mount.fails_to_upgrade(&[], "the new program has ended");
    program.replace_by(script(&programs::hello(0, "9.9.9")).as_bytes());
    mount.fails_to_upgrade(&[], "version 9.9.9 cannot take over");
    assert_eq!(mount.daemon(), before, "a program that fails at its start changes nothing");
    let hello = programs::hello(programs::PROTOCOL, "9.9.9");
    let (state, ready) = (programs::take_state(), programs::ready());
    let waits = format!("{hello}; exec sleep 1000");
    let ends_when_it_may_write = format!("{hello}; {state}; {ready}; head -c 12 <&0 >/dev/null");
    for (commands, arguments) in
        [(&hello, &[][..]), (&waits, &["--timeout", "1"]), (&ends_when_it_may_write, &[])]
    {
        let before = mount.daemon();
        program.replace_by(script(commands).as_bytes());
        mount.fails_to_upgrade(arguments, "serves on");
        assert_ne!(mount.daemon(), before, "{commands}");
    }
    let mut text = String::new();
    open.read_to_string(&mut text).expect("the file is open");
    assert_eq!(text, "content");
    // The program before is started again after a death, and the new one after an upgrade.
    mount.kill();
    program.restore();
    mount.upgrade();
    program.remove();
    mount.kill();
    fs::write(mount.dir.join("file"), "by the new program").expect("room");
    program.restore();
    mount.upgrade();
    drop(open);
    mount.unmount();
}

/// The daemon is killed at several moments of an upgrade: the mount is served, and the client gets an answer, or sees the end of its
/// connection.
#[test]
fn a_death_in_an_upgrade_is_survived() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    for delay in [0, 5, 10, 20, 40, 80] {
        let content = format!("before {delay} ms");
        fs::write(mount.dir.join("file"), &content).expect("room");
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| mount.try_upgrade(&[]));
            std::thread::sleep(Duration::from_millis(delay));
            daemon_of(&volume.device).map(|daemon| kill_process(daemon, Signal::KILL));
            upgrade.join().expect("no panic");
        });
        assert_eq!(fs::read_to_string(mount.dir.join("file")).expect("the file"), content);
    }
    wait_until("a daemon runs", || daemon_of(&volume.device).is_some());
    mount.upgrade();
    assert!(Path::new(&mount.dir).join("file").exists());
    mount.unmount();
}

/// Calls under way would get an error.
#[test]
fn no_upgrade_where_requests_are_not_sent_again() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = SurvivingMount::with(&volume, WAYS[1]);
    let before = mount.daemon();
    mount.fails_to_upgrade(&[], "this kernel does not send requests again");
    assert_eq!(mount.daemon(), before);
    mount.unmount();
}

/// Regression: the daemon ended although its records were of no use, and the monitor took the mount away.
#[test]
fn no_upgrade_without_records() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    let before = mount.daemon();
    // As the daemon does when it gives them up.
    let records = descriptor(before, "sfs-records");
    let records = File::options().write(true).open(records).expect("root may");
    records.write_all_at(&[0; 8], 0).expect("memory");
    mount.fails_to_upgrade(&[], "the records of the daemon are not complete");
    assert_eq!(mount.daemon(), before);
    mount.unmount();
}

/// Returns the path of an open file of process `pid` with `name` in its own.
fn descriptor(pid: Pid, name: &str) -> PathBuf {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let mut paths = all.map(|entry| entry.expect("an entry").path());
    let is_it = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains(name))
    };
    paths.find(is_it).expect("the file is open")
}

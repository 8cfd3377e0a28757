//! Two machines that want one volume.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::mount_table::is_mounted;
use sfs_testkit::wait_until;

use super::harness::{can_mount, stderr};
use super::machine::{Machine, Store};
use super::readers;
use super::{expect, write_synced};

/// A mount in the foreground, whose log the test reads.
struct Foreground {
    process: std::process::Child,
    log: Arc<Mutex<String>>,
}

impl Foreground {
    fn mount(machine: &Machine, options: &str) -> Self {
        let cache = machine.cache.display();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        command.args(["--foreground", "-o", &format!("cache_file={cache},{options}")]);
        command.arg(&machine.volume.device).arg(&machine.volume.dir).stderr(Stdio::piped());
        command.envs(machine.environment());
        let mut process = command.spawn().expect("sfs-mount runs");
        let stderr = process.stderr.take().expect("a pipe");
        let log = Arc::new(Mutex::new(String::new()));
        let to = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                to.lock().expect("no panic").extend([&line, "\n"]);
            }
        });
        let mut mount = Self { process, log };
        wait_until("the mount", || {
            let ended = mount.process.try_wait().expect("a child");
            assert!(ended.is_none(), "{}", mount.said());
            is_mounted(&machine.volume.dir)
        });
        mount
    }

    fn said(&self) -> String {
        self.log.lock().expect("no panic").clone()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let process = Pid::from_child(&self.process);
        let _ = kill_process(process, Signal::TERM);
        let _ = self.process.wait();
    }
}

/// The second machine is refused, and wins if it takes the volume over. The first says who has the volume, and nothing of it is written
/// any more.
#[test]
fn mounted_object_volumes_have_one_writer() {
    if !can_mount() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let mount = Foreground::mount(&first, "upload=1");
    let dir = &first.volume.dir;
    write_synced(&dir.join("before"), b"uploaded before the takeover");
    store.wait_for(b"uploaded before the takeover");
    let open = File::options().append(true).open(dir.join("before")).expect("a file");
    let second = Machine::new(&store);
    let objects = store.objects();
    let refused = second.try_mount("");
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(32), "{said}");
    let host = sfs_system::host_name();
    assert!(said.contains(&format!("{host} has the volume")) && said.contains("-o takeover"));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(objects, store.objects(), "nothing is changed");

    let winner = second.mount("takeover,durability=remote");
    write_synced(&winner.dir.join("of the second"), b"second");
    // The first learns it at its next upload.
    write_synced(&dir.join("late"), b"acknowledged by the cache alone");
    wait_until("the first machine says so", || mount.said().contains("has taken the volume over"));
    let line = format!("{host} has taken the volume over");
    assert!(mount.said().contains(&line), "{}", mount.said());
    let failed = (&open).write_all(b"too late").and_then(|()| open.sync_all());
    failed.expect_err("nothing more is written");
    File::create(dir.join("more")).and_then(|file| file.sync_all()).expect_err("read-only");
    let before = fs::read(dir.join("before")).expect("it serves reads");
    // The kernel may keep what could not be written.
    assert!(before.starts_with(b"uploaded before the takeover"));
    drop(open);
    drop(mount);
    wait_until("the first mount ends", || !is_mounted(dir));

    expect(&winner.dir.join("before"), b"uploaded before the takeover");
    assert!(!winner.dir.join("late").exists(), "it was never uploaded");
    winner.unmount();
    // The first has content that was never uploaded: its cache is left as it is.
    let cache = fs::read(&first.cache).expect("a cache");
    let refused = first.try_mount("");
    let said = stderr(&refused);
    assert!(refused.status.code() == Some(32) && said.contains("never uploaded"), "{said}");
    assert!(said.contains("-o ro,local_state"), "{said}");
    // What it has can be copied.
    let left = first.mount("ro,local_state");
    expect(&left.dir.join("before"), b"uploaded before the takeover");
    expect(&left.dir.join("late"), b"acknowledged by the cache alone");
    assert!(!left.dir.join("of the second").exists(), "that is not of this machine");
    File::create(left.dir.join("new")).expect_err("read-only");
    left.unmount();
    let fsck = readers::fsck(&first, &["-n"]);
    assert!(fsck.status.success(), "{}", stderr(&fsck));
    assert!(fs::read(&first.cache).expect("a cache") == cache, "the cache is left as it is");
    first.lose_cache();
    let mount = first.mount("");
    expect(&mount.dir.join("of the second"), b"second");
    mount.unmount();
}

/// With `durability=remote` no fsync of the loser succeeds for what is not there.
#[test]
fn mounted_object_volumes_acknowledge_nothing_after_a_takeover() {
    if !can_mount() {
        return;
    }
    let (store, first) = Store::with_volume("64M");
    let mount = first.mount("durability=remote");
    write_synced(&mount.dir.join("before"), b"before");
    let second = Machine::new(&store);
    let winner = second.mount("takeover");
    let mut acknowledged = 0;
    for no in 0..3 {
        let file = File::create(mount.dir.join(format!("late-{no}")));
        let synced =
            file.and_then(|mut file| file.write_all(b"late").and_then(|()| file.sync_all()));
        acknowledged += usize::from(synced.is_ok());
    }
    assert_eq!(acknowledged, 0);
    expect(&winner.dir.join("before"), b"before");
    winner.unmount();
    let umount = super::harness::sfs_umount_unused(&first.volume.dir);
    let said = stderr(&umount);
    assert!(!umount.status.success() && said.contains("has taken the volume over"), "{said}");
    mount.wait_for_end();
}

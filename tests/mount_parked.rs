//! Writes that wait for room, with one serving thread: reading goes on, and every write is answered, also those of a frozen or full
//! volume and of programs that were killed.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use harness::{CACHES, TestVolume, can_mount, content, stderr, transport_used};

/// One serving thread, and a write buffer that has room for little.
const SMALL: &str = "threads=1,write_buffer=1M";

/// Number of programs that write at the same time.
const WRITERS: u64 = 8;

/// Length of the file of each.
const LEN: usize = 3_000_000;

fn write_in_pieces(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    bytes.chunks(70_000).try_for_each(|piece| file.write_all(piece))
}

fn sfs_ctl(arguments: &[&str], dir: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let output = command.args(arguments).arg(dir).output().expect("sfs-ctl runs");
    assert!(output.status.success(), "sfs-ctl {arguments:?}: {}", stderr(&output));
}

#[test]
fn mounted_volumes_read_while_many_writes_wait() {
    if !can_mount() {
        return;
    }
    for cache in CACHES {
        let volume = TestVolume::new("128M");
        let mount = volume.mount(&format!("{SMALL},{cache}"));
        let small = content("small", 1, 20_000);
        fs::write(mount.dir.join("small"), &small).expect("writing");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut rounds = 0_u64;
                while !is_over.load(Ordering::SeqCst) || rounds == 0 {
                    let absent = fs::metadata(mount.dir.join(format!("absent-{rounds}")));
                    assert_eq!(absent.expect_err("no such file").kind(), ErrorKind::NotFound);
                    assert!(fs::read(mount.dir.join("small")).expect("reading") == small);
                    rounds += 1;
                }
            });
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let path = mount.dir.join(format!("file-{writer}"));
                    scope.spawn(move || write_in_pieces(&path, &content("file", writer, LEN)))
                })
                .collect();
            for writer in writers {
                writer.join().expect("no panic").expect("writing");
            }
            is_over.store(true, Ordering::SeqCst);
            reading.join().expect("no panic");
        });
        mount.unmount();
        volume.check();
        let mount = volume.mount("");
        for writer in 0..WRITERS {
            let read = fs::read(mount.dir.join(format!("file-{writer}"))).expect("reading");
            assert!(read == content("file", writer, LEN), "file-{writer}");
        }
        mount.unmount();
    }
}

/// Changes that wait for a thaw hold no thread, where the transport can park them.
#[test]
fn mounted_volumes_that_are_frozen_read_while_many_writes_wait() {
    if !can_mount() || transport_used() != "dev" {
        return;
    }
    let volume = TestVolume::new("128M");
    let mount = volume.mount(&format!("{SMALL},nowriteback"));
    for writer in 0..WRITERS {
        fs::write(mount.dir.join(format!("file-{writer}")), b"old").expect("writing");
    }
    sfs_ctl(&["freeze", "--timeout", "60"], &mount.dir);
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (path, written) = (mount.dir.join(format!("file-{writer}")), &written);
            scope.spawn(move || {
                let mut file = File::options().append(true).open(path).expect("opening");
                file.write_all(&content("file", writer, 100_000)).expect("writing");
                written.store(true, Ordering::SeqCst);
            });
        }
        thread::sleep(Duration::from_millis(300));
        for absent in 0..20 {
            let absent = fs::metadata(mount.dir.join(format!("absent-{absent}")));
            assert_eq!(absent.expect_err("no such file").kind(), ErrorKind::NotFound);
        }
        assert!(!written.load(Ordering::SeqCst), "the writers wait");
        sfs_ctl(&["thaw"], &mount.dir);
    });
    for writer in 0..WRITERS {
        let read = fs::read(mount.dir.join(format!("file-{writer}"))).expect("reading");
        assert!(read[3..] == content("file", writer, 100_000), "file-{writer}");
    }
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_volumes_that_are_full_answer_every_write_that_waits() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("48M");
    let mount = volume.mount(&format!("{SMALL},nowriteback"));
    let refused = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (path, refused) = (mount.dir.join(format!("file-{writer}")), &refused);
            scope.spawn(move || {
                if let Err(error) = write_in_pieces(&path, &content("file", writer, 8 << 20)) {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    refused.store(true, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(refused.load(Ordering::SeqCst), "48 MiB hold no 64 MiB");
    for writer in 0..WRITERS {
        let path = mount.dir.join(format!("file-{writer}"));
        let read = fs::read(&path).expect("reading");
        assert!(content("file", writer, 8 << 20).starts_with(&read), "file-{writer}");
        fs::remove_file(&path).expect("removing");
    }
    write_in_pieces(&mount.dir.join("again"), &content("again", 0, LEN)).expect("there is space");
    mount.unmount();
    volume.check();
}

/// Programs that are killed while their writes wait end, and their last write is answered: the unmount has nothing to wait for.
#[test]
fn mounted_volumes_outlive_programs_that_are_killed_while_their_writes_wait() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("256M");
    let mount = volume.mount(&format!("{SMALL},nowriteback"));
    for _ in 0..3 {
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let file = mount.dir.join(format!("file-{writer}"));
                let mut dd = Command::new("dd");
                dd.args(["if=/dev/zero", "bs=256k", "count=100"]).stderr(Stdio::null());
                dd.arg(format!("of={}", file.display())).spawn().expect("dd runs")
            })
            .collect();
        thread::sleep(Duration::from_millis(50));
        for writer in &mut writers {
            writer.kill().expect("it is our child");
        }
        for mut writer in writers {
            writer.wait().expect("it ends");
        }
    }
    fs::write(mount.dir.join("after"), b"content").expect("writing goes on");
    mount.unmount();
    volume.check();
}

/// Write-back that waits for a thaw keeps no other program from reading content that no cache has.
#[test]
fn mounted_volumes_that_are_frozen_read_from_the_device_while_write_back_waits() {
    if !can_mount() || transport_used() != "dev" {
        return;
    }
    let volume = TestVolume::new("256M");
    let mount = volume.mount("write_buffer=16M,threads=4");
    let names: Vec<String> = (0..40).map(|number| format!("cold-{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        let file = File::create(mount.dir.join(name)).expect("creating");
        (&file).write_all(&content("cold", number, 100_000)).expect("writing");
        file.sync_all().expect("syncing");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    }
    let hot: Vec<File> = (0..WRITERS)
        .map(|writer| File::create(mount.dir.join(format!("file-{writer}"))).expect("creating"))
        .collect();
    // The time-out thaws: a program that is started inherits the files, and writes them back when it closes them.
    sfs_ctl(&["freeze", "--timeout", "5"], &mount.dir);
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (writer, file) in (0..).zip(&hot) {
            let written = &written;
            scope.spawn(move || {
                let mut file = file;
                file.write_all(&content("file", writer, 8 << 20)).expect("writing");
                file.sync_all().expect("syncing");
                written.fetch_add(1, Ordering::SeqCst);
            });
        }
        thread::sleep(Duration::from_millis(500));
        for (number, name) in (0..).zip(&names) {
            let read = fs::read(mount.dir.join(name)).expect("reading");
            assert!(read == content("cold", number, 100_000), "{name}");
        }
        assert_eq!(written.load(Ordering::SeqCst), 0, "reading did not wait for the thaw");
    });
    drop(hot);
    mount.unmount();
    volume.check();
}

/// With `sync` every write waits for the device, and holds no thread meanwhile: the only one serves others beside.
#[test]
fn mounted_volumes_sync_each_write_of_many_programs() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("128M");
    let mount = volume.mount(&format!("{SMALL},nowriteback,sync"));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = mount.dir.join(format!("file-{writer}"));
            scope.spawn(move || {
                write_in_pieces(&path, &content("file", writer, 1 << 20)).expect("writing")
            });
        }
    });
    mount.kill();
    mount.detach();
    let mount = volume.mount("");
    for writer in 0..WRITERS {
        let read = fs::read(mount.dir.join(format!("file-{writer}"))).expect("reading");
        assert!(read == content("file", writer, 1 << 20), "file-{writer}: every write was durable");
    }
    mount.unmount();
    volume.check();
}

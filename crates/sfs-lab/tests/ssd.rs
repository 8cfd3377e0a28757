//! `sfs-lab ssd` as a user runs it: a filesystem of the kernel on a model, and invalid arguments.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sfs_device::Block;
use sfs_lab::block_trace::BlockTrace;
use sfs_lab::exported::{CONTROL, ExportedStatus};
use sfs_lab::host::{Disk, DiskRequest, Filesystem, need_disks};
use sfs_ssd::RequestKind;

const LAB: &str = env!("CARGO_BIN_EXE_sfs-lab");
const MIB: u64 = 1 << 20;

/// Returns whether this machine can export disks. Prints the reason if not.
fn can_export() -> bool {
    match need_disks() {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: {error:#}");
            false
        }
    }
}

fn ssd(arguments: &[&str]) -> Output {
    Command::new(LAB).arg("ssd").args(arguments).output().expect("sfs-lab runs")
}

/// Expects a failure with one line on standard error, which contains `message`.
fn expect_refusal(arguments: &[&str], message: &str) {
    let output = ssd(arguments);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}");
    assert!(printed.contains(message), "{arguments:?}: {printed}");
    assert_eq!(printed.trim().lines().count(), 1, "{printed}");
}

#[test]
fn invalid_arguments_are_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path().to_str().expect("UTF-8");
    expect_refusal(&["--profile", "floppy", dir], "no profile floppy: there are ssd-h");
    expect_refusal(&["--profile", "ssd-m", "--size", "1M", dir], "smaller than an erase block");
    expect_refusal(&["/nonexistent"], "No such file or directory");
    fs::write(folder.path().join("a"), "a").expect("written");
    expect_refusal(&[dir], "not empty");
}

fn written(status: &ExportedStatus) -> u64 {
    status.counters.host_bytes_written
}

/// Writes and discards of the kernel reach the model and its record. No loop device is left behind.
#[test]
fn ext4_works_on_a_model() {
    if !can_export() {
        return;
    }
    let filesystem = Filesystem::Ext4;
    if let Some(program) = filesystem.missing() {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let request = DiskRequest { profile: "fast12", size: 64 * MIB };
    let disk = Disk::start(Path::new(LAB), &request).expect("a disk");
    assert_eq!(written(&disk.status().expect("counters")), 0);
    let device = disk.device().to_owned();
    filesystem.make(&device).expect("a new ext4");
    let made = disk.status().expect("counters");
    assert!(written(&made) > 0 && made.counters.flush_requests > 0, "{made:?}");

    let mounted = filesystem.mount(&device, disk.folder()).expect("mounted");
    let path = mounted.dir().join("file");
    let content: Vec<u8> = (0..8 * MIB).map(|no| (no % 253) as u8).collect();
    fs::write(&path, &content).expect("written");
    fs::File::open(&path).expect("the file").sync_all().expect("synced");
    let filled = disk.status().expect("counters");
    assert!(written(&filled) >= written(&made) + 8 * MIB, "{filled:?}");
    mounted.unmount().expect("unmounted");

    let mounted = filesystem.mount(&device, disk.folder()).expect("mounted again");
    assert!(fs::read(mounted.dir().join("file")).expect("read") == content);
    fs::remove_file(mounted.dir().join("file")).expect("removed");
    rustix::fs::syncfs(fs::File::open(mounted.dir()).expect("the root")).expect("synced");
    let before = disk.status().expect("counters").counters.host_pages_trimmed;
    let trimmed = Command::new("fstrim").arg(mounted.dir()).status();
    if trimmed.is_ok_and(|status| status.success()) {
        let after = disk.status().expect("counters").counters.host_pages_trimmed;
        assert!(after >= before + 8 * MIB / 4096, "{before} {after}");
    } else {
        eprintln!("skipped: fstrim is not installed, or failed");
    }
    mounted.unmount().expect("unmounted");

    let last = disk.status().expect("counters");
    let trace = disk.finish().expect("a record");
    assert!(trace.records.len() as u64 >= last.recorded);
    let bytes = |trace: &BlockTrace| -> u64 {
        let writes = trace.records.iter().filter(|r| r.kind == RequestKind::Write);
        writes.map(|record| record.len).sum()
    };
    assert_eq!(bytes(&trace), written(&last));
    assert!(!Path::new("/sys/block").join(device.file_name().unwrap()).join("loop").exists());
}

/// Reads `count` blocks of the device with direct I/O, and returns the elapsed time.
fn read_directly(device: &Path, count: u64) -> Duration {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = fs::File::options().read(true).custom_flags(direct).open(device).expect("opened");
    let mut block = Block::zeroed(1);
    let began = Instant::now();
    for no in 0..count {
        file.read_exact_at(Block::bytes_of_mut(&mut block), no * 4096).expect("read");
    }
    began.elapsed()
}

/// A random read takes a millisecond on the card. In virtual time, only the clock of the model
/// advances.
#[test]
fn the_control_file_changes_between_virtual_and_real_time() {
    if !can_export() {
        return;
    }
    let request = DiskRequest { profile: "sd", size: 64 * MIB };
    let disk = Disk::start(Path::new(LAB), &request).expect("a disk");
    // The flash would take no time for reads of blocks that were never written.
    fs::write(disk.device(), vec![1; 2_000 * 4096]).expect("written");
    fs::File::open(disk.device()).expect("the device").sync_all().expect("synced");
    let modelled_ns = || disk.status().expect("the status").virtual_ns;
    let before_ns = modelled_ns();
    assert!(!disk.status().expect("the status").real_time);
    read_directly(disk.device(), 2_000);
    assert!(modelled_ns() - before_ns >= 2_000_000_000);

    disk.set_real_time(true).expect("changed");
    assert!(disk.status().expect("the status").real_time);
    let took = read_directly(disk.device(), 100);
    // These reads do not wait for the two modelled seconds of the reads before.
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");

    disk.set_real_time(false).expect("changed back");
    assert!(!disk.status().expect("the status").real_time);
    let control = disk.folder().join("models").join(CONTROL);
    assert!(fs::write(control, "faster").is_err());
}

/// A filesystem in use cannot be unmounted: the error names its user, and neither a mount, a loop device nor the
/// process of the model stays when the user has gone.
#[test]
#[ignore = "waits for 20 s; cargo xtask test --long runs it"]
fn a_busy_filesystem_is_given_up() {
    if !can_export() {
        return;
    }
    let filesystem = Filesystem::Ext4;
    if let Some(program) = filesystem.missing() {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let disk = Disk::start(Path::new(LAB), &DiskRequest { profile: "fast12", size: 64 * MIB })
        .expect("a disk");
    let device = disk.device().to_owned();
    filesystem.make(&device).expect("a new ext4");
    let mounted = filesystem.mount(&device, disk.folder()).expect("mounted");
    let dir = mounted.dir().to_owned();
    let mut user = Command::new("sleep").arg("300").current_dir(&dir).spawn().expect("sleep");
    let error = format!("{:#}", mounted.unmount().expect_err("busy"));
    assert!(error.contains(&format!("sleep ({})", user.id())), "{error}");
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
    assert!(!mounts.contains(dir.to_str().expect("UTF-8")), "{mounts}");
    let began = Instant::now();
    let folder = disk.folder().to_owned();
    drop(disk);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
    assert!(!mounts.contains(folder.to_str().expect("UTF-8")), "{mounts}");
    user.kill().expect("killed");
    user.wait().expect("ended");
    let backing =
        Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file");
    while backing.exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!backing.exists(), "the loop device is still attached");
}

/// Faults are switched on and off over the control file, below a mounted device.
#[test]
fn the_control_file_makes_the_device_fail() {
    if !can_export() {
        return;
    }
    let disk = Disk::start(Path::new(LAB), &DiskRequest { profile: "fast12", size: 64 * MIB })
        .expect("a disk");
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(direct)
        .open(disk.device())
        .expect("opened");
    let mut block = Block::zeroed(1);
    block[0].0.fill(7);
    file.write_all_at(Block::bytes_of(&block), 0).expect("written");
    disk.command("fault error on=read range=0-4K count=1").expect("a fault");
    let error = file.read_exact_at(Block::bytes_of_mut(&mut block), 0).expect_err("EIO");
    assert_eq!(error.raw_os_error(), Some(5));
    file.read_exact_at(Block::bytes_of_mut(&mut block), 0).expect("the fault was for one request");
    disk.command("fault lost range=0-4K").expect("a fault");
    block[0].0.fill(8);
    file.write_all_at(Block::bytes_of(&block), 0).expect("acknowledged");
    disk.command("heal").expect("healed");
    file.read_exact_at(Block::bytes_of_mut(&mut block), 0).expect("read");
    assert_eq!(block[0].0[100], 7);
    assert!(disk.command("fault lost on=read").is_err());
    assert!(disk.status().expect("the status").faults.is_empty());
}

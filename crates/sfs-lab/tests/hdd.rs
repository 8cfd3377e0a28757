//! `sfs-lab hdd` and `sfs-lab pair` as a user runs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sfs_lab::exported::{CONTROL, DISK, ExportedHddStatus, ExportedStatus};
use sfs_lab::host::{DiskPair, Medium, PairRequest, need_disks};

const LAB: &str = env!("CARGO_BIN_EXE_sfs-lab");

/// A running command, and the lines that it has printed.
fn start(arguments: &[&str], dir: &Path, lines: usize) -> (Child, Vec<String>) {
    let mut child = Command::new(LAB)
        .args(arguments)
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("sfs-lab runs");
    let output = BufReader::new(child.stdout.as_mut().expect("a pipe"));
    let printed = output.lines().take(lines).map(|line| line.expect("a line")).collect();
    (child, printed)
}

fn end(mut child: Child) {
    let ended = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(ended.expect("kill").success());
    assert!(child.wait().expect("ended").success());
}

fn status<S: serde::de::DeserializeOwned>(dir: &Path) -> S {
    serde_json::from_slice(&fs::read(dir.join(CONTROL)).expect("the status")).expect("JSON")
}

#[test]
fn a_flash_device_and_a_drive_share_a_clock() {
    if let Err(error) = need_disks() {
        eprintln!("skipped: {error:#}");
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    let arguments = ["pair", "--no-loop", "--ssd-size", "256M", "--hdd-size", "1G"];
    let (child, printed) = start(&arguments, dir, 4);
    assert!(printed[0].ends_with("ssd/disk") && printed[1].ends_with("hdd/disk"), "{printed:?}");
    let (ssd, hdd) = (dir.join("ssd"), dir.join("hdd"));
    let open = |dir: &Path| {
        fs::File::options().read(true).write(true).open(dir.join(DISK)).expect("opened")
    };
    let (flash, platters) = (open(&ssd), open(&hdd));
    flash.write_all_at(&[1; 8192], 4096).expect("written");
    for no in 0..20 {
        platters.write_all_at(&[2; 4096], no * (40 << 20)).expect("written");
    }
    platters.sync_all().expect("flushed");
    let mut found = [0; 4096];
    platters.read_exact_at(&mut found, 40 << 20).expect("read");
    assert_eq!(found, [2; 4096]);
    flash.read_exact_at(&mut found, 8192).expect("read");
    assert_eq!(found, [1; 4096]);
    let (of_ssd, of_hdd): (ExportedStatus, ExportedHddStatus) = (status(&ssd), status(&hdd));
    assert_eq!(of_ssd.virtual_ns, of_hdd.virtual_ns, "one clock");
    assert!(of_hdd.counters.seeks >= 19 && of_hdd.virtual_ns > 60_000_000, "{of_hdd:?}");
    assert_eq!((of_hdd.cached_bytes, of_hdd.counters.host_bytes_written), (0, 20 * 4096));
    fs::write(hdd.join(CONTROL), "fault error on=write").expect("a fault");
    let error = platters.write_all_at(&[3; 4096], 0).expect_err("EIO");
    assert_eq!(error.raw_os_error(), Some(5));
    fs::write(hdd.join(CONTROL), "real").expect("real time");
    assert!(status::<ExportedStatus>(&ssd).real_time, "of both");
    drop((flash, platters));
    end(child);
    assert_eq!(fs::read_dir(dir).expect("the directory").count(), 0, "nothing is left");
}

#[test]
fn a_pair_shows_the_time_of_its_devices() {
    if let Err(error) = need_disks() {
        eprintln!("skipped: {error:#}");
        return;
    }
    let request = PairRequest { ssd: ("ssd-m", 64 << 20), hdd: ("deskstar", 256 << 20) };
    let pair = DiskPair::start(Path::new(LAB), &request).expect("both devices");
    let mut before_ns = pair.flushed_ns().expect("a clock");
    for medium in Medium::ALL {
        let device = fs::File::options().write(true).open(pair.device(medium)).expect("opened");
        device.write_all_at(&[1; 4096], 16 << 20).expect("written");
        drop(device);
        let now_ns = pair.flushed_ns().expect("a clock");
        assert!(now_ns > before_ns, "{medium:?} takes time");
        before_ns = now_ns;
    }
    let (ssd, hdd) = (pair.ssd().expect("counters"), pair.hdd().expect("counters"));
    let written = (ssd.counters.host_bytes_written, hdd.counters.host_bytes_written);
    assert_eq!(written, (4096, 4096));
    let folder = pair.folder().to_owned();
    drop(pair);
    assert!(!folder.exists(), "nothing is left");
}

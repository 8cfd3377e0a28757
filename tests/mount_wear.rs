//! The wear ledger and the health of a mounted volume, as `sfs-ctl` prints them.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use harness::{TestVolume, can_mount, content, sfs_ctl_stat, stderr};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn numbers(path: &Path, arguments: &[&str]) -> Value {
    let output = sfs_ctl_stat(path, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn health(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("health").arg(path).args(arguments).output().expect("sfs-ctl runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn bytes(wear: &Value, name: &str) -> u64 {
    wear[name].as_u64().unwrap_or_else(|| panic!("{name} in {wear}"))
}

#[test]
fn wear_is_counted_over_mounts_and_shown_in_words() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (mut user, mut device) = (0, 0);
    for round in 1..=2 {
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), vec![round; 8 << 20]).expect("writing");
        File::open(mount.dir.join("file")).and_then(|file| file.sync_all()).expect("a sync");
        let wear = numbers(&volume.dir, &[])["wear"].clone();
        assert!(bytes(&wear, "user_bytes") >= user + 8 * MIB, "{wear}");
        assert!(bytes(&wear, "device_bytes") > device + 8 * MIB);
        mount.unmount();
        let wear = numbers(&volume.device, &[])["wear"].clone();
        (user, device) = (bytes(&wear, "user_bytes"), bytes(&wear, "device_bytes"));
    }
    let wear = numbers(&volume.device, &["--endurance", "77"])["wear"].clone();
    let parts = ["user_bytes", "cleaning_bytes", "metadata_bytes", "defragmentation_bytes"];
    let of = |report: &Value| parts.iter().map(|part| bytes(report, part)).sum::<u64>();
    assert_eq!(of(&wear), device, "every byte has an origin");
    let days = wear["days"].as_array().expect("days");
    assert_eq!(days.iter().map(of).sum::<u64>(), device);
    assert!(days.len() <= 2, "the test runs at midnight at most once");
    assert_eq!(wear["since"], days[0]["day"]);
    let size = bytes(&wear, "volume_bytes");
    assert_eq!(wear["times_written"].as_f64(), Some(device as f64 / size as f64));
    assert_eq!(wear["endurance_cycles"], 77);
    assert!(bytes(&wear["erases"], "total") >= 16, "16 MiB in segments of a MiB at most: {wear}");
    assert!(bytes(&wear["erases"], "max") >= 1);
    assert_eq!(wear["device"], Value::Null, "an image file has no controller");
    let text = stdout(&sfs_ctl_stat(&volume.device, &[]));
    assert!(text.contains("  wear        This device has been written 0."), "{text}");
    assert!(text.contains("The most used segment"), "{text}");
    let healthy = health(&volume.device, &[]);
    assert_eq!((healthy.status.code(), &*stdout(&healthy)), (Some(0), "ok\n"));
}

#[test]
fn a_damaged_volume_is_failing_and_an_unknown_one_is_unknown() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let written = content("file", 1, 64 * BLOCK);
    fs::write(mount.dir.join("file"), &written).expect("writing");
    mount.unmount();
    let image = fs::read(&volume.device).expect("the image");
    let wanted = &written[5 * BLOCK..6 * BLOCK];
    let at = image.chunks(BLOCK).position(|block| block == wanted).expect("the block");
    let file = File::options().write(true).open(&volume.device).expect("the image");
    file.write_all_at(&[!wanted[77]], (at * BLOCK) as u64 + 77).expect("writing");
    drop(file);

    let mount = volume.mount("");
    assert_eq!(health(&volume.dir, &[]).status.code(), Some(0));
    fs::read(mount.dir.join("file")).expect_err("a block is damaged");
    for path in [&volume.dir, &volume.device] {
        let failing = health(path, &[]);
        assert_eq!(failing.status.code(), Some(2), "{}", stderr(&failing));
        let text = stdout(&failing);
        assert!(text.starts_with("failing\nThe device returned other content"), "{text}");
        assert!(text.contains("Unmount, and run 'sfs-fsck -n --data "), "{text}");
        assert_eq!(stderr(&failing), "", "the standard output says it all");
    }
    let json = health(&volume.dir, &["--json"]);
    let found: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&found["state"], &found["findings"][0]["kind"]),
        (&"failing".into(), &"damage".into())
    );
    assert_eq!(numbers(&volume.dir, &[])["health"], found);
    mount.unmount();
    assert_eq!(health(&volume.device, &[]).status.code(), Some(2), "remembered");

    let unknown = health(&volume.scratch.path().join("missing"), &[]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(stderr(&unknown).contains("No such file"), "{}", stderr(&unknown));
}

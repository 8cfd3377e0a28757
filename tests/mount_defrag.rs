//! Defragmentation of a mounted volume: `sfs-ctl defrag`, and that of an idle volume.
//!
//! The output of the programs is compared with the map of the file and with the counters of the volume.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{TestVolume, can_mount, copy_program, stderr};
use serde_json::Value;
use sfs_testkit::SeededRng;

const BLOCK: u64 = 4096;

/// User ID of "nobody".
const NOBODY: u32 = 65_534;

fn ctl(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.args(arguments).args(paths).output().expect("sfs-ctl runs")
}

/// Returns the object that a command prints.
fn json(arguments: &[&str], path: &Path) -> Value {
    let output = ctl(&[arguments, &["--json"]].concat(), &[path]);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Asserts a failure with `status`, and one line that gives `reason`.
fn expect_failure(output: &Output, status: i32, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.starts_with("sfs-ctl: ") && said.contains(reason), "'{reason}': {said}");
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name}: {value}"))
}

fn moved_bytes(mount: &Path) -> u64 {
    number(&json(&["stat"], mount)["mount"]["counters"], "defragmentation_bytes")
}

/// Makes a file of `blocks` blocks whose blocks were overwritten in no order. Returns its content.
fn scatter(path: &Path, blocks: u64, seed: u64) -> Vec<u8> {
    let mut random = SeededRng::new(seed);
    let mut content = random.bytes((blocks * BLOCK) as usize);
    fs::write(path, &content).expect("writing");
    let file = OpenOptions::new().write(true).open(path).expect("the file opens");
    file.sync_all().expect("a sync");
    for no in 0..blocks {
        let at = no * 2_654_435_761 % blocks * BLOCK;
        let bytes = random.bytes(BLOCK as usize);
        file.write_all_at(&bytes, at).expect("writing");
        content[at as usize..][..BLOCK as usize].copy_from_slice(&bytes);
        if no % 64 == 63 {
            file.sync_data().expect("a sync");
        }
    }
    file.sync_all().expect("a sync");
    content
}

#[test]
fn mounted_files_are_put_in_order_and_stay_what_they_are() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("128M");
    let mount = volume.mount("defrag=off");
    let path = mount.dir.join("file");
    let content = scatter(&path, 5000, 1);
    let before = json(&["file"], &path);
    let reading = File::open(&path).expect("the file opens");
    let report = json(&["defrag"], &path);
    let after = json(&["file"], &path);
    assert_eq!((number(&report, "files"), number(&report, "moved_files")), (1, 1));
    assert_eq!(number(&report, "bytes"), 5000 * BLOCK);
    assert!(number(&report, "moved_bytes") > 4000 * BLOCK, "{report}");
    // Windows of 4 MiB, in eight groups at most, each at the end of a segment at worst.
    assert!(number(&report, "requests_after") <= 5 * 16, "{report}");
    assert!(number(&report, "requests_before") > 400, "{report}");
    let runs = |map: &Value| number(map, "run_count");
    assert!(runs(&after) * 2 < runs(&before), "{} and {} runs", runs(&before), runs(&after));
    let moved = moved_bytes(&mount.dir);
    assert_eq!(moved, number(&report, "moved_bytes"));
    let wear = &json(&["stat"], &mount.dir)["wear"];
    assert_eq!(number(wear, "defragmentation_bytes"), moved);
    let again = json(&["defrag"], &path);
    assert_eq!((number(&again, "moved_bytes"), number(&again, "device_bytes")), (0, 0), "{again}");
    let mut bytes = vec![0; content.len()];
    reading.read_exact_at(&mut bytes, 0).expect("the open file reads");
    drop(reading);
    assert!(bytes == content && fs::read(&path).expect("the file reads") == content);
    mount.unmount();
    volume.check();
    let mount = volume.mount("");
    assert!(fs::read(mount.dir.join("file")).expect("the file reads") == content);
    mount.unmount();
}

/// Programs write while their files are put in order; a client that is killed, and an unmount, end the work.
#[test]
fn mounted_files_are_put_in_order_while_they_are_written() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("defrag=off");
    let path = mount.dir.join("file");
    let mut content = scatter(&path, 3000, 2);
    let program = env!("CARGO_BIN_EXE_sfs-ctl");
    let mut client = Command::new(program).arg("defrag").arg(&path).spawn().expect("it runs");
    let file = OpenOptions::new().write(true).open(&path).expect("the file opens");
    let mut random = SeededRng::new(3);
    for no in 0..200 {
        let at = no * 104_729 % 3000 * BLOCK;
        let bytes = random.bytes(BLOCK as usize);
        file.write_all_at(&bytes, at).expect("writing");
        content[at as usize..][..BLOCK as usize].copy_from_slice(&bytes);
        if no % 20 == 19 {
            file.sync_data().expect("a sync");
        }
    }
    drop(file);
    client.wait().expect("the client ends");
    assert!(fs::read(&path).expect("the file reads") == content);
    let mut client = Command::new(program).arg("defrag").arg(&path).spawn().expect("it runs");
    client.kill().expect("the client was started");
    client.wait().expect("the client ends");
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_directories_are_walked_without_following_links() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("defrag=off");
    let inside = mount.dir.join("inside");
    fs::create_dir_all(inside.join("deep")).expect("a directory");
    scatter(&inside.join("deep/file"), 600, 4);
    scatter(&mount.dir.join("outside"), 600, 5);
    fs::hard_link(inside.join("deep/file"), inside.join("name")).expect("a link");
    symlink(&mount.dir, inside.join("up")).expect("a link");
    symlink("/usr", inside.join("away")).expect("a link");
    fs::write(inside.join("small"), b"inline").expect("writing");
    expect_failure(&ctl(&["defrag"], &[&inside]), 1, "is a directory; give -r");
    let outside = json(&["file"], &mount.dir.join("outside"));
    let report = json(&["defrag", "-r"], &inside);
    assert_eq!((number(&report, "files"), number(&report, "moved_files")), (2, 1), "{report}");
    assert_eq!(number(&report, "failed_files"), 0, "{report}");
    let places = |map: &Value| -> Vec<u64> {
        let runs = map["runs"].as_array().expect("runs");
        runs.iter().map(|run| number(run, "address")).collect()
    };
    let untouched = json(&["file"], &mount.dir.join("outside"));
    assert!(places(&outside) == places(&untouched), "a link was followed");
    let text = ctl(&["defrag"], &[&mount.dir.join("outside"), &inside.join("name")]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.starts_with("2 files, "), "{text}");
    expect_failure(&ctl(&["defrag"], &[Path::new("/proc/version")]), 32, "not on an SFS volume");
    expect_failure(&ctl(&["defrag"], &[&inside.join("none")]), 1, "No such file");
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_volumes_refuse_to_defragment_what_cannot_be() {
    if !can_mount() {
        return;
    }
    for layout in ["greedy-space", "clock-space", "clock-space-exact", "block-group"] {
        let volume = TestVolume::placed("16M", layout);
        let mount = volume.mount("");
        let path = mount.dir.join("file");
        fs::write(&path, [1; 100_000]).expect("writing");
        let refused = ctl(&["defrag"], &[&path]);
        expect_failure(&refused, 32, "overwrites data in place");
        mount.unmount();
    }
    let volume = TestVolume::new("16M");
    let mount = volume.mount("allow_other");
    fs::set_permissions(&mount.dir, Permissions::from_mode(0o755)).expect("the mode of the root");
    fs::set_permissions(volume.scratch.path(), Permissions::from_mode(0o755)).expect("a mode");
    let path: PathBuf = mount.dir.join("file");
    fs::write(&path, [1; 100_000]).expect("writing");
    let program = volume.scratch.path().join("sfs-ctl");
    copy_program(env!("CARGO_BIN_EXE_sfs-ctl").as_ref(), &program);
    let nobody = Command::new(&program).arg("defrag").arg(&path).uid(NOBODY).gid(NOBODY).output();
    expect_failure(&nobody.expect("it runs"), 32, "only root and the user who mounted it");
    mount.unmount();
    let mount = volume.mount("ro");
    expect_failure(&ctl(&["defrag"], &[&path]), 32, "is mounted read-only");
    assert_eq!(moved_bytes(&mount.dir), 0);
    mount.unmount();
    volume.check();
}

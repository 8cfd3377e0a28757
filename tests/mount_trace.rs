//! Recording the requests of a mount, and replaying them in the laboratory and on another mount.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use harness::{TestVolume, can_mount, sfs_ctl_stat, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sfs_core::request::VolumeOptions;
use sfs_lab::in_memory::TracedJob;
use sfs_lab::request_load::{LoadAction, RequestLoad};
use sfs_lab::request_replay;
use sfs_testkit::{SeededRng, wait_until};

const SIZE: &str = "64M";

/// Returns `sfs-ctl trace` with arguments.
fn sfs_ctl_trace(dir: &Path, file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("trace").arg(dir).arg("-o").arg(file).args(arguments);
    command
}

/// Starts a recording, and waits until requests are recorded.
fn record(dir: &Path, file: &Path, arguments: &[&str]) -> Child {
    let mut command = sfs_ctl_trace(dir, file, arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // The daemon records before it answers, and the file gets its first lines after the answer.
    wait_until("the recording begins", || fs::metadata(file).is_ok_and(|file| file.len() > 0));
    child.expect("sfs-ctl runs")
}

/// Ends a recording as Ctrl-C does.
fn stop(recording: Child) -> Output {
    let pid = Pid::from_child(&recording);
    kill_process(pid, Signal::INT).expect("the recording goes on");
    let output = recording.wait_with_output().expect("the recording ends");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Returns the users' bytes that the daemon of a mount has counted.
fn user_bytes(dir: &Path) -> u64 {
    let output = sfs_ctl_stat(dir, &["--json"]);
    let numbers: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    numbers["mount"]["counters"]["user_bytes_written"].as_u64().expect("a number")
}

/// Writes to two files, blocks and parts of them, some again, and syncs. Returns the writes: path, offset, length.
fn write_load(dir: &Path) -> Vec<(PathBuf, u64, u64)> {
    let mut random = SeededRng::new(11);
    let mut writes = Vec::new();
    let paths = [dir.join("first-name"), dir.join("second-name")];
    let files = paths.clone().map(|path| File::create(path).expect("a file"));
    for write in 0..200_usize {
        let len = if write % 3 == 0 { 4096 } else { 1 + random.below(20_000) };
        let offset = random.below(100) * 4096;
        files[write % 2].write_all_at(&random.bytes(len as usize), offset).expect("writing");
        writes.push((paths[write % 2].clone(), offset, len));
        if write % 16 == 15 {
            files[write % 2].sync_all().expect("a sync");
        }
    }
    files[0].set_len(300_000).expect("truncating");
    files[1].sync_data().expect("a sync");
    fs::write(dir.join("gone"), b"a file that is deleted").expect("writing");
    writes.push((dir.join("gone"), 0, 22));
    fs::remove_file(dir.join("gone")).expect("deleting");
    writes
}

#[test]
fn mounted_requests_are_recorded_and_replayed() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    // Each write(2) is a request of its own.
    let mount = volume.mount("nowriteback");
    let path = volume.scratch.path().join("trace");
    let recording = record(&mount.dir, &path, &["--json"]);
    let before = user_bytes(&mount.dir);
    let writes = write_load(&mount.dir);
    let inos: HashMap<PathBuf, u64> = writes
        .iter()
        .filter_map(|(path, ..)| Some((path.clone(), fs::metadata(path).ok()?.ino())))
        .collect();
    let written = user_bytes(&mount.dir) - before;
    let output = stop(recording);
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((outcome["lost"].as_u64(), outcome["ended_by"].as_str()), (Some(0), Some("signal")));
    assert_eq!(fs::metadata(&path).expect("the trace").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).expect("the trace");
    for name in ["first", "second", "gone"] {
        assert!(!text.contains(name), "the name '{name}' was recorded");
    }

    let load = RequestLoad::open(&path).expect("a trace");
    assert_eq!(
        load.end.map(|end| (Some(end.requests), end.lost)),
        Some((outcome["requests"].as_u64(), 0))
    );
    assert!(load.properties.size_bytes > 0 && load.properties.segment_bytes > 0, "{text}");
    assert_eq!(load.written_bytes(), written, "the daemon counts the same bytes");
    let recorded: Vec<_> = load
        .operations
        .iter()
        .filter_map(|operation| match operation.action {
            LoadAction::Write { offset, len } => {
                Some((load.files[operation.file as usize].ino, offset, len))
            }
            _ => None,
        })
        .collect();
    assert_eq!(recorded.len(), writes.len(), "each write(2) is a request");
    for ((ino, offset, len), (path, at, count)) in recorded.iter().zip(&writes) {
        assert_eq!((offset, len), (at, count), "{}", path.display());
        assert!(inos.get(path).is_none_or(|number| number == ino), "{}", path.display());
    }
    let count = |action: fn(&LoadAction) -> bool| {
        load.operations.iter().filter(|operation| action(&operation.action)).count()
    };
    assert_eq!(count(|action| *action == LoadAction::Sync), 13);
    assert_eq!(count(|action| *action == LoadAction::Delete), 1);
    assert_eq!(count(|action| *action == LoadAction::Make), 3);
    assert_eq!(count(|action| *action == LoadAction::Truncate { size: 300_000 }), 1);

    // The laboratory: the same bytes, and the same blocks as often.
    let mut expected = HashMap::new();
    for (path, offset, len) in &writes {
        for block in offset / 4096..(offset + len).div_ceil(4096) {
            *expected.entry((path.clone(), block)).or_insert(0) += 1;
        }
    }
    let paths: HashMap<u64, &PathBuf> = inos.iter().map(|(path, ino)| (*ino, path)).collect();
    let gone = mount.dir.join("gone");
    let blocks: HashMap<_, _> = load
        .block_writes()
        .into_iter()
        .map(|((file, block), count)| {
            let path = paths.get(&load.files[file as usize].ino).copied().unwrap_or(&gone);
            ((path.clone(), block), count)
        })
        .collect();
    assert_eq!(blocks, expected);
    let job = TracedJob {
        device_bytes: 64 << 20,
        segment_bytes: None,
        full: 0.0,
        warm_up_bytes: 0,
        measured_bytes: written,
        options: VolumeOptions::default(),
    };
    let counts = job.run(&load).expect("the load runs");
    assert_eq!((counts.counters.user_bytes_written, counts.repetitions), (written, 0));

    // Another mount.
    let other = TestVolume::new(SIZE);
    let second = other.mount("nowriteback");
    let replayed = request_replay::replay(&load, &second.dir, false).expect("replayed");
    assert_eq!((replayed.written_bytes, replayed.syncs, replayed.deletions), (written, 13, 1));
    assert_eq!(user_bytes(&second.dir), written);
    for (path, ino) in &inos {
        let len = |path: &Path| fs::metadata(path).expect("a file").len();
        assert_eq!(len(&second.dir.join(ino.to_string())), len(path));
    }
    second.unmount();
    mount.unmount();
    other.check();
    volume.check();
}

/// Asserts a failure with one line that gives `reason`.
fn expect_failure(output: &Output, reason: &str) {
    let said = stderr(output);
    assert!(!output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.starts_with("sfs-ctl: ") && said.contains(reason), "'{reason}': {said}");
}

#[test]
fn mounted_volumes_are_not_traced_onto_themselves() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let scratch = volume.scratch.path();
    let run = |file: &Path, more: &[&str]| {
        let mut command = sfs_ctl_trace(&mount.dir, file, &["--seconds", "1"]);
        command.args(more).output().expect("sfs-ctl runs")
    };
    let inside = mount.dir.join("trace");
    expect_failure(&run(&inside, &[]), "is on the traced volume");
    assert!(!inside.exists(), "the file was made");
    fs::write(&inside, b"content").expect("writing");
    expect_failure(&run(&inside, &["-f"]), "is on the traced volume");
    symlink(&inside, scratch.join("link")).expect("a link");
    for arguments in [&["-f"][..], &[]] {
        let output = run(&scratch.join("link"), arguments);
        assert!(!output.status.success(), "{}", stderr(&output));
    }
    let to_output = sfs_ctl_trace(&mount.dir, Path::new("-"), &["--seconds", "1"])
        .stdout(File::options().write(true).open(&inside).expect("the file"))
        .output();
    expect_failure(&to_output.expect("sfs-ctl runs"), "is on the traced volume");
    assert_eq!(fs::read(&inside).expect("the file"), b"content");
    let file = scratch.join("trace");
    fs::write(&file, b"content").expect("writing");
    expect_failure(&run(&file, &[]), "exists; -f overwrites it");
    expect_failure(&run(&scratch.join("missing/trace"), &[]), "No such file");
    let on_device = sfs_ctl_trace(scratch, &scratch.join("other"), &[]).output();
    expect_failure(&on_device.expect("sfs-ctl runs"), "not a mount point");
    assert!(run(&file, &["-f"]).status.success());
    assert!(fs::read(&file).expect("the trace").starts_with(b"# sfs-trace 1\n"));
    mount.unmount();
}

#[test]
fn mounted_recordings_end_with_their_client_and_the_mount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let path = |name: &str| volume.scratch.path().join(name);
    let mut first = record(&mount.dir, &path("first"), &[]);
    let again = sfs_ctl_trace(&mount.dir, &path("second"), &[]).output().expect("sfs-ctl runs");
    expect_failure(&again, "is being traced already");
    assert!(!path("second").exists(), "an empty file is left");
    first.kill().and_then(|()| first.wait()).expect("the recording goes on");
    // The daemon notices that nobody reads any more.
    wait_until("another recording is possible", || {
        let one = sfs_ctl_trace(&mount.dir, &path("third"), &["--seconds", "1", "-f"]).output();
        one.expect("sfs-ctl runs").status.success()
    });
    let bounded = record(&mount.dir, &path("fourth"), &["--names", "--size-max", "8K"]);
    for file in 0..1000 {
        fs::write(mount.dir.join(format!("name{file}")), b"content").expect("writing");
    }
    let output = bounded.wait_with_output().expect("the recording ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("largest size"), "{said}{}", stderr(&output));
    assert!(fs::metadata(path("fourth")).expect("the trace").len() <= 8 << 10);
    let text = fs::read_to_string(path("fourth")).expect("the trace");
    assert!(text.contains(",create,") && text.contains(",name7\n"), "{text}");
    RequestLoad::open(&path("fourth")).expect("a trace");
    let last = record(&mount.dir, &path("fifth"), &["--json"]);
    mount.unmount();
    let output = last.wait_with_output().expect("the recording ends");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcome["ended_by"], "unmount", "{outcome}");
    let load = RequestLoad::open(&path("fifth")).expect("a trace");
    assert!(load.end.is_some(), "the trace has an end");
    volume.check();
}

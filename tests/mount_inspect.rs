//! Looking inside a mounted volume, and work that is asked for: `sfs-ctl hot`, `file`, `clean`, `trim`, `checkpoint`, `scrub`.
//!
//! The output of the programs is compared with counts that were made independently: by the load of the test, by the
//! content of the device, by sfs-fsck, and by the kernel's counters of a loop device.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::{TestVolume, can_mount, copy_program, stderr};
use serde_json::Value;
use sfs_testkit::{SeededRng, wait_until};

const SIZE: &str = "64M";
const BLOCK: u64 = 4096;

/// User ID of "nobody".
const NOBODY: u32 = 65_534;

fn ctl(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.args(arguments).arg(path).output().expect("sfs-ctl runs")
}

/// Returns the object that a command prints.
fn json(arguments: &[&str], path: &Path) -> Value {
    let output = ctl(&[arguments, &["--json"]].concat(), path);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Asserts a failure with `status`, and one line that gives `reason`.
fn expect_failure(output: &Output, status: i32, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sfs-ctl: ") && said.contains(reason), "'{reason}': {said}");
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// Writes `bytes` at `offset`, durably.
fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.expect("the file opens");
    file.write_all_at(bytes, offset).expect("writing");
    file.sync_all().expect("a sync");
}

/// Returns the sectors that the kernel has counted for a block device, as bytes: the number `at` of its statistics.
fn kernel_bytes(device: &Path, at: usize) -> u64 {
    let name = device.file_name().expect("a device").to_str().expect("UTF-8");
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a block device");
    let sectors = stat.split_whitespace().nth(at).and_then(|word| word.parse::<u64>().ok());
    sectors.expect("a number") * 512
}

/// The runs that are printed lead to the content of the file, on the mounted volume and on the device.
#[test]
fn mounted_files_are_where_their_map_says() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let path = mount.dir.join("a file");
    let content = SeededRng::new(1).bytes(600_000);
    write_at(&path, 0, &content);
    write_at(&path, 300 * BLOCK, &content[..10_000]);
    for block in [3, 7, 8, 100] {
        write_at(&path, block * BLOCK, &[block as u8; 4096]);
    }
    let allocated = Command::new("fallocate").args(["-o", "2M", "-l", "40960"]).arg(&path).status();
    let has_reserved = allocated.is_ok_and(|status| status.success());
    File::open(&path).and_then(|file| file.sync_all()).expect("a sync");
    let map = json(&["file"], &path);
    assert_eq!(number(&map, "inode"), fs::metadata(&path).expect("the file").ino());
    let size = fs::metadata(&path).expect("the file").len();
    assert_eq!((number(&map, "size_bytes"), &map["inline"]), (size, &Value::Bool(false)));
    let mut expected = fs::read(&path).expect("the file reads");
    expected.resize(expected.len().next_multiple_of(4096), 0);
    let image = File::open(&volume.device).expect("the image");
    let runs = map["runs"].as_array().expect("runs");
    let (mut blocks, mut taken) = (0, vec![false; expected.len() / 4096]);
    for run in runs {
        let (offset, count) = (number(run, "offset_bytes"), number(run, "blocks"));
        let mut found = vec![0; (count * BLOCK) as usize];
        image.read_exact_at(&mut found, number(run, "address") * BLOCK).expect("the image");
        assert!(found == expected[offset as usize..][..found.len()], "{run}");
        assert!(matches!(run["state"].as_str(), Some("open" | "sealed")), "{run}");
        assert!(number(run, "group") > 0, "data is in a group: {run}");
        blocks += count;
        taken[(offset / BLOCK) as usize..][..count as usize].fill(true);
    }
    assert_eq!(number(&map, "blocks"), blocks);
    assert_eq!(blocks, 147 + 3, "600,000 bytes, and 10,000 apart");
    assert_eq!(number(&map, "run_count"), runs.len() as u64);
    assert_eq!(number(&map, "mean_run_bytes"), blocks * BLOCK / runs.len() as u64);
    // Four rewritten places break at least seven of 148 neighbourhoods.
    let fragmentation = map["fragmentation"].as_f64().expect("a share");
    assert!((7.0 / 148.0..0.5).contains(&fragmentation), "{fragmentation}");
    let length = |ranges: &Value| -> u64 {
        ranges.as_array().expect("ranges").iter().map(|range| number(range, "length_bytes")).sum()
    };
    let reserved = length(&map["preallocated"]);
    assert_eq!(reserved, if has_reserved { 40_960 } else { 0 });
    let unmapped = taken.iter().filter(|taken| !**taken).count() as u64 * BLOCK;
    let tail = taken.len() as u64 * BLOCK - size;
    assert_eq!(
        length(&map["holes"]),
        unmapped - reserved - tail * u64::from(!taken[taken.len() - 1])
    );

    let text = String::from_utf8(ctl(&["file", "-v"], &path).stdout).expect("UTF-8");
    assert!(text.lines().count() > runs.len() && text.contains("of neighbouring blocks are apart"));
    let by_inode = json(&["file", "--inode", &map["inode"].to_string()], &mount.dir);
    assert_eq!(by_inode["runs"], map["runs"]);
    fs::write(mount.dir.join("tiny"), b"inline").expect("writing");
    File::open(mount.dir.join("tiny")).and_then(|file| file.sync_all()).expect("a sync");
    let tiny = json(&["file"], &mount.dir.join("tiny"));
    assert_eq!((&tiny["inline"], number(&tiny, "blocks")), (&Value::Bool(true), 0));

    expect_failure(&ctl(&["file"], &mount.dir), 1, "is a directory");
    expect_failure(&ctl(&["file"], &mount.dir.join("missing")), 1, "No such file");
    expect_failure(&ctl(&["file"], Path::new("/proc/version")), 32, "not on an SFS volume");
    expect_failure(&ctl(&["file"], &volume.device), 32, "not on an SFS volume");
    expect_failure(&ctl(&["file", "--inode", "999"], &mount.dir), 1, "no file with inode 999");
    let device = volume.device.to_str().expect("UTF-8").to_owned();
    expect_failure(&ctl(&["file", "--device", &device], Path::new("/tiny")), 32, "is mounted on");
    mount.unmount();
    let later = json(&["file", "--device", &device], Path::new("/a file"));
    assert_eq!((&later["inode"], &later["blocks"]), (&map["inode"], &map["blocks"]));
    expect_failure(&ctl(&["file", "--device", &device], Path::new("/none")), 1, "not found");
    expect_failure(&ctl(&["file", "--device", &device], Path::new("/")), 1, "is a directory");
    volume.check();
}

/// Files with known numbers of writes, mounted and unmounted.
#[test]
fn mounted_files_are_ranked_by_what_was_written_to_them() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("policy=sfs-fast12");
    fs::create_dir(mount.dir.join("dir")).expect("a directory");
    let mut written = BTreeMap::new();
    for file in 0..12_u64 {
        let name = format!("{}file-{file}", if file % 2 == 0 { "dir/" } else { "" });
        let path = mount.dir.join(&name);
        // File n has n + 2 blocks, and is written whole (n * 5 % 12) + 1 times.
        for round in 0..=file * 5 % 12 {
            write_at(&path, 0, &vec![round as u8; ((file + 2) * BLOCK) as usize]);
        }
        written.insert(format!("/{name}"), (file * 5 % 12 + 1) * (file + 2) * BLOCK);
    }
    let hostile = mount.dir.join("a\u{1b}[2Jb");
    for _ in 0..30 {
        write_at(&hostile, 0, &[1; 200_000]);
    }
    written.insert("/a\\u{1b}[2Jb".into(), 30 * 49 * BLOCK);
    let compare = |report: &Value| {
        assert_eq!((number(report, "version"), number(report, "files")), (1, 13));
        assert_eq!(number(report, "written_bytes"), written.values().sum::<u64>());
        let most = report["most_written_files"].as_array().expect("files");
        let seen: Vec<(String, u64)> = most
            .iter()
            .map(|file| {
                (file["path"].as_str().expect("a path").to_owned(), number(file, "written_bytes"))
            })
            .collect();
        let mut all: Vec<(String, u64)> = written.clone().into_iter().collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let bytes = |files: &[(String, u64)]| files.iter().map(|file| file.1).collect::<Vec<_>>();
        assert_eq!(bytes(&seen), bytes(&all[..5]));
        assert!(seen.iter().all(|(path, bytes)| written[path] == *bytes), "{seen:?}");
        let hottest = &report["hottest_files"][0];
        assert_eq!(hottest["path"], "/a\\u{1b}[2Jb", "{report}");
        // The file that was written 30 times has two ranges, of 32 and 17 blocks.
        let ranges = &report["hottest_ranges"].as_array().expect("ranges")[..2];
        let mapped: u64 = ranges.iter().map(|range| number(range, "mapped_bytes")).sum();
        assert_eq!(mapped, 49 * BLOCK);
        for range in ranges {
            assert_eq!(range["path"], "/a\\u{1b}[2Jb", "{range}");
            let mean = range["mean_writes"].as_f64().expect("a mean");
            assert!((mean - 30.0).abs() < 1e-9, "{range}");
        }
    };
    compare(&json(&["hot", "--top", "5"], &mount.dir));
    let text = ctl(&["hot"], &mount.dir);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(!text.contains('\u{1b}') && text.contains("Most written files"), "{text}");
    expect_failure(&ctl(&["hot", "--top", "0"], &mount.dir), 1, "0");
    mount.unmount();
    compare(&json(&["hot", "--top", "5"], &volume.device));
    volume.check();
}

#[test]
fn mounted_volumes_clean_trim_and_write_checkpoints_when_asked() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let mount = volume.mount("nodiscard");
    let files: Vec<_> = (0..12).map(|n| mount.dir.join(format!("{n}"))).collect();
    for round in 0..60_u64 {
        for file in &files {
            write_at(file, round * 10_000, &[round as u8; 10_000]);
        }
    }
    files.iter().step_by(2).for_each(|file| fs::remove_file(file).expect("removing"));
    let written = |command: &[&str]| {
        rustix::fs::sync();
        let before = kernel_bytes(&volume.device, 6);
        let report = json(command, &mount.dir);
        (report, kernel_bytes(&volume.device, 6) - before)
    };
    // Deletions go on in the background for a moment.
    let (mut checkpoint, mut bytes) = written(&["checkpoint"]);
    wait_until("nothing else is written", || {
        (checkpoint, bytes) = written(&["checkpoint"]);
        number(&checkpoint, "device_bytes") == bytes
    });
    let parts = ["data_bytes", "metadata_bytes", "summary_bytes"];
    assert_eq!(parts.iter().map(|part| number(&checkpoint, part)).sum::<u64>(), bytes);
    let segments = || {
        let numbers = json(&["stat"], &mount.dir);
        let count = |name: &str| number(&numbers["segments"], name);
        (count("clean"), count("sealed"))
    };
    let before = segments();
    let (some, bytes) = written(&["clean", "--segments", "3"]);
    assert_eq!((number(&some, "segments"), number(&some, "device_bytes")), (3, bytes), "{some}");
    let (all, bytes) = written(&["clean"]);
    assert_eq!(number(&all, "device_bytes"), bytes, "{all}");
    let after = segments();
    assert_eq!(number(&all, "clean_segments_after"), after.0);
    assert_eq!(all["is_exhausted"], true);
    assert!(after.0 > before.0 + 4 && number(&all, "segments") > 4, "{before:?} {after:?} {all}");
    let again = json(&["clean"], &mount.dir);
    assert!(number(&again, "segments") <= 1, "nothing is left to clean: {again}");
    assert!(number(&again, "device_bytes") < 1 << 20, "and nothing is worn: {again}");

    let discarded = kernel_bytes(&volume.device, 13);
    let trimmed = json(&["trim"], &mount.dir);
    let segment = number(&json(&["stat"], &mount.dir)["segments"], "blocks") * BLOCK;
    assert_eq!(number(&trimmed, "discarded_bytes"), after.0 * segment);
    assert_eq!(kernel_bytes(&volume.device, 13) - discarded, after.0 * segment);

    for command in ["clean", "trim", "checkpoint"] {
        expect_failure(&ctl(&[command], &volume.scratch.path().join("image")), 32, "not mounted");
    }
    let frozen = json(&["freeze"], &mount.dir);
    assert_eq!(frozen["frozen"], true);
    for command in ["clean", "trim", "checkpoint"] {
        expect_failure(&ctl(&[command], &mount.dir), 32, "is frozen; thaw it first");
    }
    assert_eq!(json(&["thaw"], &mount.dir)["frozen"], false);
    for (n, file) in files.iter().enumerate().skip(1).step_by(2) {
        let content = fs::read(file).expect("the file reads");
        assert!(
            content.chunks(10_000).zip(0..60).all(|(part, byte)| part.iter().all(|b| *b == byte)),
            "{n}"
        );
    }
    mount.unmount();
    volume.check();
}

/// Waits for the end of the scrub, and returns its report.
fn scrubbed(path: &Path) -> Value {
    let mut report = Value::Null;
    wait_until("the scrub ends", || {
        let output = ctl(&["scrub", "status", "--json"], path);
        report = serde_json::from_slice(&output.stdout).expect("JSON");
        report["state"] == "done" && report["is_named"] == true
    });
    report
}

#[test]
fn mounted_volumes_are_scrubbed_and_the_damaged_files_are_named() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    expect_failure(&ctl(&["scrub", "stop"], &mount.dir), 32, "no scrub is running");
    assert_eq!(json(&["scrub", "status"], &mount.dir)["state"], "never");
    let mut random = SeededRng::new(4);
    for file in 0..30 {
        write_at(&mount.dir.join(format!("file-{file}")), 0, &random.bytes(40_000 + file * 3000));
    }
    json(&["checkpoint"], &mount.dir);
    // A volume at rest: the report equals the recount of sfs-fsck's reader.
    let sound = json(&["scrub", "start", "--wait", "--rate", "0"], &mount.dir);
    assert_eq!((&sound["state"], number(&sound, "damage_count")), (&"done".into(), 0));
    let data: u64 = (0..30).map(|file: u64| (40_000 + file * 3000).div_ceil(BLOCK)).sum();
    assert_eq!(number(&sound, "data_blocks"), data);
    let live = number(&sound, "data_blocks") + number(&sound, "node_blocks");
    assert_eq!(number(&sound, "live_blocks"), live);

    let victim = mount.dir.join("file-7");
    let map = json(&["file"], &victim);
    let address = number(&map["runs"][0], "address") + 2;
    let image = OpenOptions::new().read(true).write(true).open(&volume.device).expect("the image");
    image.write_all_at(&[0xa5; 100], address * BLOCK + 77).expect("damage");
    let found = ctl(&["scrub", "start", "--wait", "-r", "0", "--json"], &mount.dir);
    expect_failure(&found, 4, "1 damaged places");
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let place = &found["damage"][0];
    assert_eq!((&place["kind"], number(place, "at")), (&"data".into(), address));
    assert_eq!((&place["path"], number(place, "offset_bytes")), (&"/file-7".into(), 2 * BLOCK));
    let status = ctl(&["scrub", "status"], &mount.dir);
    expect_failure(&status, 4, "1 damaged places");
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.contains("data: /file-7 at offset 8192"), "{text}");
    let errors = json(&["stat"], &mount.dir)["errors"].clone();
    assert_eq!((&errors[0]["kind"], number(&errors[0], "count")), (&"data".into(), 1), "{errors}");
    assert_eq!(fs::read(mount.dir.join("file-8")).expect("a sound file").len(), 64_000);
    mount.unmount();

    // Unmounted, in the foreground; nothing is repaired, and the image does not change.
    let before = fs::read(&volume.device).expect("the image");
    let here = ctl(&["scrub", "start", "--foreground", "--rate", "0", "--json"], &volume.device);
    expect_failure(&here, 4, "1 damaged places");
    let here: Value = serde_json::from_slice(&here.stdout).expect("JSON");
    assert_eq!(here["damage"], found["damage"]);
    assert!(fs::read(&volume.device).expect("the image") == before, "the image has changed");
    expect_failure(&ctl(&["scrub", "start"], &volume.device), 32, "--foreground");
    expect_failure(&ctl(&["scrub", "status"], &volume.device), 32, "is not mounted");
}

/// A slow scrub is stopped, resumed, and ended by the unmount, which does not wait; its position outlives the mount.
#[test]
fn mounted_scrubs_are_stopped_resumed_and_outlived_by_their_position() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    for file in 0..20_u64 {
        write_at(&mount.dir.join(format!("{file}")), 0, &SeededRng::new(file).bytes(1 << 20));
    }
    json(&["checkpoint"], &mount.dir);
    let slow = json(&["scrub", "start", "--rate", "2M"], &mount.dir);
    assert_eq!((&slow["state"], number(&slow, "rate_bytes")), (&"running".into(), 2 << 20));
    expect_failure(&ctl(&["scrub", "start"], &mount.dir), 32, "is running already");
    let data = |report: &Value| number(report, "data_blocks");
    let status = || json(&["scrub", "status"], &mount.dir);
    wait_until("data is verified", || data(&status()) > 100);
    let begun = Instant::now();
    let stopped = json(&["scrub", "stop"], &mount.dir);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(stopped["state"], "stopped");
    assert!(data(&stopped) < 20 * 256 / 2, "at 2 MiB a second it cannot be done: {stopped}");
    let resumed = json(&["scrub", "resume", "--rate", "0"], &mount.dir);
    assert!(data(&resumed) >= data(&stopped));
    let done = scrubbed(&mount.dir);
    assert_eq!((data(&done), number(&done, "damage_count")), (20 * 256, 0), "each block once");

    // The client keeps the position; the unmount ends the scrub at once.
    let state = volume.scratch.path().join("state");
    let mut client = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    client.args(["scrub", "start", "--rate", "1M", "--state"]).arg(&state).arg(&mount.dir);
    let client = client.stderr(std::process::Stdio::piped()).spawn().expect("sfs-ctl runs");
    let first_file = fs::metadata(mount.dir.join("0")).expect("a file").ino();
    wait_until("a position behind the first file is kept", || {
        let kept =
            fs::read(&state).ok().and_then(|kept| serde_json::from_slice::<Value>(&kept).ok());
        let position = kept.and_then(|kept| Some(kept["position"].as_str()?.to_owned()));
        let ino = position.and_then(|position| position.split('-').next()?.parse::<u64>().ok());
        ino.is_some_and(|ino| ino > first_file)
    });
    let begun = Instant::now();
    mount.unmount();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    // Regression: the client asked the daemon of the next mount, which has the same number.
    let other = TestVolume::new("16M");
    let next = other.mount("");
    let ended = client.wait_with_output().expect("the client ends");
    assert_eq!(ended.status.code(), Some(32), "{}", stderr(&ended));
    next.unmount();
    let mount = volume.mount("");
    let state = state.to_str().expect("UTF-8");
    let rest = json(&["scrub", "start", "--rate", "0", "--state", state], &mount.dir);
    assert!(data(&rest) < 20 * 256, "it went on where it was: {rest}");
    assert!(!Path::new(state).exists(), "the scrub is done");
    mount.unmount();
    volume.check();
}

/// Requests of users beside a scrub without a limit are served, and so are clients that die.
#[test]
fn mounted_volumes_serve_users_and_survive_clients_that_die() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    for file in 0..16_u64 {
        write_at(&mount.dir.join(format!("{file}")), 0, &SeededRng::new(file).bytes(1 << 20));
    }
    let program = env!("CARGO_BIN_EXE_sfs-ctl");
    for round in 0..6_u64 {
        let commands: [&[&str]; 3] =
            [&["clean"], &["hot"], &["scrub", "start", "--wait", "-r", "0"]];
        for command in commands {
            let mut client = Command::new(program);
            client.args(command).arg(&mount.dir).stdout(std::process::Stdio::null());
            client.stderr(std::process::Stdio::null());
            let mut client = client.spawn().expect("sfs-ctl runs");
            write_at(&mount.dir.join(format!("{round}")), round * 5000, &[round as u8; 50_000]);
            client.kill().expect("the client was started");
            client.wait().expect("the client ends");
        }
    }
    let begun = Instant::now();
    assert!(ctl(&["stat"], &mount.dir).status.success());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_volumes_do_nothing_for_other_users() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = volume.mount("allow_other");
    fs::set_permissions(&mount.dir, Permissions::from_mode(0o755)).expect("the mode of the root");
    let secret = mount.dir.join("secret");
    write_at(&secret, 0, &[1; 10_000]);
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("the mode of the file");
    fs::set_permissions(volume.scratch.path(), Permissions::from_mode(0o755)).expect("a mode");
    let program = volume.scratch.path().join("sfs-ctl");
    copy_program(env!("CARGO_BIN_EXE_sfs-ctl").as_ref(), &program);
    let as_nobody = |arguments: &[&str], path: &Path| {
        let mut command = Command::new(&program);
        command.args(arguments).arg(path).uid(NOBODY).gid(NOBODY).output().expect("it runs")
    };
    let before = json(&["stat"], &mount.dir)["mount"]["counters"].clone();
    let commands: [&[&str]; 9] = [
        &["hot"],
        &["file", "--inode", "16"],
        &["clean"],
        &["trim"],
        &["checkpoint"],
        &["scrub", "start"],
        &["scrub", "status"],
        &["scrub", "stop"],
        &["scrub", "resume"],
    ];
    for command in commands {
        let refused = as_nobody(command, &mount.dir);
        expect_failure(&refused, 32, "only root and the user who mounted it may query it");
        assert!(refused.stdout.is_empty(), "{command:?}");
    }
    // Even a file that the user may read.
    expect_failure(&as_nobody(&["file"], &secret), 32, "only root and the user who mounted it");
    let after = json(&["stat"], &mount.dir)["mount"]["counters"].clone();
    assert_eq!(
        (&before["checkpoints"], &before["segments_cleaned"]),
        (&after["checkpoints"], &after["segments_cleaned"])
    );
    assert_eq!(json(&["scrub", "status"], &mount.dir)["state"], "never");
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_read_only_volumes_are_looked_at_and_not_changed() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::placed("32M", "greedy-space");
    let mount = volume.mount("");
    write_at(&mount.dir.join("file"), 0, &[1; 100_000]);
    let scrub = json(&["scrub", "start", "-w", "-r", "0"], &mount.dir);
    assert_eq!((number(&scrub, "data_blocks"), number(&scrub, "unverified_blocks")), (0, 25));
    let states = json(&["file"], &mount.dir.join("file"));
    assert_eq!(states["runs"][0]["state"], "placed");
    mount.unmount();
    let before = fs::read(&volume.device).expect("the image");
    let mount = volume.mount("ro");
    for command in ["clean", "trim", "checkpoint"] {
        expect_failure(&ctl(&[command], &mount.dir), 32, "is mounted read-only");
    }
    assert_eq!(number(&json(&["hot"], &mount.dir), "written_bytes"), 25 * BLOCK);
    json(&["scrub", "start", "-w", "-r", "0"], &mount.dir);
    mount.unmount();
    assert!(fs::read(&volume.device).expect("the image") == before, "the image has changed");
}

/// The unit files are checked by systemd where it is installed, and their commands by the program's own parser.
#[test]
fn unit_files_name_commands_that_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let service = fs::read_to_string(folder.join("sfs-scrub@.service")).expect("a service");
    let timer = fs::read_to_string(folder.join("sfs-scrub@.timer")).expect("a timer");
    for text in [&service, &timer] {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let is_section = line.starts_with('[') && line.ends_with(']');
            assert!(is_section || line.contains('='), "{line}");
        }
    }
    let commands: Vec<&str> = service
        .lines()
        .filter_map(|line| line.split_once('=').filter(|(name, _)| name.starts_with("Exec")))
        .map(|(_, command)| command.trim_start_matches('-'))
        .collect();
    assert_eq!(commands.len(), 2);
    let scratch = tempfile::tempdir().expect("a directory");
    for command in commands {
        let command = command.replace("%S", "/nonexistent").replace("%i", "x");
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!((words[0], words[words.len() - 1]), ("sfs-ctl", "%f"));
        // The arguments are understood: what is refused is the directory.
        let refused = ctl(&words[1..words.len() - 1], scratch.path());
        expect_failure(&refused, 1, "not a mount point");
    }
    let Ok(verified) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(folder.join("sfs-scrub@.timer"))
        .arg(folder.join("sfs-scrub@.service"))
        .output()
    else {
        return eprintln!("skipped: systemd-analyze is not installed");
    };
    let said = stderr(&verified);
    // The program is not installed where the tests run.
    let is_known = |line: &str| line.contains("sfs-ctl") && line.contains("not");
    let complaints: Vec<&str> =
        said.lines().filter(|line| line.contains("sfs-scrub") && !is_known(line)).collect();
    assert!(complaints.is_empty(), "{said}");
}

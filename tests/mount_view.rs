//! The output of `sfs-ctl segments`, `top` and `report`, compared with independent counts; the terminal of `top`.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_view/in_terminal.rs"]
mod in_terminal;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use clap::Parser;
use harness::{Mount, TestVolume, can_mount, copy_program, sfs_ctl_stat, stderr, transport_used};
use in_terminal::InTerminal;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sfs_device::{Access, FileDevice};
use sfs_fsck::DumpSubject;
use sfs_testkit::{SeededRng, wait_until};

/// User ID of "nobody".
const NOBODY: u32 = 65_534;

/// Columns of a segment that this test compares.
type SegmentColumns = (String, Option<u64>, u64);

fn sfs_ctl(command: &str, path: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    program.arg(command).arg(path).args(arguments).output().expect("sfs-ctl runs")
}

fn output_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&output_of(output)).expect("JSON")
}

fn numbers(path: &Path) -> Value {
    json_of(&sfs_ctl_stat(path, &["--json"]))
}

fn counter(numbers: &Value, name: &str) -> u64 {
    numbers["mount"]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {numbers}"))
}

/// Writes files, overwrites and deletes some of them, and makes everything durable.
fn use_volume(mount: &Mount) {
    let mut random = SeededRng::new(7);
    let mut write = |no: u32, len: usize| {
        let mut file = File::create(mount.dir.join(no.to_string())).expect("creating");
        file.write_all(&random.bytes(len)).and_then(|()| file.sync_all()).expect("writing");
    };
    (0..12).for_each(|no| write(no, 700_000));
    for no in [2, 5, 7] {
        fs::remove_file(mount.dir.join(no.to_string())).expect("removing");
    }
    write(3, 400_000);
}

/// Returns state, group and live blocks of each segment.
fn columns(report: &Value) -> Vec<SegmentColumns> {
    let segments = report["segments"].as_array().expect("the segments");
    let column = |(no, segment): (usize, &Value)| {
        assert_eq!(segment["segment"], no, "{segment}");
        let state = segment["state"].as_str().expect("a state").to_owned();
        (state, segment["group"].as_u64(), segment["live_blocks"].as_u64().expect("a number"))
    };
    segments.iter().enumerate().map(column).collect()
}

/// Returns state, group and live blocks of each segment as `sfs-fsck` reads them from the device.
fn columns_by_fsck(device: &Path, count: usize) -> Vec<SegmentColumns> {
    let device = FileDevice::open(device, Access::ReadOnly).expect("the device opens");
    let of_segment = |no: usize| {
        let dump = sfs_fsck::dump(&device, &DumpSubject::Segment(no as u32)).expect("a segment");
        let usage = &dump["usage"];
        let state = usage["state"].as_str().expect("a state").to_lowercase();
        // Drained segments of a checkpoint are Clean when a mount reads it.
        let state = if state == "drained" { "clean".into() } else { state };
        let group = usage["group"].as_u64().filter(|_| state == "open" || state == "sealed");
        (state, group, usage["live_blocks"].as_u64().expect("a number"))
    };
    (0..count).map(of_segment).collect()
}

/// Compares the views of the segments with each other, once they are of one moment: the daemon may write by itself between them.
fn compare_views(dir: &Path) {
    let of_segments = |numbers: &Value| (numbers["segments"].clone(), numbers["groups"].clone());
    let (stat, all, text, rows) = loop {
        let before = numbers(dir);
        let mounted = json_of(&sfs_ctl("segments", dir, &["--json"]));
        let text = output_of(&sfs_ctl("segments", dir, &[]));
        let rows = output_of(&sfs_ctl("segments", dir, &["--state", "sealed", "--sort", "live"]));
        if of_segments(&before) == of_segments(&numbers(dir)) {
            break (before, columns(&mounted), text, rows);
        }
    };
    for state in ["clean", "open", "sealed", "drained", "bad", "placed"] {
        let count = all.iter().filter(|(of, _, _)| of == state).count() as u64;
        assert_eq!(stat["segments"][state], count, "{state}");
    }
    for group in stat["groups"].as_array().expect("groups") {
        let of_group = all.iter().filter(|(_, of, _)| of == &group["group"].as_u64());
        assert_eq!(group["live_blocks"], of_group.clone().map(|(_, _, live)| live).sum::<u64>());
        assert_eq!(group["segments"], of_group.count() as u64, "{group}");
    }
    let sealed = all.iter().filter(|(state, _, _)| state == "sealed").count();
    let line = text.lines().next().is_some_and(|line| line.contains(&format!("{sealed} sealed")));
    assert!(line, "{text}");
    assert_eq!(rows.lines().count(), 2 + sealed);
}

#[test]
fn mounted_segments_agree_with_an_independent_reader() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    use_volume(&mount);
    compare_views(&mount.dir);
    mount.unmount();
    let unmounted = json_of(&sfs_ctl("segments", &volume.device, &["--json"]));
    let all = columns(&unmounted);
    assert!(
        all.iter()
            .any(|(state, group, _)| state == "sealed" && group.is_some_and(|group| group > 0))
    );
    assert_eq!(all, columns_by_fsck(&volume.device, all.len()));
    let live: u64 = all.iter().map(|(_, _, live)| live).sum();
    assert_eq!(live * 4096, volume.check().used_bytes);
    // Data that was written has an age, in ticks of a block here.
    let data = unmounted["segments"].as_array().expect("segments").iter();
    for segment in
        data.filter(|segment| segment["group"].as_u64() > Some(0) && segment["live_blocks"] != 0)
    {
        assert!(segment["modified"].as_u64() <= unmounted["now"].as_u64(), "{segment}");
        assert!(segment["hotness"].as_f64() > Some(0.0), "{segment}");
    }
}

/// Returns the latencies of an operation: number, and microseconds of p50, p99, the longest and all together.
fn latency(numbers: &Value, operation: &str) -> [u64; 5] {
    let all = numbers["latencies"].as_array().expect("latencies");
    let found = all.iter().find(|latency| latency["operation"] == operation);
    let fields = ["count", "p50_us", "p99_us", "longest_us", "total_us"];
    fields.map(|field| found.map_or(0, |latency| latency[field].as_u64().expect(field)))
}

#[test]
fn mounted_latencies_count_every_request() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("writeback=off");
    let file = File::create(mount.dir.join("file")).expect("creating");
    let before = numbers(&mount.dir);
    let begun = Instant::now();
    const WRITES: u64 = 300;
    const SYNCS: u64 = 40;
    for no in 0..WRITES {
        file.write_all_at(&[7; 4096], no * 4096).expect("writing");
    }
    for no in 0..SYNCS {
        file.write_all_at(&[8; 10], no * 4096).expect("writing");
        file.sync_all().expect("a sync");
    }
    let micros = begun.elapsed().as_micros() as u64 + 1;
    let after = numbers(&mount.dir);
    for (operation, expected) in [("write", WRITES + SYNCS), ("fsync", SYNCS), ("create", 0)] {
        let (before, now) = (latency(&before, operation), latency(&after, operation));
        assert_eq!(now[0] - before[0], expected, "{operation}: {after}");
        let [_, p50, p99, longest, total] = now;
        assert!(
            0 < p50 && p50 <= p99 && p99 <= longest && longest <= total,
            "{operation}: {now:?}"
        );
        assert!(total - before[4] <= micros, "{operation}: {now:?} in {micros} us");
    }
    assert_eq!(latency(&after, "create")[0], 1);
    // The kernel asks for names, and lists directories, however it is connected.
    let _ = fs::read_dir(&mount.dir).expect("a listing").count();
    assert!(fs::metadata(mount.dir.join("absent")).is_err());
    let last = numbers(&mount.dir);
    assert!(latency(&last, "readdir")[0] > 0, "{}: {last}", transport_used());
    assert!(latency(&last, "lookup")[0] > latency(&after, "lookup")[0], "{last}");
    for latency in last["latencies"].as_array().expect("latencies") {
        let octaves = latency["octaves"].as_array().expect("octaves").iter();
        assert_eq!(octaves.filter_map(Value::as_u64).sum::<u64>(), latency["count"], "{latency}");
    }
    drop(file);
    mount.unmount();
    assert_eq!(numbers(&volume.device)["latencies"], serde_json::json!([]));
}

#[test]
fn mounted_cleanings_agree_with_the_counters() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let mut random = SeededRng::new(5);
    let path = mount.dir.join("file");
    fs::write(&path, random.bytes(40 << 20)).expect("writing");
    let file = OpenOptions::new().write(true).open(&path).expect("opening");
    let mut last = numbers(&mount.dir);
    for _ in 0..60 {
        for _ in 0..150 {
            let block = random.below((40 << 20) / 4096);
            file.write_all_at(&random.bytes(4096), block * 4096).expect("overwriting");
        }
        file.sync_all().expect("a sync");
        last = numbers(&mount.dir);
        if counter(&last, "segments_cleaned") >= 5 {
            break;
        }
    }
    drop(file);
    assert!(counter(&last, "segments_cleaned") > 0, "{last}");
    let mut rounds = Vec::new();
    wait_until("the counters rest", || {
        let last = numbers(&mount.dir);
        rounds = last["cleanings"].as_array().expect("cleanings").clone();
        let sum =
            |field: &str| rounds.iter().filter_map(|round| round[field].as_u64()).sum::<u64>();
        // A round counts when it ends, its bytes when they are written.
        rounds.len() == 32
            || sum("victims") == counter(&last, "segments_cleaned")
                && sum("moved_bytes") == counter(&last, "cleaning_bytes")
    });
    for round in &rounds {
        let freed = round["freed_bytes"].as_u64().expect("a number");
        let victims = round["victims"].as_u64().expect("a number");
        assert!(freed <= victims * (1 << 20), "{round}");
        assert!(round["secs_ago"].as_u64() < Some(600) && round["millis"].is_u64(), "{round}");
    }
    mount.unmount();
}

#[test]
fn mounted_volumes_are_shown_once_as_text() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    use_volume(&mount);
    let once = ["--once", "--interval", "0.1", "--columns", "80", "--lines", "24"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let command = command.arg("top").arg(&mount.dir).args(once).env("LANG", "C.UTF-8");
    let text = output_of(&command.output().expect("sfs-ctl runs"));
    assert!(!text.contains('\u{1b}'), "colours in a file: {text}");
    assert_eq!(text.lines().count(), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let count = numbers(&mount.dir)["segments"].clone();
    let states = ["clean", "open", "sealed", "drained", "bad", "placed"];
    let all: u64 = states.iter().filter_map(|state| count[state].as_u64()).sum();
    assert!(text.contains(&format!("Map of {all} segments")), "{text}");
    for part in ["GOOD", "Wear", "Now", "Programs write", "Requests", "write", "fsync", "Hotness"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let picture = output_of(&sfs_ctl("top", &mount.dir, &["--svg", "--interval", "0.1"]));
    assert!(picture.starts_with("<svg ") && picture.contains("GOOD"), "{picture}");
    mount.unmount();
    let refused = sfs_ctl("top", &volume.device, &["--once"]);
    assert_eq!(refused.status.code(), Some(32));
    assert!(stderr(&refused).contains("is not mounted; 'sfs-ctl report'"), "{}", stderr(&refused));
}

#[test]
fn mounted_volumes_are_shown_in_a_terminal_until_a_key_or_signal() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    use_volume(&mount);
    let scratch = volume.scratch.path();
    let mut view = InTerminal::start(&mount, scratch, "key");
    view.wait_for("Health");
    view.press("s");
    view.wait_for("sort: per s");
    view.press("h");
    view.wait_for("amplification is");
    view.press("hp");
    view.wait_for("PAUSED");
    view.press("q");
    let (status, _) = view.end();
    assert_eq!(status, Some(0));

    let view = InTerminal::start(&mount, scratch, "signal");
    view.wait_for("Health");
    kill_process(view.program, Signal::TERM).expect("the program runs");
    let (status, _) = view.end();
    assert_eq!(status, Some(128 + 15), "the signal ends the program");

    let view = InTerminal::start(&mount, scratch, "unmount");
    view.wait_for("Health");
    let dir = mount.dir.clone();
    mount.unmount();
    let (status, rest) = view.end();
    assert_eq!(status, Some(32), "{rest}");
    let line = format!("sfs-ctl: {}: was unmounted", dir.display());
    assert!(rest.contains(&line) && rest.matches("sfs-ctl:").count() == 1, "{rest}");
}

/// Returns the number of cells of a report's segment map.
fn cells(page: &str) -> usize {
    let map = page.split("id=\"segment-map\">").nth(1).and_then(|rest| rest.split("</div>").next());
    map.expect("the map").matches("<i ").count()
}

#[test]
fn mounted_and_unmounted_volumes_have_reports() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let image = scratch.path().join("image");
    let label = "</title><script>alert('&')</script>";
    let arguments = ["sfs-mkfs", "--quiet", "--size", "64M", "--label", label];
    let arguments = arguments.into_iter().chain([image.to_str().expect("UTF-8")]);
    sfs_mkfs::make(&sfs_mkfs::MkfsOptions::parse_from(arguments)).expect("a volume");
    let volume = TestVolume::existing(image);
    let mount = volume.mount("");
    use_volume(&mount);
    let file = scratch.path().join("report.html");
    let path = file.to_str().expect("UTF-8");
    assert!(sfs_ctl("report", &mount.dir, &["-o", path]).status.success());
    assert_eq!(fs::metadata(&file).expect("the report").mode() & 0o777, 0o600);
    let again = sfs_ctl("report", &mount.dir, &["-o", path]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("exists; --force overwrites it"), "{}", stderr(&again));
    let page = fs::read_to_string(&file).expect("the report");
    let segments = json_of(&sfs_ctl("segments", &mount.dir, &["--json"]));
    assert_eq!(cells(&page), segments["segments"].as_array().expect("segments").len());
    assert!(page.contains("<h2>Latency</h2>") && page.contains("mounted on "));
    assert!(
        !page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;&amp;&#39;)"),
        "the label"
    );
    mount.unmount();
    let before = fs::read(&volume.device).expect("the image");
    let page = output_of(&sfs_ctl("report", &volume.device, &["--output", "-"]));
    assert!(page.contains("not mounted; made") && !page.contains("<h2>Latency</h2>"));
    assert_eq!(cells(&page), segments["segments"].as_array().expect("segments").len());
    assert!(fs::read(&volume.device).expect("the image") == before, "the image has changed");
}

#[test]
fn mounted_volumes_are_hidden_from_other_users() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = volume.mount("");
    let program = volume.scratch.path().join("sfs-ctl");
    copy_program(env!("CARGO_BIN_EXE_sfs-ctl").as_ref(), &program);
    fs::set_permissions(volume.scratch.path(), Permissions::from_mode(0o755)).expect("the mode");
    for command in [&["segments"][..], &["top", "--once"], &["report", "--output", "-"]] {
        let mut asked = Command::new(&program);
        let asked = asked.args(command).arg(&mount.dir).uid(NOBODY).gid(NOBODY).output();
        let asked = asked.expect("the program runs");
        assert_eq!(asked.status.code(), Some(32), "{command:?}");
        let said = stderr(&asked);
        assert!(said.contains("only root and the user who mounted it may query it"), "{said}");
        assert!(asked.stdout.is_empty(), "{command:?}");
    }
    mount.unmount();
}

#[test]
fn the_daemon_has_nothing_of_the_view() {
    let has_view = |program: &str| {
        let bytes = fs::read(program).expect("the program");
        let has = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
        [&b"sfs_view"[..], b"ratatui"].map(has)
    };
    assert_eq!(has_view(env!("CARGO_BIN_EXE_sfs-ctl")), [true, true]);
    assert_eq!(has_view(env!("CARGO_BIN_EXE_sfs-mount")), [false, false]);
    assert_eq!(has_view(env!("CARGO_BIN_EXE_sfs-umount")), [false, false]);
}

//! The control socket of a mount: its numbers, the users who may read the numbers, and clients
//! that misbehave.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::{Mount, TestVolume, can_mount, copy_program, sfs_ctl_stat, stderr};
use serde_json::Value;
use sfs_testkit::{SeededRng, wait_until};

const SIZE: &str = "64M";
const SECTOR: u64 = 512;

/// User ID of "nobody".
const NOBODY: u32 = 65_534;

/// Returns the numbers that `sfs-ctl stat` prints for the volume at `path`.
fn numbers(path: &Path) -> Value {
    let output = sfs_ctl_stat(path, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn counter(numbers: &Value, name: &str) -> u64 {
    numbers["mount"]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {numbers}"))
}

/// Returns the number of bytes that the kernel has written to a block device.
fn bytes_written(device: &Path) -> u64 {
    let name = device.file_name().expect("a device").to_str().expect("UTF-8");
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a block device");
    let sectors = stat.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
    sectors.expect("a seventh number") * SECTOR
}

/// Asserts a failure with `status`, and one line that gives `reason`.
fn expect_failure(output: &Output, status: i32, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sfs-ctl: ") && said.contains(reason), "'{reason}': {said}");
    assert!(output.stdout.is_empty());
}

/// Returns the path of the control socket of `mount`.
fn socket_of(mount: &Mount) -> PathBuf {
    let number = fs::metadata(&mount.dir).expect("the mount answers").dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Path::new("/run/sfs").join(format!("{major}-{minor}.sock"))
}

#[test]
fn mounted_numbers_agree_with_the_kernels() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let before = bytes_written(&volume.device);
    let mount = volume.mount("");
    let mut random = SeededRng::new(3);
    for round in 0..4_u64 {
        fs::write(mount.dir.join(format!("{}", round % 2)), random.bytes(6 << 20))
            .expect("writing");
        let file = fs::File::open(mount.dir.join("0")).expect("the file was written");
        file.sync_all().expect("a sync");
        // The numbers are compared only if the kernel's number was the same before and after.
        wait_until("nothing is written for a moment", || {
            let kernels = bytes_written(&volume.device) - before;
            let ours = counter(&numbers(&volume.dir), "device_bytes_written");
            let is_quiet = bytes_written(&volume.device) - before == kernels;
            assert!(!is_quiet || ours == kernels, "SFS counts {ours} bytes, the kernel {kernels}");
            is_quiet
        });
    }
    let last = numbers(&mount.dir);
    let parts = [
        "data_bytes",
        "cleaning_bytes",
        "defragmentation_bytes",
        "metadata_bytes",
        "summary_bytes",
    ];
    let sum: u64 = parts.iter().map(|name| counter(&last, name)).sum();
    assert_eq!(sum, counter(&last, "device_bytes_written"), "kinds of bytes: {last}");
    assert!(counter(&last, "user_bytes_written") >= 18 << 20, "{last}");
    assert!(counter(&last, "syncs") >= 4, "{last}");
    mount.unmount();
    let life = numbers(&volume.device)["life"]["counters"].clone();
    assert_eq!(life["mounts"], 1, "{life}");
    assert!(life["device_bytes_written"].as_u64() >= Some(18 << 20), "{life}");
    volume.check();
}

/// Returns the numbers without the times of locks and requests, which every request changes. Every debug build
/// measures the times of locks.
fn without_locks(mut numbers: Value) -> Value {
    let latencies = numbers.as_object_mut().and_then(|numbers| numbers.remove("latencies"));
    assert!(latencies.is_some_and(|latencies| latencies.is_array()), "the latencies of requests");
    let locks = numbers.as_object_mut().and_then(|numbers| numbers.remove("locks"));
    let locks = locks.expect("the times of locks");
    assert!(!cfg!(debug_assertions) || locks[3]["name"] == "LogWriter::state", "{locks}");
    numbers
}

#[test]
fn mounted_and_unmounted_volumes_have_the_same_numbers() {
    if !can_mount() {
        return;
    }
    let (one, two) = (TestVolume::new(SIZE), TestVolume::new("16M"));
    let (mount, other) = (one.mount("rw"), two.mount("ro"));
    fs::write(mount.dir.join("file"), SeededRng::new(1).bytes(3 << 20)).expect("writing");
    fs::File::open(mount.dir.join("file")).and_then(|file| file.sync_all()).expect("a sync");
    let seen = without_locks(numbers(&one.dir));
    assert_eq!(seen["version"], 1);
    assert_eq!(seen["mount_point"].as_str(), one.dir.to_str());
    assert_eq!(seen["read_only"], false);
    assert!(seen["policies"]["placement"].is_string() && seen["policies"]["victims"].is_string());
    let by_device = without_locks(numbers(&one.device));
    assert_eq!(by_device, seen, "the device names the same mount");
    let others = numbers(&two.dir);
    assert_eq!(others["read_only"], true);
    assert_ne!(others["uuid"], seen["uuid"]);
    assert_eq!(counter(&others, "device_bytes_written"), 0);
    assert_eq!(others["mount"]["log_write_amplification"], Value::Null);
    let groups = seen["groups"].as_array().expect("groups");
    assert_eq!(groups[0]["holds"], "metadata");
    let data = groups.iter().filter(|group| group["holds"] == "data");
    let live: u64 = data.filter_map(|group| group["live_blocks"].as_u64()).sum();
    assert!(live >= (3 << 20) / 4096, "{seen}");

    other.unmount();
    mount.unmount();
    let rest = numbers(&one.device);
    assert_eq!((&rest["mount"], &rest["mount_point"]), (&Value::Null, &Value::Null));
    assert_eq!(rest["uuid"], seen["uuid"]);
    assert_eq!(rest["space"]["total_blocks"], seen["space"]["total_blocks"]);
    let text = |arguments: &[&str]| {
        String::from_utf8(sfs_ctl_stat(&one.device, arguments).stdout).expect("UTF-8")
    };
    let all = text(&["-v"]);
    assert!(all.contains(": not mounted") && all.contains("log write amplification"), "{all}");
    let summary = text(&[]);
    assert!(all.starts_with(&summary) && summary.lines().count() < 8, "{summary}");
    for part in ["available of", "% used; 2 files", "no errors recorded", "written by programs"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
}

#[test]
fn numbers_are_of_volumes() {
    let volume = TestVolume::new("16M");
    let before = fs::read(&volume.device).expect("the image");
    let scratch = volume.scratch.path();
    assert!(sfs_ctl_stat(&volume.device, &[]).status.success());
    assert!(fs::read(&volume.device).expect("the image") == before, "the image has changed");
    expect_failure(&sfs_ctl_stat(&scratch.join("missing"), &[]), 1, "No such file");
    expect_failure(&sfs_ctl_stat(scratch, &["--json"]), 1, "not a mount point");
    expect_failure(&sfs_ctl_stat(Path::new("/proc"), &[]), 32, "not an SFS volume");
    expect_failure(&sfs_ctl_stat(Path::new("/dev/null"), &[]), 32, "neither a file nor");
    let noise = scratch.join("noise");
    fs::write(&noise, SeededRng::new(4).bytes(16 << 20)).expect("a file");
    expect_failure(&sfs_ctl_stat(&noise, &[]), 32, "not an SFS volume");
    for arguments in [&["--frobnicate"][..], &["a", "b"]] {
        let named = arguments[arguments.len() - 1];
        expect_failure(&sfs_ctl_stat(Path::new("x"), arguments), 1, named.trim_matches('-'));
    }
}

#[test]
fn mounted_numbers_are_hidden_from_other_users() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = volume.mount("");
    let socket = socket_of(&mount);
    let directory = fs::metadata("/run/sfs").expect("a directory");
    assert_eq!((directory.mode() & 0o777, directory.uid()), (0o700, 0));
    let own = fs::metadata(&socket).expect("a socket");
    assert_eq!(own.mode() & 0o777, 0o600);
    // A directory in which every user may run the program and read the device.
    let program = volume.scratch.path().join("sfs-ctl");
    copy_program(env!("CARGO_BIN_EXE_sfs-ctl").as_ref(), &program);
    fs::set_permissions(&volume.device, Permissions::from_mode(0o644))
        .expect("the mode of the device");
    let ask = |path: &Path| {
        let mut command = Command::new(&program);
        command.arg("stat").arg(path).uid(NOBODY).gid(NOBODY).output().expect("the program runs")
    };
    for path in [&volume.dir, &volume.device] {
        expect_failure(&ask(path), 32, "only root and the user who mounted it may query it");
    }
    mount.unmount();
    // Another test's mount may have received the device number since, and its socket even the same
    // inode.
    let identity = |file: fs::Metadata| (file.ino(), file.ctime(), file.ctime_nsec());
    let now = fs::metadata(&socket).map(identity).ok();
    assert_ne!(now, Some(identity(own)));
}

/// Sends `bytes` to the daemon and returns everything that the daemon answers.
fn say(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    // The daemon may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn mounted_volumes_survive_bad_control_clients() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let socket = socket_of(&mount);
    for nonsense in [&b"\n"[..], b"hello\n", b"\xff\x00\n", b"{\"rest\":1}\n", b"[[[[[[\n"] {
        assert!(say(&socket, nonsense).contains("is unknown to this version"));
    }
    // The daemon closes the connection in the middle, which may cost the client the answer.
    let too_much = say(&socket, &vec![b'['; 1 << 20]);
    assert!(too_much.is_empty() || too_much.contains("is unknown to this version"), "{too_much}");
    assert_eq!(say(&socket, b""), "");
    // A remount request is refused unless mount(8) has remounted before.
    assert!(say(&socket, b"\"rest\"\n").contains("is mounted for writing"));
    assert!(say(&socket, b"{\"allow\":\"cache=1G\"}\n").contains("cannot be changed"));
    // One client asks often and never reads, and many clients never send. These clients occupy the
    // few slots for a while; the volume stays usable.
    let deaf = UnixStream::connect(&socket).expect("the socket listens");
    let _ = (&deaf).write_all(&b"\"status\"\n".repeat(1000));
    let silent: Vec<_> = (0..30).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    let begun = Instant::now();
    fs::write(mount.dir.join("file"), SeededRng::new(2).bytes(1 << 20)).expect("writing");
    fs::File::open(mount.dir.join("file")).and_then(|file| file.sync_all()).expect("a sync");
    assert!(begun.elapsed() < Duration::from_secs(4), "writing took {:?}", begun.elapsed());
    wait_until("a slot is free again", || sfs_ctl_stat(&volume.dir, &[]).status.success());
    drop(silent);
    mount.unmount();
    volume.check();
}

/// An ordinary user mounts, asks for numbers and unmounts; root asks for numbers, too. `/dev/fuse`
/// is open to users in a namespace of this test.
const AS_USER: &str = r#"
    set -e
    mount -t tmpfs tmpfs /mnt; mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse
    mkdir /mnt/user; mount --bind /mnt/user /run/user; mkdir -m 700 /run/user/65534
    chown 65534:65534 /run/user/65534 "$1/mount" "$1/image"
    user="setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR"
    $user "$1/sfs-mount" "$1/image" "$1/mount"
    stat -c "%a %u" /run/user/65534/sfs
    $user "$1/sfs-ctl" stat "$1/mount" | head -1
    "$1/sfs-ctl" stat "$1/mount" | head -1
    $user "$1/sfs-umount" -v "$1/mount"
"#;

#[test]
fn mounted_numbers_are_shown_to_the_mounting_user_and_root() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    for (program, name) in [
        (env!("CARGO_BIN_EXE_sfs-mount"), "sfs-mount"),
        (env!("CARGO_BIN_EXE_sfs-umount"), "sfs-umount"),
        (env!("CARGO_BIN_EXE_sfs-ctl"), "sfs-ctl"),
    ] {
        copy_program(program.as_ref(), &volume.scratch.path().join(name));
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AS_USER, "sh"]).arg(volume.scratch.path());
    let Ok(output) = command.output() else {
        return eprintln!("skipped: unshare is not installed");
    };
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    if ["unshare:", "mknod:", "mkdir:", "mount:", "setpriv"].iter().any(|no| wrong.contains(no)) {
        return eprintln!("skipped: {wrong}");
    }
    assert!(output.status.success(), "{said}{wrong}");
    let line = format!("{}: mounted on {}", volume.device.display(), volume.dir.display());
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["700 65534", &line, &line], "{said}{wrong}");
    assert!(lines[4].contains("everything is on"), "{said}{wrong}");
    volume.check();
}

//! The metrics of a mount: on a Unix socket for root and the mounting user, on a loopback address for everyone, and what
//! clients that misbehave get.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_metrics/prometheus.rs"]
mod prometheus;
#[path = "mount_metrics/users.rs"]
mod users;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{Mount, TestVolume, can_mount, sfs_mount, stderr};
use serde_json::Value;
use sfs::metrics::METRICS;
use sfs_testkit::{SeededRng, wait_until};

const SIZE: &str = "64M";
const SECTOR: u64 = 512;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the path of the socket for the metrics of `mount`.
fn socket_of(mount: &Mount) -> PathBuf {
    let number = fs::metadata(&mount.dir).expect("the mount answers").dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Path::new("/run/sfs").join(format!("{major}-{minor}.metrics"))
}

/// Sends `request`, and returns the response; less of it if the connection is cut.
fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    let _ = stream.write_all(request);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

fn ask_socket(path: &Path) -> String {
    ask(UnixStream::connect(path).expect("the socket listens"), REQUEST)
}

/// Returns the text of a response.
fn body(response: &str) -> &str {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body
}

/// Returns the sum of the samples of a metric.
fn sum(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        (key.split('{').next() == Some(name)).then(|| value.parse::<f64>().expect("a number"))
    });
    values.reduce(|a, b| a + b).unwrap_or_else(|| panic!("no {name}: {text}"))
}

/// Returns the number of bytes that the kernel has written to a block device.
fn bytes_written(device: &Path) -> u64 {
    let name = device.file_name().expect("a device").to_str().expect("UTF-8");
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a block device");
    let sectors = stat.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
    sectors.expect("a seventh number") * SECTOR
}

/// Returns a loopback address that nobody uses.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

fn sfs_ctl(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.args(arguments).arg(path).output().expect("sfs-ctl runs")
}

fn write_and_sync(dir: &Path, bytes: usize) {
    fs::write(dir.join("file"), SeededRng::new(7).bytes(bytes)).expect("writing");
    fs::File::open(dir.join("file")).and_then(|file| file.sync_all()).expect("a sync");
}

#[test]
fn mounted_metrics_agree_with_the_kernels_numbers() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let before = bytes_written(&volume.device);
    let mount = volume.mount("");
    write_and_sync(&mount.dir, 6 << 20);
    let socket = socket_of(&mount);
    let file = fs::metadata(&socket).expect("a socket");
    assert_eq!(file.mode() & 0o777, 0o600);
    wait_until("nothing is written for a moment", || {
        let kernels = bytes_written(&volume.device) - before;
        let response = ask_socket(&socket);
        let ours = sum(body(&response), "sfs_device_written_bytes_total") as u64;
        let is_quiet = bytes_written(&volume.device) - before == kernels;
        assert!(!is_quiet || ours == kernels, "SFS counts {ours} bytes, the kernel {kernels}");
        is_quiet
    });
    let response = ask_socket(&socket);
    let text = body(&response);
    assert!(sum(text, "sfs_user_written_bytes_total") >= f64::from(6 << 20), "{text}");
    let device = format!("device=\"{}\"", volume.device.display());
    let is_sample = |line: &&str| !line.starts_with('#');
    assert!(text.lines().filter(is_sample).all(|line| line.contains(&device)), "{text}");
    assert!(text.contains(&format!("mountpoint=\"{}\"", mount.dir.display())), "{text}");
    let command = sfs_ctl(&["metrics"], &mount.dir);
    let command = String::from_utf8(command.stdout).expect("UTF-8");
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
    };
    assert_eq!(names(&command), names(text), "sfs-ctl prints the same metrics");
    assert!(names(text).len() >= 20, "{text}");
    let json = sfs_ctl(&["metrics", "--json"], &mount.dir).stdout;
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(names(text).len()));
    mount.unmount();
    assert!(fs::symlink_metadata(&socket).map(|now| now.ino()).ok() != Some(file.ino()));
    let unmounted = sfs_ctl(&["metrics"], &volume.device);
    let unmounted = String::from_utf8(unmounted.stdout).expect("UTF-8");
    assert!(sum(&unmounted, "sfs_lifetime_device_written_bytes_total") > f64::from(6 << 20));
    assert!(!unmounted.contains("sfs_user_written_bytes_total"), "{unmounted}");
    volume.check();
}

#[test]
fn mounted_metrics_on_loopback_have_no_names() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let address = free_address();
    let mount = volume.mount(&format!("metrics={address}"));
    fs::write(mount.dir.join("very-secret"), b"words").expect("writing");
    let connect = || TcpStream::connect(address).expect("the mount listens");
    let response = ask(connect(), REQUEST);
    let text = body(&response);
    assert!(sum(text, "sfs_files") >= 2.0, "{text}");
    let own = ask_socket(&socket_of(&mount));
    let label = |name: &str| {
        let (_, rest) = own.split_once(&format!("{name}=\"")).expect("the label");
        rest.split('"').next().expect("a value").to_owned()
    };
    for name in ["device", "mountpoint", "uuid"] {
        let value = label(name);
        assert!(value.len() > 5 && !text.contains(&value), "{name}={value}: {text}");
    }
    for secret in ["device=", "mountpoint=", "uuid=", "secret", "sfs_volume_info", "/dev", "/tmp"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let by_name = b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert!(ask(connect(), by_name).starts_with("HTTP/1.1 421 "));
    // Another mount cannot have the address, and is mounted nevertheless.
    let other = TestVolume::new("16M");
    let second = other.mount(&format!("metrics={address}"));
    second.unmount();
    mount.unmount();
    assert!(TcpStream::connect(address).is_err(), "nobody listens after the end");
}

#[test]
fn mounted_volumes_survive_bad_metrics_clients() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let address = free_address();
    let mount = volume.mount(&format!("metrics={address}"));
    let connect = || TcpStream::connect(address).expect("the mount listens");
    for (nonsense, status) in [
        (&b"\r\n\r\n"[..], "400"),
        (b"hello\n\n", "400"),
        (b"\xff\x00 / HTTP/1.1\r\n\r\n", "400"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
    ] {
        let said = ask(connect(), nonsense);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{nonsense:?}: {said}");
    }
    let long = ask(connect(), &vec![b'a'; 1 << 20]);
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431 "), "{long}");
    // Many clients send slowly, or nothing. The few slots are theirs for a while, and no thread is left behind.
    let slow: Vec<_> = (0..40)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(b"GET /metr").ok()?;
            Some(stream)
        })
        .collect();
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", mount.daemon.as_raw_nonzero()));
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let tasks = tasks.expect("the daemon runs").flatten().filter_map(name);
        tasks.filter(|name| name.trim() == "sfs-scrape").count()
    };
    wait_until("the slots are taken", || threads() > 0);
    assert!(threads() <= 4, "{} threads serve metrics", threads());
    write_and_sync(&mount.dir, 1 << 20);
    assert!(ask_socket(&socket_of(&mount)).starts_with("HTTP/1.1 200 "), "the other socket");
    wait_until("a slot is free again", || ask(connect(), REQUEST).starts_with("HTTP/1.1 200 "));
    drop(slow);
    wait_until("no thread is left", || threads() == 0);
    mount.unmount();
    volume.check();
}

#[test]
fn metrics_are_not_served_to_other_machines() {
    let volume = TestVolume::new("16M");
    for address in ["0.0.0.0:9100", "192.168.1.2:9100", "[::]:9100", "localhost:9100", "9100"] {
        let output = sfs_mount(&volume.device, &volume.dir, &format!("metrics={address}"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("give a loopback address and a port"), "{said}");
    }
}

/// Returns the names of metrics in the expressions of a dashboard.
fn names_in(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
            let words = text.split(|char| !is_part(char)).filter(|word| word.starts_with("sfs_"));
            names.extend(words.map(str::to_owned));
        }
        Value::Array(values) => values.iter().for_each(|value| names_in(value, names)),
        Value::Object(values) => values.values().for_each(|value| names_in(value, names)),
        _ => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dashboard = fs::read(root.join("docs/grafana/sfs.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    let mut named = BTreeSet::new();
    names_in(&dashboard["panels"], &mut named);
    names_in(&dashboard["templating"], &mut named);
    assert!(named.len() >= 20, "{named:?}");
    let exported: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    for name in &named {
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let exists = |name: &str| exported.contains(name);
        assert!(exists(name) || of_histogram.is_some_and(exists), "{name} is no metric");
    }
    let page = fs::read_to_string(root.join("docs/sfs-ctl.md")).expect("the page");
    for name in exported {
        assert!(page.contains(&format!("`{name}`")), "docs/sfs-ctl.md does not explain {name}");
    }
}

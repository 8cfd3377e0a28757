//! A real Prometheus scrapes a mount, and understands the dashboard.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sfs_testkit::wait_until;

use super::harness::{TestVolume, can_mount, stderr};
use super::{REQUEST, SIZE, ask, body, bytes_written, free_address, sfs_ctl, write_and_sync};

/// Child process that is killed and waited for.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a query to Prometheus, and returns the reply.
fn reply(address: SocketAddr, query: &str) -> Option<Value> {
    let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let request = format!(
        "GET /api/v1/query?query={query} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let response = ask(stream, request.as_bytes());
    let (_, body) = response.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

/// Returns the value of the only result of a query.
fn query(address: SocketAddr, query: &str) -> Option<f64> {
    reply(address, query)?["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// Asserts that Prometheus understands every expression of the dashboard, and has results for most of them: a volume
/// without wear, health and errors lacks those.
fn expect_results_for_dashboard(address: SocketAddr) {
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/grafana/sfs.json");
    let dashboard = fs::read(dashboard).expect("the dashboard");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let (mut with_results, mut count) = (0, 0);
    for target in targets {
        let expression = target["expr"].as_str().expect("an expression");
        let expression = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
        let reply = reply(address, &expression).expect("a reply");
        assert_eq!(reply["status"], "success", "{expression}: {reply}");
        count += 1;
        with_results +=
            u32::from(reply["data"]["result"].as_array().is_some_and(|r| !r.is_empty()));
    }
    assert!(count >= 25 && with_results * 3 >= count * 2, "{with_results} of {count} have results");
}

#[test]
#[ignore = "needs Prometheus, which cargo xtask test --long installs"]
fn mounted_metrics_are_scraped_by_prometheus() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let before = bytes_written(&volume.device);
    let (ours, theirs) = (free_address(), free_address());
    let mount = volume.mount(&format!("metrics={ours}"));
    for text in [sfs_ctl(&["metrics"], &mount.dir).stdout, body(&ask_loopback(ours)).into()] {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut promtool = promtool.spawn().expect("promtool is installed");
        promtool.stdin.take().expect("a pipe").write_all(&text).expect("promtool reads");
        let output = promtool.wait_with_output().expect("promtool ends");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "promtool finds nothing to improve");
    }
    let scratch = volume.scratch.path();
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: sfs\n  static_configs:\n  \
         - targets: ['{ours}']\n"
    );
    fs::write(scratch.join("prometheus.yml"), config).expect("a file");
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", scratch.join("prometheus.yml").display()));
    prometheus.arg(format!("--storage.tsdb.path={}", scratch.join("tsdb").display()));
    prometheus.arg(format!("--web.listen-address={theirs}"));
    let prometheus = prometheus.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let _prometheus = Killed(prometheus.spawn().expect("prometheus is installed"));
    write_and_sync(&mount.dir, 8 << 20);
    wait_until("Prometheus has the bytes that the kernel counts", || {
        let kernels = bytes_written(&volume.device) - before;
        let seen = query(theirs, "sum(sfs_device_written_bytes_total)");
        kernels >= 8 << 20 && seen == Some(kernels as f64)
    });
    let users = query(theirs, "sfs_user_written_bytes_total").expect("a sample");
    assert!(users >= f64::from(8 << 20), "{users}");
    assert_eq!(query(theirs, "up"), Some(1.0));
    let writes = query(theirs, "sum(sfs_request_duration_seconds_count{operation='write'})");
    assert!(writes >= Some(8.0), "{writes:?}");
    wait_until("rates have two scrapes", || {
        query(theirs, "count(rate(sfs_syncs_total[1m]))") == Some(1.0)
    });
    expect_results_for_dashboard(theirs);
    mount.unmount();
    volume.check();
}

fn ask_loopback(address: SocketAddr) -> String {
    ask(TcpStream::connect(address).expect("the mount listens"), REQUEST)
}

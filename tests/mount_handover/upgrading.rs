//! Upgrades of a mount by `sfs-ctl`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use sfs_testkit::wait_until;

use crate::harness::{TestVolume, daemon_of, stderr};

/// Asks for an upgrade of the mount on `dir`.
pub(crate) fn try_upgrade(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("upgrade").args(arguments).arg(dir).output().expect("sfs-ctl runs")
}

/// Upgrades the mount of `volume`, and returns the length of the pause.
pub(crate) fn upgrade(volume: &TestVolume) -> Duration {
    let before = volume.daemon();
    let output = try_upgrade(&volume.dir, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["upgraded"], &report["version"]), (&true.into(), &1.into()));
    wait_until("the old program ends", || daemon_of(&volume.device) != Some(before));
    assert_ne!(volume.daemon(), before);
    Duration::from_millis(report["pause_ms"].as_u64().expect("a number"))
}

/// Prints the pauses of upgrades.
pub(crate) fn print_pauses(mut pauses: Vec<Duration>) {
    pauses.sort();
    let (count, middle) = (pauses.len(), pauses[pauses.len() / 2]);
    println!("{count} upgrades, pauses of {middle:?} in the middle, {:?} at most", pauses.last());
}

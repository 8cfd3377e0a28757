//! The program `tail-load` on an ordinary directory: all loads at a small scale, and failures in
//! one line.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

const AMOUNTS: [&str; 10] = [
    "--cold-mib",
    "4",
    "--names",
    "600",
    "--stream-mib",
    "8",
    "--database-mib",
    "1",
    "--tree-files",
    "120",
];

fn tail_load(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tail-load"));
    command.arg(dir).args(arguments).output().expect("tail-load runs")
}

/// Runs a load that succeeds, and returns its outcome.
fn outcome(dir: &Path, arguments: &[&str]) -> Value {
    let output = tail_load(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    if output.stdout.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs a load for half a second beside programs.
fn beside(dir: &Path, load: &str, programs: &str) -> Value {
    let timed = [load, "--seconds", "0.5", "--warm-up", "0.1", "--beside", programs];
    outcome(dir, &[&timed[..], &AMOUNTS].concat())
}

fn count(outcome: &Value, call: &str) -> u64 {
    outcome["calls"][call]["count"].as_u64().unwrap_or_default()
}

#[test]
fn every_load_times_its_requests_beside_working_programs() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    outcome(dir, &[&["prepare"][..], &AMOUNTS].concat());

    let rounds = beside(dir, "rounds", "stream");
    let made = rounds["rounds"].as_u64().expect("a number");
    assert!(made > 0, "{rounds}");
    for call in ["read", "stat", "create"] {
        assert_eq!(count(&rounds, call), made, "{call}: {rounds}");
    }
    assert_eq!(count(&rounds, "fsync"), made / 10, "{rounds}");
    assert!(rounds["background"]["stream_mb_per_s"].as_f64() > Some(0.0), "{rounds}");
    let files = std::fs::read_dir(dir.join("new")).expect("new files").count() as u64;
    assert_eq!(files, made.min(20_000));

    let listing = beside(dir, "listing", "stream-in-place");
    // 600 names are in two directories.
    assert_eq!((count(&listing, "ls -l"), count(&listing, "lstat")), (2, 600), "{listing}");

    let database = beside(dir, "database", "stream,copy");
    assert!(count(&database, "write and fsync") > 0, "{database}");
    for unit in ["stream_mb_per_s", "copied_files_per_s"] {
        assert!(database["background"][unit].as_f64() > Some(0.0), "{unit}: {database}");
    }
}

#[test]
fn overwrites_need_the_file_that_fill_makes() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    expect_refusal(dir, &["overwrite", "--requests", "5"], "No such file or directory");
    std::fs::write(dir.join("filling"), vec![0; 1 << 20]).expect("written");
    assert!(outcome(dir, &["age", "--mib", "1"]).is_null());
    let overwritten = outcome(dir, &["overwrite", "--requests", "5", "--skipped", "256"]);
    assert_eq!(count(&overwritten, "write and fsync"), 5);
    let arrived = outcome(dir, &["arrivals", "--requests", "20", "--rate", "1000"]);
    assert_eq!(count(&arrived, "write and fsync"), 20);
    let refusal = ["arrivals", "--requests", "20", "--rate", "0"];
    expect_refusal(dir, &refusal, "--rate 0: must be above zero");
}

/// Expects a failure with one line on standard error, which contains `message`.
fn expect_refusal(dir: &Path, arguments: &[&str], message: &str) {
    let output = tail_load(dir, arguments);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}");
    assert!(printed.contains(message), "{arguments:?}: {printed}");
    assert_eq!(printed.trim().lines().count(), 1, "{printed}");
}

#[test]
fn a_background_program_that_fails_ends_the_load() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    outcome(dir, &[&["prepare"][..], &AMOUNTS].concat());
    // The stream cannot open its first file.
    std::fs::create_dir(dir.join("stream-0")).expect("made");
    let timed = ["rounds", "--seconds", "0.2", "--warm-up", "0.1", "--beside", "stream"];
    let output = tail_load(dir, &[&timed[..], &AMOUNTS].concat());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(printed.contains("the stream: Is a directory"), "{printed}");
    assert!(printed.contains("the background program"), "{printed}");
}

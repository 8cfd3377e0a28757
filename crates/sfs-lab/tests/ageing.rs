//! `sfs-lab age` on a filesystem in RAM.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn age(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-lab"));
    command.arg("age").arg(dir).args(["--json", "--utilization"]).args(arguments);
    command.output().expect("sfs-lab runs")
}

/// Mounts an empty filesystem in RAM; `None` if the mount is not allowed.
fn mounted(dir: &Path) -> Option<TmpfsMount<'_>> {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", "size=48M", "none"]).arg(dir);
    let output = command.output().expect("mount runs");
    if !output.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    Some(TmpfsMount(dir))
}

struct TmpfsMount<'a>(&'a Path);

impl Drop for TmpfsMount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Returns the names and sizes of all files.
fn files(dir: &Path) -> BTreeMap<String, u64> {
    let directories = fs::read_dir(dir).expect("a directory").map(|entry| entry.unwrap().path());
    let files = directories.flat_map(|path| fs::read_dir(path).expect("a directory"));
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("UTF-8"), entry.metadata().unwrap().len())
    };
    files.map(|entry| file(entry.unwrap())).collect()
}

#[test]
fn ageing_ends_at_the_wanted_utilization_with_the_files_of_the_seed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let mut seen = Vec::new();
    for seed in ["1", "1", "2"] {
        let Some(_mount) = mounted(dir) else { return };
        let output = age(dir, &["40", "--largest", "1M", "--seed", seed]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let aged: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let number = |name: &str| aged[name].as_f64().expect("a number");
        assert!(number("utilization_full") > 0.95, "{aged}");
        assert!((0.37..=0.4).contains(&number("utilization")), "{aged}");
        let left = files(dir);
        assert_eq!(left.len() as f64, number("files") - number("deleted"), "{aged}");
        seen.push(left);
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

#[test]
fn only_the_root_of_an_empty_filesystem_is_filled() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let expect = |dir: &Path, arguments: &[&str], reason: &str| {
        let output = age(dir, arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(printed.contains(reason), "{printed}");
    };
    expect(dir, &["50"], "not a mount point");
    expect(&dir.join("missing"), &["50"], "No such file");
    expect(dir, &["101"], "101 is not in 0..=100");
    let Some(_mount) = mounted(dir) else { return };
    expect(dir, &["50", "--smallest", "2M", "--largest", "1M"], "larger than --largest");
    fs::write(dir.join("mine"), "content").expect("writing");
    expect(dir, &["50"], "not empty: it contains mine");
    assert_eq!(fs::read(dir.join("mine")).expect("reading"), b"content");
}

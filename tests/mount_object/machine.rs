//! A directory as an object store, and machines that mount the volume in it, each with a local cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::{scratch_directory, wait_until};
use tempfile::TempDir;

use super::harness::{Mount, TestVolume, sfs_mount_unused, stderr};

/// Returns the path of a program that is built with the tests of the workspace.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_sfs-mount")).with_file_name(name);
    let shown = path.display();
    assert!(path.is_file(), "{shown} is missing: cargo build -p sfs-store -p sfs-mkfs");
    path
}

/// A directory with the objects of one volume.
pub(crate) struct Store {
    pub(crate) dir: PathBuf,
    _scratch: TempDir,
}

impl Store {
    /// Returns an empty one.
    pub(crate) fn empty() -> Self {
        program("sfs-store");
        let scratch = scratch_directory();
        let dir = scratch.path().join("objects");
        fs::create_dir(&dir).expect("room");
        Self { dir, _scratch: scratch }
    }

    /// Returns one with a volume of `size`, and the machine that has made it.
    pub(crate) fn with_volume(size: &str) -> (Self, Machine) {
        let store = Self::empty();
        let machine = Machine::new(&store);
        let made = machine.mkfs(size);
        assert!(made.status.success(), "{}", stderr(&made));
        (store, machine)
    }

    /// Returns all objects.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.dir.clone()];
        let mut objects = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => dirs.push(entry.path()),
                    false => objects.push(entry.path()),
                }
            }
        }
        objects.sort();
        objects
    }

    /// Waits until an object has `bytes`.
    pub(crate) fn wait_for(&self, bytes: &[u8]) {
        let holds = |path: &PathBuf| {
            fs::read(path).is_ok_and(|object| object.windows(bytes.len()).any(|part| part == bytes))
        };
        wait_until("the bytes are uploaded", || self.objects().iter().any(holds));
    }

    /// Makes the store unreachable, until [`Store::return_from`].
    pub(crate) fn go_away(&self) -> PathBuf {
        let aside = self.dir.with_file_name("aside");
        fs::rename(&self.dir, &aside).expect("a directory");
        aside
    }

    pub(crate) fn return_from(&self, aside: &Path) {
        fs::rename(aside, &self.dir).expect("nobody has made another directory");
    }
}

/// A machine with a local cache. Its URL is its own, so that its processes can be told from those of others.
pub(crate) struct Machine {
    pub(crate) volume: TestVolume,
    pub(crate) cache: PathBuf,
}

impl Machine {
    /// Returns a machine without a cache so far.
    pub(crate) fn new(store: &Store) -> Self {
        let mut volume = TestVolume::existing(PathBuf::new());
        let link = volume.scratch.path().join("store");
        symlink(&store.dir, &link).expect("room");
        volume.device = format!("file://{}", link.display()).into();
        let cache = volume.scratch.path().join("cache");
        Self { volume, cache }
    }

    pub(crate) fn mkfs(&self, size: &str) -> Output {
        self.mkfs_with(size, &[])
    }

    /// Makes the volume with more arguments.
    pub(crate) fn mkfs_with(&self, size: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program("sfs-mkfs"));
        command.arg("--cache").arg(&self.cache).args(["--size", size, "--quiet"]).args(arguments);
        command.arg(&self.volume.device).output().expect("sfs-mkfs runs")
    }

    /// Mounts the volume, with more options.
    pub(crate) fn mount(&self, options: &str) -> Mount {
        let output = self.try_mount(options);
        assert!(output.status.success(), "-o {options}: {}", stderr(&output));
        self.volume.mounted()
    }

    pub(crate) fn try_mount(&self, options: &str) -> Output {
        let options = format!("cache_file={},{options}", self.cache.display());
        sfs_mount_unused(&self.volume.device, &self.volume.dir, &options)
    }

    /// Loses the local cache.
    pub(crate) fn lose_cache(&self) {
        fs::remove_file(&self.cache).expect("a cache");
    }

    /// Returns the process that reaches the store, if it lives.
    pub(crate) fn store_process(&self) -> Option<Pid> {
        let processes = fs::read_dir("/proc").expect("Linux").flatten();
        processes.map(|entry| entry.path()).find_map(|path| {
            let pid = path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
            // A process that has ended has no command line.
            let line = fs::read(path.join("cmdline")).ok()?;
            let mut words = line.split(|byte| *byte == 0);
            let is_program = words.next()?.ends_with(b"/sfs-store");
            let url = self.volume.device.as_os_str().as_encoded_bytes();
            (is_program && words.any(|word| word == url)).then_some(pid)
        })
    }

    /// Waits for the process that reaches the store.
    pub(crate) fn wait_for_store_process(&self) -> Pid {
        let mut found = None;
        wait_until("sfs-store runs", || {
            found = self.store_process();
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Kills the process that reaches the store.
    pub(crate) fn kill_store_process(&self) {
        let process = self.wait_for_store_process();
        kill_process(process, Signal::KILL).expect("it lives");
        wait_until("sfs-store has ended", || self.store_process() != Some(process));
    }
}

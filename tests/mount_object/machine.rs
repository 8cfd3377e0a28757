//! An object store, and machines that mount the volume in it, each with a local cache.
//!
//! The store is a directory, or a server if `SFS_STORE` names one. `SFS_TOOLS` is the directory with the programs of servers
//! (default: `target/tools`).

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{iter, thread};

use rustix::process::{Pid, Signal, kill_process};
use sfs_servers::{ObjectServer, ServerKind};
use sfs_testkit::{scratch_directory, wait_until};
use tempfile::TempDir;

use super::harness::{Mount, TestVolume, stderr, transport};

/// Returns the path of a program that is built with the tests of the workspace.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_sfs-mount")).with_file_name(name);
    let shown = path.display();
    assert!(path.is_file(), "{shown} is missing: cargo build -p sfs-store -p sfs-mkfs");
    path
}

/// Longest time until a PUT that is not seen has been done.
const UNSEEN: Duration = Duration::from_secs(10);

/// Letters of the name of a volume, of which each machine writes others as `%6F`.
const VOLUME: &str = "objectvolume";

/// A store with the objects of one volume.
pub(crate) struct Store {
    /// The directory with the objects, or with the data of the server.
    pub(crate) dir: PathBuf,
    server: Option<Mutex<ObjectServer>>,
    /// Different from all stores of tests that run now.
    id: String,
    machines: AtomicU64,
    // Dropped last: the server has its data there.
    _scratch: TempDir,
}

impl Store {
    /// Returns an empty one: the server that `SFS_STORE` names, or a directory.
    pub(crate) fn empty() -> Self {
        match env::var("SFS_STORE").as_deref() {
            Err(_) | Ok("directory") => Self::started(None),
            Ok(name) => {
                Self::started(ServerKind::named(name).or_else(|| panic!("SFS_STORE={name}")))
            }
        }
    }

    /// Returns an empty one that is reached by TCP: the server that `SFS_STORE` names, or the simulated one.
    pub(crate) fn of_network() -> Self {
        match env::var("SFS_STORE").as_deref() {
            Err(_) | Ok("directory") => Self::started(Some(ServerKind::Simulated)),
            Ok(_) => Self::empty(),
        }
    }

    /// # Panics
    ///
    /// If the server cannot be started: who names a server has looked whether it is installed.
    fn started(kind: Option<ServerKind>) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        program("sfs-store");
        let scratch = scratch_directory();
        let dir = scratch.path().join("objects");
        fs::create_dir(&dir).expect("room");
        let tools = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
        let tools = env::var_os("SFS_TOOLS").map_or_else(tools, PathBuf::from);
        let start = |kind| Mutex::new(ObjectServer::start(kind, &dir, &tools).expect("a server"));
        let server = kind.map(start);
        let id = format!("{}-{}", process::id(), STORES.fetch_add(1, Ordering::Relaxed));
        Self { dir, server, id, machines: AtomicU64::new(0), _scratch: scratch }
    }

    /// Returns the server.
    ///
    /// # Panics
    ///
    /// If the store is a directory.
    pub(crate) fn server(&self) -> MutexGuard<'_, ObjectServer> {
        let server = self.server.as_ref().expect("a store with a server");
        server.lock().expect("no panic")
    }

    /// Returns one with a volume of `size`, and the machine that has made it.
    pub(crate) fn with_volume(size: &str) -> (Self, Machine) {
        Self::empty().with_new_volume(size)
    }

    /// Makes a volume of `size`, and returns the machine that has made it.
    pub(crate) fn with_new_volume(self, size: &str) -> (Self, Machine) {
        let store = self;
        let machine = Machine::new(&store);
        let made = machine.mkfs(size);
        assert!(made.status.success(), "{}", stderr(&made));
        (store, machine)
    }

    /// Returns the objects of a directory. What a server has is its own matter: none.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        if self.server.is_some() { Vec::new() } else { self.files() }
    }

    fn files(&self) -> Vec<PathBuf> {
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

    /// Waits until an object has `bytes`. Ceph has its objects in memory: there the wait is long enough for an upload.
    pub(crate) fn wait_for(&self, bytes: &[u8]) {
        match self.server.as_ref().map(|_| self.server().kind()) {
            Some(ServerKind::Rgw) => return thread::sleep(UNSEEN),
            Some(ServerKind::Simulated) => {
                return wait_until("the bytes are uploaded", || {
                    self.server().simulated_holds(bytes)
                });
            }
            _ => {}
        }
        let holds = |path: &PathBuf| {
            fs::read(path).is_ok_and(|object| object.windows(bytes.len()).any(|part| part == bytes))
        };
        wait_until("the bytes are uploaded", || self.files().iter().any(holds));
    }

    /// Makes the store unreachable, until [`Store::return_from`].
    pub(crate) fn go_away(&self) -> PathBuf {
        let aside = self.dir.with_file_name("aside");
        if self.server.is_some() {
            self.server().kill();
            return aside;
        }
        fs::rename(&self.dir, &aside).expect("a directory");
        aside
    }

    pub(crate) fn return_from(&self, aside: &Path) {
        if self.server.is_some() {
            return self.server().restart().expect("it starts again");
        }
        fs::rename(aside, &self.dir).expect("nobody has made another directory");
    }
}

/// A machine with a local cache. Its URL is its own, so that its processes can be told from those of others.
pub(crate) struct Machine {
    pub(crate) volume: TestVolume,
    pub(crate) cache: PathBuf,
    /// Environment of programs that reach the store.
    environment: Vec<(&'static str, String)>,
}

impl Machine {
    /// Returns a machine without a cache so far.
    pub(crate) fn new(store: &Store) -> Self {
        let mut volume = TestVolume::existing(PathBuf::new());
        let cache = volume.scratch.path().join("cache");
        if store.server.is_none() {
            let link = volume.scratch.path().join("store");
            symlink(&store.dir, &link).expect("room");
            volume.device = format!("file://{}", link.display()).into();
            return Self { volume, cache, environment: Vec::new() };
        }
        let server = store.server();
        let number = store.machines.fetch_add(1, Ordering::Relaxed);
        let bits = iter::successors(Some(number), |bits| Some(bits >> 1)).map(|bits| bits & 1 == 1);
        let spelled = VOLUME.chars().zip(bits).map(|(letter, is_coded)| match is_coded {
            true => format!("%{:02X}", u32::from(letter)),
            false => letter.to_string(),
        });
        let name = spelled.collect::<String>();
        volume.device = server.url(&format!("{name}-{}", store.id)).into();
        let environment = server.environment(server.address());
        Self { volume, cache, environment }
    }

    /// Has the machine reach the store at another address.
    pub(crate) fn through(self, store: &Store, address: SocketAddr) -> Self {
        Self { environment: store.server().environment(address), ..self }
    }

    /// Returns the environment of programs that reach the store.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.environment.clone()
    }

    pub(crate) fn mkfs(&self, size: &str) -> Output {
        self.mkfs_with(size, &[])
    }

    /// Makes the volume with more arguments.
    pub(crate) fn mkfs_with(&self, size: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program("sfs-mkfs"));
        command.arg("--cache").arg(&self.cache).args(["--size", size, "--quiet"]).args(arguments);
        command.envs(self.environment.clone());
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
        let mut output = self.sfs_mount(&options);
        wait_until("the cache is not in use", || {
            let is_used = stderr(&output).contains(": is mounted or in use");
            if is_used {
                output = self.sfs_mount(&options);
            }
            !is_used
        });
        output
    }

    fn sfs_mount(&self, options: &str) -> Output {
        let mut command = Command::new(program("sfs-mount"));
        command.args(["--transport", &transport()]).args(["-o", options]);
        command.arg(&self.volume.device).arg(&self.volume.dir);
        command.envs(self.environment.clone()).output().expect("sfs-mount runs")
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

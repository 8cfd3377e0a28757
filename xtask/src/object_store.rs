//! A volume in an object store: the server, the local cache, and kills of both ends while suites run.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sfs_servers::{ObjectServer, ServerKind};

use crate::{cleanup::is_stopping, run::Cmd};

/// Largest size of the local cache: the smallest that a mount takes.
const CACHE: &str = "16M";

/// Bytes that lie in a volume so that the cache cannot hold everything.
const BALLAST: usize = 48 << 20;
const BALLAST_FILES: usize = 12;

/// Time between two kills, of the server and of sfs-store in turn.
const BETWEEN_KILLS: Duration = Duration::from_millis(800);

/// Time that a killed server is away.
const AWAY: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(50);

/// A kind of object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Directory,
    Server(ServerKind),
}

impl StoreKind {
    /// All kinds that hold a volume.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Directory].into_iter().chain(ServerKind::ALL.map(Self::Server))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Server(kind) => kind.name(),
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for StoreKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::all().map(Self::name).collect::<Vec<_>>().join(", ");
        Self::all().find(|kind| kind.name() == name).ok_or_else(|| format!("one of {}", names()))
    }
}

/// A volume in an object store, whose server ends with the value.
#[derive(Debug)]
pub(crate) struct ObjectVolume {
    url: String,
    cache: PathBuf,
    len: u64,
    environment: Vec<(&'static str, String)>,
    _kills: Kills,
}

impl ObjectVolume {
    /// Starts a server with its data below `dir`, for a volume of `len` bytes.
    pub(crate) fn start(kind: StoreKind, tools: &Path, dir: &Path, len: u64) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let server = match kind {
            StoreKind::Directory => None,
            StoreKind::Server(kind) => {
                let server = ObjectServer::start(kind, &dir.join("server"), tools);
                Some(server.map_err(|reason| anyhow!("{kind}: {reason}"))?)
            }
        };
        let (url, environment) = match &server {
            Some(server) => (server.url("volume"), server.environment(server.address())),
            None => {
                let objects = dir.join("objects");
                fs::create_dir_all(&objects)?;
                (format!("file://{}", objects.display()), Vec::new())
            }
        };
        let _kills = Kills::begin(url.clone(), server);
        Ok(Self { url, cache: dir.join("cache"), len, environment, _kills })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Adds the arguments of `sfs-mkfs`.
    pub(crate) fn of_mkfs(&self, cmd: Cmd) -> Cmd {
        // A volume is made while nobody kills anything.
        self.of_check(cmd).arg("--cache").arg(&self.cache).args(["--size", &self.len.to_string()])
    }

    /// Adds the options of a mount, and has the kills begin.
    pub(crate) fn of_mount(&self, cmd: Cmd) -> Cmd {
        self._kills.shared.may_kill.store(true, Ordering::Relaxed);
        let cache = self.cache.display();
        let options = format!("cache_file={cache},cache_size={CACHE},upload=1");
        self.of_check(cmd).args(["-o", &options])
    }

    /// Adds the environment of a program that reaches the store.
    pub(crate) fn of_check(&self, cmd: Cmd) -> Cmd {
        self.environment.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value))
    }

    pub(crate) fn disturbances(&self) -> String {
        let [servers, programs] = self._kills.shared.counts.each_ref();
        let (servers, programs) =
            (servers.load(Ordering::Relaxed), programs.load(Ordering::Relaxed));
        format!("{servers} kills of the server, {programs} of sfs-store")
    }
}

/// A thread that kills the server and `sfs-store` in turn.
#[derive(Debug)]
struct Kills {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    url: String,
    server: Option<Mutex<ObjectServer>>,
    may_kill: AtomicBool,
    is_over: AtomicBool,
    /// Kills of the server and of `sfs-store`.
    counts: [AtomicU64; 2],
}

impl Kills {
    fn begin(url: String, server: Option<ObjectServer>) -> Self {
        let shared = Arc::new(Shared {
            url,
            server: server.map(Mutex::new),
            may_kill: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            counts: [0, 0].map(AtomicU64::new),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || {
            let mut is_server = true;
            while of_thread.waits(BETWEEN_KILLS) {
                if !of_thread.may_kill.load(Ordering::Relaxed) {
                    continue;
                }
                let result =
                    if is_server { of_thread.kill_server() } else { of_thread.kill_program() };
                if let Err(error) = result {
                    eprintln!("killing: {error:#}");
                }
                is_server = !is_server;
            }
        });
        Self { shared, thread: Some(thread) }
    }
}

impl Shared {
    /// Returns `false` if all is over meanwhile.
    fn waits(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.is_over.load(Ordering::Relaxed) || is_stopping() {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    fn kill_server(&self) -> Result<()> {
        let Some(server) = &self.server else { return self.kill_program() };
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.kill();
        thread::sleep(AWAY);
        server.restart().map_err(|error| anyhow!("the server does not start again: {error}"))?;
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn kill_program(&self) -> Result<()> {
        for entry in fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name();
            let Some(pid) =
                name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
            else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let is_program = words.next().is_some_and(|word| word.ends_with(b"/sfs-store"));
            // Those of other tests have other servers, and their command lines may be the same.
            let is_ours = || {
                let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
                self.server.as_ref().is_none_or(|server| {
                    let server = server.lock().unwrap_or_else(PoisonError::into_inner);
                    let address = server.address().to_string().into_bytes();
                    environment.windows(address.len()).any(|part| part == address)
                })
            };
            if is_program && words.any(|word| word == self.url.as_bytes()) && is_ours() {
                kill_process(pid, Signal::KILL).context("sfs-store")?;
                self.counts[1].fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl Drop for Kills {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Files that are read again at the end, by which time the cache has lost most of them.
pub(crate) struct Ballast;

impl Ballast {
    pub(crate) fn plant(mount: &Path) -> Result<Self> {
        for no in 0..BALLAST_FILES {
            fs::write(Self::path(mount, no), Self::content(no))?;
        }
        Ok(Self)
    }

    pub(crate) fn verify(&self, mount: &Path) -> Result<()> {
        for no in 0..BALLAST_FILES {
            let path = Self::path(mount, no);
            ensure!(fs::read(&path)? == Self::content(no), "{} differs", path.display());
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    fn path(mount: &Path, no: usize) -> PathBuf {
        mount.join(format!("ballast-{no}"))
    }

    /// A sequence that no cache compresses or shares.
    fn content(no: usize) -> Vec<u8> {
        let mut state = no as u64 + 1;
        let word = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        };
        (0..BALLAST / BALLAST_FILES / 8).flat_map(word).collect()
    }
}

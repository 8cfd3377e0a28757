//! Starting the program that reaches an object store.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

/// Bytes of free memory that the program keeps for the next objects, as its C library is told by its environment: pages that are fresh for each
/// object take longer than its bytes do.
const KEPT_BYTES: &str = "33554432";

/// Returns whether a path is the URL of an object store.
pub fn is_store_url(path: &OsStr) -> bool {
    let path = path.as_encoded_bytes();
    [&b"file://"[..], b"s3://", b"az://", b"gs://"].iter().any(|scheme| path.starts_with(scheme))
}

/// Returns a URL for people: without what is before `@`, and without a query. Nobody can use a store whose URL has such parts.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://...@{rest}"),
        _ => url.to_owned(),
    }
}

/// The program `sfs-store`, of which one process at a time serves one store. Its process ends with its connection.
#[derive(Debug)]
pub struct StoreProgram {
    path: PathBuf,
    /// The program as it was opened once; `None` to find it by its path each time.
    file: Option<File>,
    url: OsString,
    child: Mutex<Option<Child>>,
}

impl StoreProgram {
    /// Returns the program at `path`, for the store at `url`.
    pub fn new(path: PathBuf, url: OsString) -> Self {
        Self { path, file: None, url, child: Mutex::default() }
    }

    /// Has this open file be the program from now on, whatever replaces it at its path.
    #[must_use]
    pub fn started_from(mut self, file: File) -> Self {
        self.file = Some(file);
        self
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the program that is installed beside the running one, or in `../lib/sfs` from there, as packages do.
    pub fn beside_this(url: &OsStr) -> io::Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sfs-store");
        let packaged = beside.with_file_name("../lib/sfs/sfs-store");
        let mut paths = [&beside, &packaged].into_iter();
        if let Some(path) = paths.find(|path| path.is_file()) {
            return Ok(Self::new(path.canonicalize()?, url.to_owned()));
        }
        let missing = format!(
            "{} is missing: install the program that reaches object stores there",
            beside.display()
        );
        Err(io::Error::new(io::ErrorKind::NotFound, missing))
    }

    /// Ends the process that serves, if there is one, and starts another. Returns the connection to it.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let mut child = self.child.lock();
        if let Some(mut before) = child.take() {
            before.kill()?;
            // Its end is not waited for: a process on a filesystem that hangs does not end, and its socket is closed.
            std::thread::Builder::new().spawn(move || before.wait())?;
        }
        let (ours, theirs) = UnixStream::pair()?;
        let opened = self.file.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut command = Command::new(opened.map_or_else(|| self.path.clone(), PathBuf::from));
        command
            .arg0(&self.path)
            .arg(&self.url)
            .env("MALLOC_TRIM_THRESHOLD_", KEPT_BYTES)
            .env("MALLOC_MMAP_THRESHOLD_", KEPT_BYTES)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        // Ctrl-C at a terminal is for the caller, which may need the store to end in order.
        let started = command.process_group(0).spawn();
        *child = Some(started.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })?);
        Ok(ours)
    }

    /// Returns the process that serves.
    pub fn process_id(&self) -> Option<u32> {
        self.child.lock().as_ref().map(Child::id)
    }
}

impl Drop for StoreProgram {
    /// Ends the process: whoever wanted its replies has waited for them.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.get_mut().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! Starting the program that reaches an object store.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

/// The program `sfs-store`, of which one process at a time serves one store. Its process ends with its connection.
pub struct StoreProgram {
    path: PathBuf,
    url: OsString,
    child: Mutex<Option<Child>>,
}

impl StoreProgram {
    /// Returns the program at `path`, for the store at `url`.
    pub fn new(path: PathBuf, url: OsString) -> Self {
        Self { path, url, child: Mutex::default() }
    }

    /// Ends the process that serves, if there is one, and starts another. Returns the connection to it.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let mut child = self.child.lock();
        if let Some(mut before) = child.take() {
            before.kill()?;
            before.wait()?;
        }
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.path);
        command.arg(&self.url).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
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

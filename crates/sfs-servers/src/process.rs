//! Processes of servers, ended by their handles.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until a server listens.
const WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A process that is killed when dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a command, with its output in a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let log = File::options().create(true).append(true).open(log).map_err(text)?;
        let errors = log.try_clone().map_err(text)?;
        let command = command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let shown = command.get_program().to_string_lossy().into_owned();
        command.spawn().map(Self).map_err(|error| format!("{shown}: {error}"))
    }

    /// Returns the number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until a process of the server listens at `address`.
    pub(crate) fn wait_for(&mut self, address: SocketAddr) -> Result<(), String> {
        let end = Instant::now() + WAIT;
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("the server has ended before it listened: {status}"));
            }
            if Instant::now() > end {
                return Err(format!("the server does not listen after {WAIT:?}"));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: a server has to survive the loss of its process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end, and returns what it prints.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}: {printed}{}", output.status, said.trim()));
    }
    Ok(printed)
}

/// Returns an address of this machine that nobody listens at.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(text)
}

/// Returns the text of an error.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

//! Log lines: to the terminal in the foreground, to the system's log in the daemon.
//!
//! A line that cannot be written is dropped; no caller waits for it. There is no log file, as it could be on the
//! volume itself.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;

/// `LOG_DAEMON | LOG_ERR` of syslog(3).
const PRIORITY: u8 = 3 << 3 | 3;

/// Socket of the system's log.
const SYSTEM_LOG: &str = "/dev/log";

/// Logs to the terminal: everything with `verbose`, or else from INFO up.
pub(crate) fn to_terminal(verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::INFO };
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from_level(level))
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_writer(io::stderr)
        .try_init();
}

/// Logs to the system's log or, if there is none yet, to that of the kernel: the first daemon of a root filesystem never finds the socket.
pub(crate) fn to_system() {
    let has_log = Path::new(SYSTEM_LOG).exists();
    let kernel_log = OpenOptions::new().write(true).open("/dev/kmsg");
    let kernel_log = kernel_log.ok().filter(|_| !has_log).map(Arc::new);
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .without_time()
        .with_writer(move || SystemLog::connect(kernel_log.clone()))
        .try_init();
}

struct SystemLog {
    socket: Option<UnixDatagram>,
    kernel_log: Option<Arc<File>>,
}

impl SystemLog {
    fn connect(kernel_log: Option<Arc<File>>) -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SYSTEM_LOG)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self { socket: socket.ok(), kernel_log }
    }
}

impl Write for SystemLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let message = format!("<{PRIORITY}>sfs-mount[{}]: {}", std::process::id(), text.trim_end());
        match (&self.socket, &self.kernel_log) {
            (Some(socket), _) => drop(socket.send(message.as_bytes())),
            // A record of the kernel's log is one write.
            (None, Some(log)) => drop((&**log).write(message.as_bytes())),
            (None, None) => {}
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

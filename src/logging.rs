//! Log lines: to the terminal in the foreground, to the system's log in the daemon.
//!
//! A line that cannot be written is dropped; no caller waits for it. There is no log file, as it could be on the
//! volume itself.

use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;

/// `LOG_DAEMON | LOG_ERR` of syslog(3).
const PRIORITY: u8 = 3 << 3 | 3;

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

/// Logs to the system's log, if there is one.
pub(crate) fn to_system() {
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .without_time()
        .with_writer(SystemLog::connect)
        .try_init();
}

struct SystemLog(Option<UnixDatagram>);

impl SystemLog {
    fn connect() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect("/dev/log")?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self(socket.ok())
    }
}

impl Write for SystemLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(socket) = &self.0 {
            let text = String::from_utf8_lossy(line);
            let message =
                format!("<{PRIORITY}>sfs-mount[{}]: {}", std::process::id(), text.trim_end());
            let _ = socket.send(message.as_bytes());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! The lines of a trace on their way from the daemon to the file.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sfs_system::Human;
use sfs_trace::{LINE_LEN_MAX, TraceEnd, TraceOperation, TraceProperties, TraceRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit_error::ExitError;
use crate::socket_deadline::is_passing;

/// Longest wait for a part of the trace, after which signals and bounds are looked at.
const WAIT: Duration = Duration::from_millis(100);

/// Time for the daemon to send its last requests.
const LAST_WAIT_MAX: Duration = Duration::from_secs(2);

/// Largest length of the last line, in bytes.
const END_LEN_MAX: u64 = 64;

/// Bounds of a recording.
pub(super) struct Bounds {
    pub(super) until: Instant,
    /// Largest length of the file in bytes.
    pub(super) len: u64,
}

/// Reason for the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Time,
    Size,
    Signal,
    Unmount,
}

/// A recording that is over.
pub(super) struct Transcript {
    end: TraceEnd,
    len: u64,
    secs: f64,
    ending: Ending,
}

impl Transcript {
    /// Copies the trace from `daemon` to `file`, until the end of the mount, of `bounds`, or a signal.
    pub(super) fn record(
        daemon: UnixStream,
        file: &mut impl Write,
        properties: &TraceProperties,
        bounds: &Bounds,
    ) -> Result<Self, ExitError> {
        let system = |error: io::Error| ExitError::system(format_args!("recording: {error}"));
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, is_stopped.clone()).map_err(system)?;
        }
        let begun = Instant::now();
        let heading = properties.to_string();
        let end = TraceEnd::default();
        let len_max = bounds.len.saturating_sub(END_LEN_MAX);
        let mut copy = LineCopy { file, pending: Vec::new(), len: 0, len_max, end };
        copy.write(heading.as_bytes()).map_err(system)?;
        (&daemon).write_all(b"\n").map_err(system)?;
        daemon.set_read_timeout(Some(WAIT)).map_err(system)?;
        let is_over = || {
            let by_signal = is_stopped.load(Ordering::Relaxed).then_some(Ending::Signal);
            by_signal.or_else(|| (Instant::now() >= bounds.until).then_some(Ending::Time))
        };
        let mut ending = copy.run(&daemon, is_over)?;
        if matches!(ending, Ending::Signal | Ending::Time) {
            // The daemon sends what it has recorded, and closes the connection.
            let _ = daemon.shutdown(Shutdown::Write);
            let until = Instant::now() + LAST_WAIT_MAX;
            let last = copy.run(&daemon, || (Instant::now() >= until).then_some(ending))?;
            ending = if last == Ending::Size { last } else { ending };
        }
        let last = copy.end.to_string();
        copy.write(last.as_bytes()).and_then(|()| copy.file.flush()).map_err(system)?;
        let LineCopy { end, len, .. } = copy;
        Ok(Self { end, len, secs: begun.elapsed().as_secs_f64(), ending })
    }

    pub(super) fn to_json(&self, file: &Path) -> String {
        let Self { end: TraceEnd { requests, lost }, len, secs, ending } = self;
        let ending = match ending {
            Ending::Time => "time",
            Ending::Size => "size",
            Ending::Signal => "signal",
            Ending::Unmount => "unmount",
        };
        let outcome = json!({
            "file": file.to_string_lossy(),
            "requests": requests,
            "lost": lost,
            "bytes": len,
            "secs": secs,
            "ended_by": ending,
        });
        format!("{outcome:#}\n")
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end: TraceEnd { requests, lost }, len, secs, ending } = self;
        write!(f, "{requests} requests in {secs:.1} s, {}", Human(*len))?;
        if *lost > 0 {
            write!(f, "; {lost} requests were not recorded, because this program was too slow")?;
        }
        match ending {
            Ending::Time | Ending::Signal => Ok(()),
            Ending::Size => f.write_str("; the file has its largest size"),
            Ending::Unmount => f.write_str("; the mount has ended"),
        }
    }
}

/// Lines on their way.
struct LineCopy<'a, W> {
    file: &'a mut W,
    /// Bytes after the last whole line.
    pending: Vec<u8>,
    len: u64,
    len_max: u64,
    end: TraceEnd,
}

impl<W: Write> LineCopy<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Copies lines until `is_over` names an ending, or there is another one.
    fn run(
        &mut self,
        mut daemon: &UnixStream,
        is_over: impl Fn() -> Option<Ending>,
    ) -> Result<Ending, ExitError> {
        let mut piece = [0; 64 << 10];
        loop {
            if let Some(ending) = is_over() {
                return Ok(ending);
            }
            match daemon.read(&mut piece) {
                Ok(0) => return Ok(Ending::Unmount),
                Ok(len) => self.pending.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(Ending::Unmount);
                }
                Err(error) => is_passing(error)
                    .map_err(|error| ExitError::system(format_args!("recording: {error}")))?,
            }
            if !self.copy_lines()? {
                return Ok(Ending::Size);
            }
        }
    }

    /// Writes the whole lines that have come. Returns `false` if the file has no room for the next one.
    fn copy_lines(&mut self) -> Result<bool, ExitError> {
        let whole = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut lines: Vec<u8> = self.pending.drain(..whole).collect();
        let mut taken = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.len + (taken + line.len()) as u64 > self.len_max {
                break;
            }
            self.count(line)?;
            taken += line.len();
        }
        lines.truncate(taken);
        let has_room = taken == whole;
        let written = self.write(&lines);
        written.map_err(|error| ExitError::system(format_args!("writing the trace: {error}")))?;
        if self.pending.len() > LINE_LEN_MAX { Err(unknown()) } else { Ok(has_room) }
    }

    /// Counts the request of a line, which another user's daemon may have sent.
    fn count(&mut self, line: &[u8]) -> Result<(), ExitError> {
        let line = str::from_utf8(line).map_err(|_| unknown())?.trim_end_matches('\n');
        let request: TraceRequest = line.parse().map_err(|_| unknown())?;
        match request.operation {
            TraceOperation::Lost => self.end.lost = self.end.lost.saturating_add(request.len),
            _ => self.end.requests += 1,
        }
        Ok(())
    }
}

fn unknown() -> ExitError {
    ExitError::mount("the daemon's trace is of another version of sfs")
}

//! A recording of requests that a client has asked for: the daemon's end.

use std::fmt::Write;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::handler::ControlHandler;
use super::json_line;
use super::messages::{ControlReply, TraceBeginning};
use super::server::is_connected;
use crate::exit_error::ExitError;

/// Time for the client to begin reading.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(5);

/// Time for the client to take a part of the trace: its disk may be slow.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest time from a request to its line, while few requests come.
const DELAY_MAX: Duration = Duration::from_millis(100);

impl ControlHandler {
    /// Records requests for `client` until it closes its end of the connection, or does not read any more.
    pub(super) fn send_trace(&self, mut client: &UnixStream, names: bool) -> io::Result<()> {
        let Some(recording) = self.recorder.start(names) else {
            let device = &self.device;
            let refusal = ExitError::mount(format_args!("{device}: is being traced already"));
            let end = Instant::now() + BEGIN_WAIT_MAX;
            return json_line::send(client, &ControlReply::from(refusal), end);
        };
        tracing::info!("{}: requests are being recorded", self.device);
        let beginning = TraceBeginning {
            report: Box::new(self.report()),
            write_buffer_bytes: self.options.volume.write_buffer as u64,
        };
        let reply = ControlReply::Tracing(beginning);
        json_line::send(client, &reply, Instant::now() + BEGIN_WAIT_MAX)?;
        // The client's byte says that it reads lines of the trace from now on.
        client.set_read_timeout(Some(BEGIN_WAIT_MAX))?;
        client.read_exact(&mut [0])?;
        let mut lines = String::new();
        loop {
            let is_last = !is_connected(client);
            lines.clear();
            for request in recording.take(if is_last { Duration::ZERO } else { DELAY_MAX }) {
                writeln!(lines, "{request}").expect("memory");
            }
            json_line::send_bytes(client, lines.as_bytes(), Instant::now() + CLIENT_WAIT_MAX)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

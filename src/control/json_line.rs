//! A line of JSON over a socket, with a limit on its length and a deadline.
//!
//! All functions return by the deadline, however slowly the other side reads or writes. There is one line in each
//! direction at a time, so bytes after the newline are not kept.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::socket_deadline::{is_passing, left};

/// Sends `value`.
pub(super) fn send(stream: &UnixStream, value: &impl Serialize, end: Instant) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    send_bytes(stream, &line, end)
}

/// Sends bytes as they are.
pub(super) fn send_bytes(mut stream: &UnixStream, bytes: &[u8], end: Instant) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => rest = &rest[len..],
            Err(error) => is_passing(error)?,
        }
    }
    Ok(())
}

/// Receives a value in a line of at most `len_max` bytes.
///
/// # Errors
///
/// `UnexpectedEof` when the other side has closed, `InvalidData` for a line that is too long or cannot be decoded,
/// `TimedOut` at the deadline.
pub(super) fn receive<T: DeserializeOwned>(
    mut stream: &UnixStream,
    len_max: usize,
    end: Instant,
) -> io::Result<T> {
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let seen = line.len();
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => line.extend_from_slice(&piece[..len]),
            Err(error) => is_passing(error)?,
        }
        if let Some(len) = line[seen..].iter().position(|byte| *byte == b'\n').map(|at| seen + at)
            && len <= len_max
        {
            return serde_json::from_slice(&line[..len])
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
        }
        if line.len() > len_max {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn a_value_is_received_as_it_was_sent() {
        let (here, there) = UnixStream::pair().expect("sockets");
        send(&here, &"two\nlines", soon()).expect("sent");
        assert_eq!(receive::<String>(&there, 100, soon()).expect("received"), "two\nlines");
    }

    #[test]
    fn every_wait_ends_at_its_deadline() {
        let (here, there) = UnixStream::pair().expect("sockets");
        (&here).write_all(b"\"begun").expect("sent");
        let error = receive::<String>(&there, 100, soon()).expect_err("no line");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // The reader stops, and the socket is soon full.
        let error = send(&here, &"x".repeat(8 << 20), soon()).expect_err("the peer does not read");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(here);
        let (here, there) = UnixStream::pair().expect("sockets");
        drop(here);
        let error = receive::<String>(&there, 100, soon()).expect_err("the peer has closed");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn malformed_and_overlong_lines_are_refused() {
        for bytes in [&b"{}\n"[..], b"\xff\xfe\n", b"\n", b"\"open\n", &[b'1'; 200]] {
            let (here, there) = UnixStream::pair().expect("sockets");
            (&here).write_all(bytes).expect("sent");
            let error = receive::<String>(&there, 100, soon()).expect_err("no string");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}

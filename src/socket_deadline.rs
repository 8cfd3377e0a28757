//! Sockets with a deadline: each call gets the time that is left, and is repeated after a signal or a partial wait.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Returns the time until `end`; an error if no time is left, as a socket takes no timeout of zero.
pub(crate) fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Accepts errors after which the call is repeated.
pub(crate) fn is_passing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

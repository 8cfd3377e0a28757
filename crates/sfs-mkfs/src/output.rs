//! What a program says.
//!
//! Owns: what becomes of it where nobody can read it.
//! Promises: an output that is closed or full neither ends a program nor keeps it from its work.
//! Never: decides what is said.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes `text`, as it is, to standard output. Who reads from a pipe may have seen enough: that it is closed
/// is no error.
///
/// # Errors
///
/// Those of write(2), as on a full device; what they lead to reads `output: …`.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. If that cannot be, nobody is there to be told.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

//! Output of a program to its terminal or pipe.
//!
//! A reader that has closed its end of a pipe is no error, and a message to standard error may get lost: neither
//! keeps a program from its work.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes `text`, as it is, to standard output. A closed pipe is no error: its reader may have seen enough.
///
/// # Errors
///
/// Errors of write(2), as on a full device; their text begins with `output: `.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. An error of that write is ignored, as there is no place to report it.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

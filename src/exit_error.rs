//! Why a program gives up.
//!
//! Owns: the exit statuses of mount(8) and umount(8), and the one line that says why.
//! Promises: the line is one line, whatever text went into it.
//! Never: prints.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// Exit statuses, as mount(8) defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Wrong usage, or no permission.
    Usage = 1,
    /// The system lacks something: memory, a module, a program.
    System = 2,
    /// The mount, or the unmount, failed.
    Mount = 32,
    /// It is unmounted, and not all that programs had written is on the device. Of umount(8) with `-a`: some
    /// of it succeeded.
    Loss = 64,
}

/// Why a program gives up: its exit status, and a line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
pub struct ExitError {
    /// The exit status.
    pub status: u8,
    line: String,
}

impl ExitError {
    /// A failure that `text` explains. Line breaks in it become spaces.
    pub fn new(status: ExitStatus, text: impl fmt::Display) -> Self {
        Self::with_status(status as u8, text)
    }

    /// As [`ExitError::new`], with a status that came from another process.
    pub(crate) fn with_status(status: u8, text: impl fmt::Display) -> Self {
        let text = text.to_string();
        let words: Vec<&str> = text.split(['\n', '\r']).map(str::trim).collect();
        Self { status, line: words.join(" ").trim().to_owned() }
    }

    /// Wrong usage, or no permission.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Usage, text)
    }

    /// What is wrong with the command line; where it does not say all, `--help` does.
    pub fn arguments(error: &clap::Error) -> Self {
        let text = error.to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let is_help = |line: &&str| {
            ["Usage:", "tip:", "For more"].iter().any(|start| line.starts_with(start))
        };
        let complaint: Vec<&str> = lines
            .take_while(|line| !is_help(line))
            .map(|line| line.trim_start_matches("error: "))
            .collect();
        Self::usage(format_args!("{}; see --help", complaint.join(" ")))
    }

    /// The system lacks something.
    pub fn system(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::System, text)
    }

    /// It is unmounted, and something is lost that nobody was told of.
    pub fn loss(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Loss, text)
    }

    /// The mount, or the unmount, failed.
    pub fn mount(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Mount, text)
    }
}

/// Describes an error of the system without the number that its `Display` adds.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = ExitError::mount("first\nsecond\r\n  third\n");
        assert_eq!(failure.to_string(), "first second  third");
        assert_eq!(failure.status, 32);
    }
}

//! Exit errors: the reason why a program gives up, as an exit status and one line for the user.
//!
//! The statuses are those of mount(8) and umount(8), except [`ExitStatus::Damage`] and [`ExitStatus::Loss`]. Line breaks in a text
//! become spaces, so the text is always one line.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// Exit statuses, as mount(8) defines them, except [`ExitStatus::Damage`] and [`ExitStatus::Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Wrong usage, or no permission.
    Usage = 1,
    /// The system lacks memory, a kernel module or a program, or a request to the system failed.
    System = 2,
    /// Damage was found, and is still there: the number of fsck(8) for errors that are left.
    Damage = 4,
    /// The mount or the unmount failed.
    Mount = 32,
    /// The filesystem is unmounted, and data that programs had written is lost. umount(8) with `-a` uses
    /// this number for another result: some unmounts succeeded.
    Loss = 64,
}

/// Reason why a program gives up: its exit status, and a line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
pub struct ExitError {
    /// Exit status.
    pub status: u8,
    line: String,
}

impl ExitError {
    /// Makes an error from `text`, whose line breaks become spaces.
    pub fn new(status: ExitStatus, text: impl fmt::Display) -> Self {
        Self::with_status(status as u8, text)
    }

    /// Makes an error from the reply of a daemon, which may be another user's: with a status that a failure has, and
    /// without control characters.
    pub(crate) fn of_daemon(status: u8, line: &str) -> Self {
        let is_known = [1, 2, 4, 32, 64].contains(&status);
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self::with_status(if is_known { status } else { ExitStatus::Mount as u8 }, line)
    }

    /// Makes an error with a status that came from another process.
    pub(crate) fn with_status(status: u8, text: impl fmt::Display) -> Self {
        let text = text.to_string();
        let words: Vec<&str> = text.split(['\n', '\r']).map(str::trim).collect();
        Self { status, line: words.join(" ").trim().to_owned() }
    }

    /// Makes an error for wrong usage or missing permission.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Usage, text)
    }

    /// Makes an error from an error of the command line's parser, with a hint at `--help`.
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

    /// Makes an error for something that the system lacks, or for a request to the system that failed.
    pub fn system(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::System, text)
    }

    /// Makes an error for data that was lost without a report to any program, though the unmount succeeded.
    pub fn loss(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Loss, text)
    }

    /// Makes an error for damage that was found.
    pub fn damage(text: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Damage, text)
    }

    /// Makes an error for a mount or unmount that failed.
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
    fn a_daemon_chooses_no_success_and_no_escape_sequence() {
        let failure = ExitError::of_daemon(0, "\u{1b}]0;title\u{7} gone");
        assert_eq!((failure.status, failure.to_string().as_str()), (32, "]0;title  gone"));
        assert_eq!(ExitError::of_daemon(2, "busy").status, 2);
    }

    #[test]
    fn an_exit_error_is_one_line() {
        let failure = ExitError::mount("first\nsecond\r\n  third\n");
        assert_eq!(failure.to_string(), "first second  third");
        assert_eq!(failure.status, 32);
    }
}

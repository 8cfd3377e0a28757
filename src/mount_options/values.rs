//! Values of mount options. A wrong value is refused with what the option takes.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use sfs_core::request::ErrorReaction;
use sfs_system::{Human, parse_size};

use crate::exit_error::ExitError;

/// Returns the one of `choices` that equals `value`.
pub(super) fn one_of<'a>(
    name: &str,
    value: &str,
    choices: &[&'a str],
) -> Result<&'a str, ExitError> {
    choices.iter().find(|choice| **choice == value).copied().ok_or_else(|| {
        ExitError::usage(format_args!("{name}={value}: give one of {}", choices.join(", ")))
    })
}

/// Parses a number in `range`.
pub(super) fn number<T>(name: &str, value: &str, range: RangeInclusive<T>) -> Result<T, ExitError>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        ExitError::usage(format_args!("{name}={value}: give a number, {first}..{last}"))
    })
}

/// Parses the reaction to damage, by ext4's names.
pub(super) fn reaction(name: &str, value: &str) -> Result<ErrorReaction, ExitError> {
    if value == "panic" {
        return Err(ExitError::usage(format_args!(
            "{name}={value}: a filesystem in user space does not stop the machine; give remount-ro, \
             which stops all writes"
        )));
    }
    Ok(match one_of(name, value, &["continue", "remount-ro"])? {
        "remount-ro" => ErrorReaction::RemountReadOnly,
        _ => ErrorReaction::Continue,
    })
}

/// Parses an address at which only programs of this machine can reach the daemon.
pub(super) fn loopback(name: &str, value: &str) -> Result<SocketAddr, ExitError> {
    let address = value.parse().ok();
    address.filter(|at: &SocketAddr| at.ip().is_loopback() && at.port() > 0).ok_or_else(|| {
        ExitError::usage(format_args!(
            "{name}={value}: give a loopback address and a port, 127.0.0.1:PORT or [::1]:PORT"
        ))
    })
}

/// Parses a size in bytes within `range`.
pub(super) fn size(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, ExitError> {
    parse_size(value).ok().filter(|size| range.contains(size)).ok_or_else(|| {
        let (least, most) = (Human(*range.start()), Human(*range.end()));
        ExitError::usage(format_args!(
            "{name}={value}: give a size from {least} to {most}, such as 64M"
        ))
    })
}

/// Parses the size of memory.
pub(super) fn memory(name: &str, value: &str) -> Result<usize, ExitError> {
    let size = size(name, value, 1 << 20..=1 << 40)?;
    usize::try_from(size).map_err(|_| ExitError::usage(format_args!("{name}={value}: too large")))
}

pub(super) fn seconds(name: &str, value: &str) -> Result<Duration, ExitError> {
    seconds_to(name, value, 3600)
}

/// Parses a time of one second to `most`.
pub(super) fn seconds_to(name: &str, value: &str, most: u64) -> Result<Duration, ExitError> {
    let parsed = value.parse().ok().filter(|secs| (1..=most).contains(secs));
    parsed.map(Duration::from_secs).ok_or_else(|| {
        ExitError::usage(format_args!("{name}={value}: give whole seconds, 1..{most}"))
    })
}

pub(super) fn switch(name: &str, value: &str) -> Result<bool, ExitError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ExitError::usage(format_args!("{name}={value}: give on or off"))),
    }
}

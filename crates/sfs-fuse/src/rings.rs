//! The rings of a mount, if requests can come by io_uring here.
//!
//! Owns: how many there are for which queue, and the reasons why there are none.
//! Promises: what they need is there before the kernel is told of them.
//! Never: serves one.

use std::{fmt, fs, io};

use crate::door::Door;
use crate::entry::Entry;
use crate::init::{Agreed, Config, InitFlags};

/// The kernel has a queue for each of these, whether it runs or not.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// More than this would take more threads than they are worth.
const QUEUES_MAX: u16 = 64;

/// Each queue has at least so many entries, as one request may have to wait.
const ENTRIES_MIN: usize = 2;

/// Why requests come through the device file.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoRings {
    /// They were not wished for.
    NotWished,
    /// The kernel does not offer them: it is older than Linux 6.14, or its fuse module was not told
    /// to, by its parameter `enable_uring`.
    NotOffered,
    /// More processors are possible than this.
    Processors(u16),
    /// The system does not let us have a ring.
    Refused(io::Error),
}

impl fmt::Display for NoRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWished => f.write_str("io_uring was not asked for"),
            Self::NotOffered => f.write_str("the kernel does not offer io_uring"),
            Self::Processors(count) => {
                write!(f, "{count} processors would take too many rings of io_uring")
            }
            Self::Refused(error) => write!(f, "io_uring: {error}"),
        }
    }
}

impl std::error::Error for NoRings {}

/// The entries of all queues, each in a ring of its own, given what the kernel offers.
pub(crate) fn entries(
    door: &Door,
    offered: InitFlags,
    agreed: &Agreed,
    config: &Config,
) -> Result<Vec<Entry>, NoRings> {
    if !config.rings {
        return Err(NoRings::NotWished);
    }
    if !offered.contains(InitFlags::OVER_IO_URING) {
        return Err(NoRings::NotOffered);
    }
    let text = fs::read_to_string(POSSIBLE).map_err(NoRings::Refused)?;
    let queues = count(text.trim()).ok_or(io::ErrorKind::InvalidData);
    let queues = queues.map_err(|kind| NoRings::Refused(kind.into()))?;
    if queues > QUEUES_MAX {
        return Err(NoRings::Processors(queues));
    }
    let each = (2 * config.threads).div_ceil(usize::from(queues)).max(ENTRIES_MIN);
    let numbers = (0..queues).flat_map(|queue| std::iter::repeat_n(queue, each));
    let entries = numbers.map(|queue| Entry::new(door, queue, agreed.max_write));
    entries.collect::<io::Result<_>>().map_err(NoRings::Refused)
}

/// How many numbers a list as "0-3,8" has. `None` if it is none.
fn count(list: &str) -> Option<u16> {
    list.split(',').try_fold(0_u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, expected) in [
            ("0", Some(1)),
            ("0-1", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
            ("0-65535", None),
            ("0-x", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
    }
}

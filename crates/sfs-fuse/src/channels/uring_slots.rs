//! The slots of a session: how many io_uring slots there are for each processor, or why there are none.
//!
//! All memory and rings are allocated before the reply to INIT accepts io_uring.

use std::{fs, io};

use crate::channels::fuse_channel::FuseChannel;
use crate::channels::uring_slot::UringSlot;
use crate::protocol::init_features::{Agreed, InitFlags, SessionConfig};

/// File with the list of possible processors. The kernel has a queue for each of them, online or not.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Largest number of queues. Rings for more queues would take too many threads.
const QUEUES_MAX: u16 = 64;

/// Smallest number of slots for each queue, as one request may have to wait.
const SLOTS_MIN: usize = 2;

/// Reason why requests come through the device file instead of io_uring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoUring {
    /// The configuration does not ask for io_uring.
    #[error("the configuration does not ask for io_uring")]
    NotWished,
    /// The session was taken over from another program, with its channels.
    #[error("the mount was taken over from another program")]
    TakenOver,
    /// The kernel does not offer io_uring: it is older than Linux 6.14, or the parameter `enable_uring` of its fuse
    /// module is off.
    #[error("the kernel does not offer io_uring")]
    NotOffered,
    /// The machine may have this number of processors, too many for a ring each.
    #[error("{0} processors need too many rings of io_uring")]
    Processors(u16),
    /// The system refused a ring.
    #[error("the system refuses a ring of io_uring: {0}")]
    Refused(io::Error),
}

/// Allocates the slots of all queues, each in a ring of its own.
pub(crate) fn open_all(
    channel: &FuseChannel,
    offered: InitFlags,
    agreed: &Agreed,
    config: &SessionConfig,
) -> Result<Vec<UringSlot>, NoUring> {
    if !config.rings {
        return Err(NoUring::NotWished);
    }
    if !offered.contains(InitFlags::OVER_IO_URING) {
        return Err(NoUring::NotOffered);
    }
    let text = fs::read_to_string(POSSIBLE).map_err(NoUring::Refused)?;
    let queues = count(text.trim()).ok_or(io::ErrorKind::InvalidData);
    let queues = queues.map_err(|kind| NoUring::Refused(kind.into()))?;
    if queues > QUEUES_MAX {
        return Err(NoUring::Processors(queues));
    }
    let each = (2 * config.threads).div_ceil(usize::from(queues)).max(SLOTS_MIN);
    let numbers = (0..queues).flat_map(|queue| std::iter::repeat_n(queue, each));
    let slots = numbers.map(|queue| UringSlot::new(channel, queue, agreed.max_write));
    slots.collect::<io::Result<_>>().map_err(NoUring::Refused)
}

/// Returns the number of processors in a list such as "0-3,8"; `None` if the text is not a list.
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
    fn a_list_of_processors_is_counted() {
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

//! Policy for the bound on dirty data: its size for the free space of a volume and the speed of its device, and when it is
//! set again.
//!
//! As long as the free space is larger than [`BOUND_MIN`], the kernel's dirty data fits into it. close(2) of a new file, and
//! fsync(2), wait behind all of it that is queued.

use std::time::Duration;

use crate::kernel_release;

/// Smallest bound, in bytes. With a smaller bound, the kernel writes back in requests that are too
/// short.
pub(super) const BOUND_MIN: u64 = 4 << 20;

/// Largest bound, in bytes. This size absorbs a burst.
pub(super) const BOUND_MAX: u64 = 256 << 20;

/// Part of what the device writes in a second, as a divisor: a new file is closed in half a second beside a copy.
const SECOND_SHARE: u64 = 2;

/// Divisor of the free space; the quotient is the bound.
const FREE_SHARE: u64 = 4;

/// Time after which the bound is set again. The kernel stores it as a share of its dirty threshold, which changes.
const BOUND_TIME: Duration = Duration::from_secs(3);

/// First kernel that grants the bound to an idle mount. Older kernels reduce the bound to almost
/// nothing for a mount that has written nothing for a while.
const FAIR_SINCE: (u32, u32) = (6, 14);

/// Returns the bound for a volume with `free` free bytes, on a device that writes `speed` bytes in a second, if that is known.
pub(super) fn bound(free: u64, speed: Option<u64>) -> u64 {
    let by_speed = speed.map_or(BOUND_MAX, |speed| speed / SECOND_SHARE);
    (free / FREE_SHARE).min(by_speed).clamp(BOUND_MIN, BOUND_MAX)
}

/// Returns the number of written bytes after which the bound is checked again: a quarter of `free`,
/// but at least 1 MiB.
pub(super) fn check_after(free: u64) -> u64 {
    (free / 4).max(BOUND_MIN / 4)
}

/// Estimates the bytes that a kernel with unknown bound holds, on a machine with `memory` bytes: 1 % of its dirty
/// threshold, which is a fifth of the memory by default.
pub(super) fn assumed(memory: u64) -> u64 {
    memory / 5 / 100
}

/// Returns whether the bound has to be set again with `free` free bytes. The bound was last set
/// `ago`, with `before` free bytes.
pub(super) fn is_due(free: u64, before: u64, ago: Duration) -> bool {
    ago >= BOUND_TIME || free <= before / 2 || free / 2 >= before && free > before
}

/// Returns whether a kernel of this `release`, as uname(2) states it, needs a smallest bound beside the largest. A
/// release that cannot be parsed counts as new.
pub(super) fn needs_min_bound(release: &str) -> bool {
    kernel_release::parse(release).is_some_and(|(major, minor, _)| (major, minor) < FAIR_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_bound_is_a_quarter_of_the_free_space_within_limits() {
        let bounds = [0, 16, 17, 64, 512, 1024, 1 << 20]
            .map(|free: u64| bound(free * MIB, None) as f64 / MIB as f64);
        assert_eq!(bounds, [4.0, 4.0, 4.25, 16.0, 128.0, 256.0, 256.0]);
    }

    #[test]
    fn the_bound_is_half_a_second_of_a_slow_device() {
        let bounds = [1, 20, 90, 500, 5000].map(|speed| bound(1 << 40, Some(speed * MIB)) / MIB);
        assert_eq!(bounds, [4, 10, 45, 250, 256]);
        assert_eq!(bound(64 * MIB, Some(90 * MIB)), 16 * MIB, "the volume is nearly full");
    }

    #[test]
    fn the_bound_is_set_again_when_free_space_halves_or_doubles_and_after_a_while() {
        let soon = Duration::from_millis(1);
        assert!(!is_due(100, 100, soon) && !is_due(51, 100, soon) && !is_due(199, 100, soon));
        assert!(is_due(50, 100, soon) && is_due(200, 100, soon));
        assert!(is_due(100, 100, BOUND_TIME));
        assert!(is_due(1, 0, soon), "there was no free space");
    }

    #[test]
    fn kernels_that_starve_idle_mounts_are_known_by_their_release() {
        for old in ["6.1.0-42-amd64", "5.15", "6.6.99", "6.13.7-arch1-1", "6.12.43+deb13-amd64"] {
            assert!(needs_min_bound(old), "{old}");
        }
        for new in ["6.14.0", "6.18.44-fc-v657", "7.3", "", "linux"] {
            assert!(!needs_min_bound(new), "{new}");
        }
    }
}

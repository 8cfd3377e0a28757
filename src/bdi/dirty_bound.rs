//! How many bytes the kernel may hold dirty for a mount.
//!
//! Owns: the policy: from the free room of a volume to a bound, and when the bound is set anew.
//! Promises: what the kernel may hold stays within the free room as long as there is more than the smallest bound.
//! Never: touches a file.

use std::time::Duration;

/// The smallest bound, in bytes: with less, the kernel writes back in requests that are too short.
pub(super) const BOUND_MIN: u64 = 4 << 20;

/// The largest, in bytes: absorbs a burst, and close(2) still returns within a second or two on a slow card.
pub(super) const BOUND_MAX: u64 = 256 << 20;

/// The share of the free room that the kernel may hold: one in so many.
const ROOM_SHARE: u64 = 4;

/// The kernel keeps a bound as a share of its dirty threshold, which changes: after so long it is set again.
const BOUND_TIME: Duration = Duration::from_secs(3);

/// Kernels before this one give a mount that has written nothing for a while next to nothing of its bound.
const FAIR_SINCE: (u32, u32) = (6, 14);

/// The bound for a volume with `free` bytes of room.
pub(super) fn bound(free: u64) -> u64 {
    (free / ROOM_SHARE).clamp(BOUND_MIN, BOUND_MAX)
}

/// With `free` bytes of room, the bytes that may arrive until there could be half of it.
pub(super) fn look_after(free: u64) -> u64 {
    (free / 4).max(BOUND_MIN / 4)
}

/// What a kernel that does not say how much it holds is taken to hold, with so many bytes of `memory`: 1 % of its
/// dirty threshold, which is a fifth of the memory unless somebody has changed it.
pub(super) fn assumed(memory: u64) -> u64 {
    memory / 5 / 100
}

/// Whether the bound is to be set again when there are `free` bytes, and there were `before` when it was set
/// so long ago.
pub(super) fn is_due(free: u64, before: u64, ago: Duration) -> bool {
    ago >= BOUND_TIME || free <= before / 2 || free / 2 >= before && free > before
}

/// Whether a kernel of this `release`, as uname(2) says it, needs a least bound beside the largest. One that
/// cannot be read is taken for a new one.
pub(super) fn needs_least(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < FAIR_SINCE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_bound_is_a_quarter_of_the_room_within_limits() {
        let bounds = [0, 16, 17, 64, 512, 1024, 1 << 20]
            .map(|free: u64| bound(free * MIB) as f64 / MIB as f64);
        assert_eq!(bounds, [4.0, 4.0, 4.25, 16.0, 128.0, 256.0, 256.0]);
    }

    #[test]
    fn the_bound_is_set_again_when_the_room_halves_or_doubles_and_after_a_while() {
        let soon = Duration::from_millis(1);
        assert!(!is_due(100, 100, soon) && !is_due(51, 100, soon) && !is_due(199, 100, soon));
        assert!(is_due(50, 100, soon) && is_due(200, 100, soon));
        assert!(is_due(100, 100, BOUND_TIME));
        assert!(is_due(1, 0, soon), "there was none");
    }

    #[test]
    fn a_kernel_that_starves_idle_mounts_is_known_by_its_release() {
        for old in ["6.1.0-42-amd64", "5.15", "6.6.99", "6.13.7-arch1-1", "6.12.43+deb13-amd64"] {
            assert!(needs_least(old), "{old}");
        }
        for new in ["6.14.0", "6.18.44-fc-v657", "7.3", "", "linux"] {
            assert!(!needs_least(new), "{new}");
        }
    }
}

//! Policy for volumes that are short of space: when data must not stay in the kernel's cache, and which kernels
//! support that.
//!
//! A volume that is not short has free space for twice the dirty data that the kernel may hold.

use crate::kernel_release;

/// Free space below which a volume is full, in bytes.
const FREE_BYTES_MIN: u64 = 32 << 20;

/// Divisor of a volume's size: less free space than this share makes a small volume full.
const FREE_SHARE: u64 = 8;

/// First kernel that drops cached pages which a reader has brought in during a write past the cache. Older kernels
/// keep such stale pages, and write them back over the new data with the next write to a part of them.
const COHERENT_SINCE: (u32, u32) = (6, 19);

/// Releases of older series that drop such pages, too: from the given patch level on.
const COHERENT_SERIES: [(u32, u32, u32); 2] = [(6, 12, 64), (6, 18, 3)];

/// Returns whether a kernel of this `release`, as uname(2) states it, keeps its cache coherent with writes past it.
/// A release that cannot be parsed does not count.
pub(super) fn is_coherent(release: &str) -> bool {
    let Some((major, minor, patch)) = kernel_release::parse(release) else { return false };
    let has_it = |of: &(u32, u32, u32)| (of.0, of.1) == (major, minor) && patch >= of.2;
    (major, minor) >= COHERENT_SINCE || COHERENT_SERIES.iter().any(has_it)
}

/// Free space of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    /// Free bytes, without reserved ones.
    pub(super) free_bytes: u64,
    /// Size of the volume in bytes.
    pub(super) total_bytes: u64,
    /// Largest number of dirty bytes that the kernel holds.
    pub(super) dirty_bytes_max: u64,
}

impl FreeSpace {
    /// Returns whether writes must reach SFS before write(2) returns, as the kernel could take more than fits.
    pub(super) fn is_short(self) -> bool {
        self.is_full() || self.free_bytes < 2 * self.dirty_bytes_max
    }

    /// Returns whether a writer that knows of a loss is still refused. The kernel's dirty data does not count here:
    /// on a small volume its bound may exceed the size of the volume.
    pub(super) fn is_full(self) -> bool {
        self.free_bytes < FREE_BYTES_MIN.min(self.total_bytes / FREE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn kernels_that_keep_stale_pages_are_known_by_their_release() {
        let old = [
            "6.6.119",
            "6.8.0-45-generic",
            "6.12.63+deb13-amd64",
            "6.18-rc7",
            "6.18.2",
            "6.17.13",
            "",
            "x",
        ];
        for release in old {
            assert!(!is_coherent(release), "{release}");
        }
        for release in ["6.12.64", "6.12.117+deb13-amd64", "6.18.44-fc-v657", "6.19.0", "7.3-rc7"] {
            assert!(is_coherent(release), "{release}");
        }
    }

    #[test]
    fn each_of_three_limits_makes_a_volume_short() {
        let is_short = |free, total, dirty_max| {
            FreeSpace {
                free_bytes: free * MIB,
                total_bytes: total * MIB,
                dirty_bytes_max: dirty_max * MIB,
            }
            .is_short()
        };
        // 32 MiB of a large volume, an eighth of a small one.
        assert!(is_short(31, 10_000, 4) && !is_short(32, 10_000, 4));
        assert!(is_short(15, 128, 4) && !is_short(16, 128, 4));
        // Twice the kernel's dirty data.
        assert!(is_short(199, 10_000, 100) && !is_short(200, 10_000, 100));
        assert!(is_short(0, 0, 4) && is_short(0, 10_000, 0));
    }

    /// An ordinary user's mount of a small volume on a large machine: the kernel may hold more than the volume has.
    #[test]
    fn an_empty_volume_is_not_full() {
        let room = |free| FreeSpace {
            free_bytes: free * MIB,
            total_bytes: 64 * MIB,
            dirty_bytes_max: 44 * MIB,
        };
        assert!(room(60).is_short() && !room(60).is_full());
        assert!(!room(8).is_full() && room(7).is_full());
    }
}

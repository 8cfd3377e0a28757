//! When a volume is short of room.
//!
//! Owns: the policy: how much has to be free so that what the kernel takes will fit, and which kernels can be told to
//! take nothing.
//! Promises: a volume that is not short has room for twice what the kernel may hold for it.
//! Never: looks at a volume, or asks the system.

/// A volume with less than this is short of room, in bytes.
const ROOM_MIN: u64 = 32 << 20;

/// Or with less than this share of itself, if that is less: one in so many.
const ROOM_SHARE: u64 = 8;

/// From this one on, kernels take out of their cache what a reader has brought there while a write past it was under
/// way. What older ones keep is old, is read, and is written back over the new with the next write to a part of it.
const COHERENT_SINCE: (u32, u32) = (6, 19);

/// So do these series, from these releases on.
const COHERENT_SERIES: [(u32, u32, u32); 2] = [(6, 12, 64), (6, 18, 3)];

/// Whether a kernel of this `release`, as uname(2) says it, keeps what is written past its cache and what is read
/// through it the same. One that cannot be read does not.
pub(super) fn is_coherent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|no| no.parse().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return false };
    let patch = numbers.next().unwrap_or(0);
    let has_it = |of: &(u32, u32, u32)| (of.0, of.1) == (major, minor) && patch >= of.2;
    (major, minor) >= COHERENT_SINCE || COHERENT_SERIES.iter().any(has_it)
}

/// The room of a volume, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    /// What is to be had; nothing that is reserved.
    pub(super) free: u64,
    pub(super) total: u64,
    /// What the kernel may hold that was written.
    pub(super) held_max: u64,
}

impl FreeSpace {
    /// Whether write(2) has to be answered by us, lest the kernel takes what does not fit.
    pub(super) fn is_short(self) -> bool {
        self.is_full() || self.free < 2 * self.held_max
    }

    /// Whether there is no room for who has been told so. What the kernel may hold does not count: of a small volume
    /// it may be more than there ever is.
    pub(super) fn is_full(self) -> bool {
        self.free < ROOM_MIN.min(self.total / ROOM_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn kernels_that_keep_old_pages_are_known_by_their_release() {
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
    fn a_volume_is_short_of_room_by_each_of_three_limits() {
        let is_short = |free, total, held_max| {
            FreeSpace { free: free * MIB, total: total * MIB, held_max: held_max * MIB }.is_short()
        };
        // 32 MiB of a large volume, an eighth of a small one.
        assert!(is_short(31, 10_000, 4) && !is_short(32, 10_000, 4));
        assert!(is_short(15, 128, 4) && !is_short(16, 128, 4));
        // What the kernel may hold, twice.
        assert!(is_short(199, 10_000, 100) && !is_short(200, 10_000, 100));
        assert!(is_short(0, 0, 4) && is_short(0, 10_000, 0));
    }

    /// An ordinary user's mount of a small volume on a large machine: the kernel may hold more than the volume has.
    #[test]
    fn an_empty_volume_is_not_full() {
        let room = |free| FreeSpace { free: free * MIB, total: 64 * MIB, held_max: 44 * MIB };
        assert!(room(60).is_short() && !room(60).is_full());
        assert!(!room(8).is_full() && room(7).is_full());
    }
}

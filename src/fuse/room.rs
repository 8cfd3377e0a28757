//! When a volume is short of room.
//!
//! Owns: the policy: how much has to be free so that what the kernel takes will fit.
//! Promises: a volume that is not short has room for twice what the kernel may hold for it.
//! Never: looks at a volume.

/// A volume with less than this is short of room, in bytes.
const ROOM_MIN: u64 = 32 << 20;

/// Or with less than this share of itself, if that is less: one in so many.
const ROOM_SHARE: u64 = 8;

/// The room of a volume, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// What is to be had; nothing that is reserved.
    pub(super) free: u64,
    pub(super) total: u64,
    /// What the kernel may hold that was written.
    pub(super) held_max: u64,
}

impl Room {
    /// Whether write(2) has to be answered by us, lest the kernel takes what does not fit.
    pub(super) fn is_short(self) -> bool {
        self.free < ROOM_MIN.min(self.total / ROOM_SHARE) || self.free < 2 * self.held_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_volume_is_short_of_room_by_each_of_three_limits() {
        let is_short = |free, total, held_max| {
            Room { free: free * MIB, total: total * MIB, held_max: held_max * MIB }.is_short()
        };
        // 32 MiB of a large volume, an eighth of a small one.
        assert!(is_short(31, 10_000, 4) && !is_short(32, 10_000, 4));
        assert!(is_short(15, 128, 4) && !is_short(16, 128, 4));
        // What the kernel may hold, twice.
        assert!(is_short(199, 10_000, 100) && !is_short(200, 10_000, 100));
        assert!(is_short(0, 0, 4) && is_short(0, 10_000, 0));
    }
}

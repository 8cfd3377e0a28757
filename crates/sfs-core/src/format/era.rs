//! Eras: the parts of the log that single mounts and repairs have written.

/// Part of the log that one mount or repair has written. Later eras are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEra {
    /// Number of the mount, from 1 on; 0 if the era is unknown, as in chunks of an older program.
    pub mount: u32,
    /// Sequence number of the first chunk.
    pub first_sequence: u64,
}

impl LogEra {
    /// Era of chunks that name no era.
    pub const UNKNOWN: Self = Self { mount: 0, first_sequence: 0 };

    /// Returns the era of mount number `mount_count`, which begins with the chunk of sequence number
    /// `first_sequence`. Mount numbers above `u32::MAX` become `u32::MAX`.
    pub fn of_mount(mount_count: u64, first_sequence: u64) -> Self {
        Self { mount: u32::try_from(mount_count).unwrap_or(u32::MAX), first_sequence }
    }

    /// Returns whether the era is known.
    pub fn is_known(self) -> bool {
        self.mount != 0
    }
}

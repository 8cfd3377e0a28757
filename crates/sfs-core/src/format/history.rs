//! The history of a block's writes: 48 bits, which the grouping policy writes and reads.

/// Bit of [`History::writes`] that is set for a digest and clear for a count.
const DIGEST: u16 = 1 << 15;

/// Bits of a digest that hold its count.
const DIGEST_COUNT: u16 = 0b111;

/// A block's writes so far, in 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Number of writes since the block was created, 1..=32767, saturating (SFS, section 3.2: W_b). With the highest
    /// bit set, a digest: the lowest three bits are the number, saturating at 7, and the other twelve bits belong to
    /// the policy.
    pub writes: u16,
    /// Time of the last write by a user, in ticks (T_b^m).
    pub modified: u32,
}

impl History {
    /// Largest count.
    pub const WRITE_COUNT_MAX: u16 = DIGEST - 1;

    /// Returns a plain count; `write_count` is cut to [`History::WRITE_COUNT_MAX`].
    pub fn plain(write_count: u16, modified: u32) -> Self {
        Self { writes: write_count.min(Self::WRITE_COUNT_MAX), modified }
    }

    /// Returns a digest; `count` is cut to 7, and `digest` has twelve bits.
    pub fn digested(count: u16, digest: u16, modified: u32) -> Self {
        debug_assert!(digest < 1 << 12);
        Self { writes: DIGEST | digest << 3 | count.min(DIGEST_COUNT), modified }
    }

    /// Returns the count, which a digest holds up to 7.
    pub fn write_count(self) -> u16 {
        if self.writes & DIGEST == 0 { self.writes } else { self.writes & DIGEST_COUNT }
    }

    /// Returns the policy's twelve bits of a digest.
    pub fn digest(self) -> Option<u16> {
        (self.writes & DIGEST != 0).then_some((self.writes & !DIGEST) >> 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_digests_are_distinct() {
        for count in [0, 1, 7, 8, 40_000] {
            let plain = History::plain(count, 9);
            assert_eq!(plain.write_count(), count.min(32_767));
            assert_eq!(plain.digest(), None);
            for digest in [0, 1, 0xfff] {
                let history = History::digested(count, digest, 9);
                assert_eq!(history.write_count(), count.min(7));
                assert_eq!(history.digest(), Some(digest));
            }
        }
    }
}

//! Positions in the tree from which an interrupted walk goes on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sfs_core::format::Key;

/// A key of the tree. Inode numbers are given out once, so a position stays valid over mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TreePosition {
    ino: u64,
    kind: u8,
    offset: u64,
}

impl TreePosition {
    /// The begin of the tree.
    pub(crate) const START: Self = Self { ino: 0, kind: 0, offset: 0 };
}

impl From<Key> for TreePosition {
    fn from(Key { ino, kind, offset }: Key) -> Self {
        Self { ino, kind, offset }
    }
}

impl From<TreePosition> for Key {
    fn from(TreePosition { ino, kind, offset }: TreePosition) -> Self {
        Self { ino, kind, offset }
    }
}

impl fmt::Display for TreePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ino, kind, offset } = self;
        write!(f, "{ino}-{kind}-{offset}")
    }
}

impl FromStr for TreePosition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "not a position of a scrub";
        let mut parts = text.split('-');
        let mut part = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or(WRONG);
        let (ino, kind, offset) = (part()?, part()?, part()?);
        let kind = u8::try_from(kind).map_err(|_| WRONG)?;
        if parts.next().is_none() { Ok(Self { ino, kind, offset }) } else { Err(WRONG) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_printed() {
        for position in [TreePosition::START, Key { ino: 17, kind: 4, offset: u64::MAX }.into()] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "1-2", "1-2-3-4", "1-256-3", "a-1-2", "-1-2-3"] {
            assert!(text.parse::<TreePosition>().is_err(), "{text}");
        }
    }
}

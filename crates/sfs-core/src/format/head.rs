//! Numbers of groups and heads.
//!
//! A grouping policy numbers its groups from 0. Head 0 writes tree nodes and deltas without data; head `group + 1`
//! writes the data of a group.

use bincode::{Decode, Encode};

/// A group of data blocks, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u8);

impl Group {
    /// Returns the first `count` groups.
    pub fn first(count: u8) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self)
    }

    /// Returns the position of the group in a table of all groups.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A head: an appender of the log, with at most one open segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Head(pub u8);

impl Head {
    /// The head of tree nodes and of deltas without data.
    pub const METADATA: Self = Self(0);

    /// Returns the head that writes the data of `group`.
    pub const fn of(group: Group) -> Self {
        Self(group.0 + 1)
    }

    /// Returns the first `count` heads, that of metadata among them.
    pub fn first(count: u8) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self)
    }

    /// Returns the position of the head in a table of all heads.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the group whose data the head writes; `None` for [`Head::METADATA`].
    pub const fn group(self) -> Option<Group> {
        match self.0 {
            0 => None,
            head => Some(Group(head - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_a_head_of_its_own() {
        assert_eq!(Head::METADATA.group(), None);
        for group in (0..8).map(Group) {
            assert_ne!(Head::of(group), Head::METADATA);
            assert_eq!(Head::of(group).group(), Some(group));
        }
    }
}

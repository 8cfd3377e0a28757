//! POSIX access control lists, in the form of the kernel's extended attributes.
//!
//! The value of such an attribute is a `u32` version, then entries of `u16 tag, u16 permissions, u32 id`, all
//! little-endian. A decoded [`AccessList`] is sound. Its *shown* entries are the three that the permission bits of the
//! file repeat: owner, other, and between them the mask, or the group where the list has no mask.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum length in bytes of an access list: the most that a kernel with pages of 4 KiB asks for.
pub const ACCESS_LIST_LEN_MAX: usize = 4096;

/// Version of the form, which Linux has had from the beginning.
const VERSION: u32 = 2;

/// Identity in an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// Bits of the permissions to read, write and execute.
const PERMISSIONS: u16 = 7;

/// The two access lists that a file can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessListKind {
    /// The list that decides who may access the file.
    Access,
    /// The list of a directory that its new files inherit.
    Default,
}

impl AccessListKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Access, Self::Default];

    /// Returns the name of the extended attribute.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }

    /// Returns the kind of list that the extended attribute called `name` holds.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Subject of an entry. The numbers ascend in the order of a sound list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
enum Tag {
    /// Owner of the file.
    Owner = 1,
    /// Another user.
    User = 2,
    /// Group of the file.
    OwningGroup = 4,
    /// Another group.
    Group = 8,
    /// Limit of all entries between the owner's and that of the others.
    Mask = 16,
    /// Everybody else.
    Other = 32,
}

impl Tag {
    fn decode(tag: u16) -> Option<Self> {
        Some(match tag {
            1 => Self::Owner,
            2 => Self::User,
            4 => Self::OwningGroup,
            8 => Self::Group,
            16 => Self::Mask,
            32 => Self::Other,
            _ => return None,
        })
    }

    fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    tag: U16,
    permissions: U16,
    id: U32,
}

/// A sound access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    entries: Vec<Entry>,
}

impl AccessList {
    /// Decodes the value of an extended attribute; `None` if the value is no sound list.
    ///
    /// A sound list is at most [`ACCESS_LIST_LEN_MAX`] bytes long and has one entry each for owner, group and others, a
    /// mask if it names anybody, the entries in the order of their tags, and nobody named twice. Users among each other,
    /// and groups, have any order, as in the kernel.
    pub fn decode(value: &[u8]) -> Option<Self> {
        if value.len() > ACCESS_LIST_LEN_MAX {
            return None;
        }
        let (version, rest) = U32::ref_from_prefix(value).ok()?;
        let raw = <[RawEntry]>::ref_from_bytes(rest).ok().filter(|_| version.get() == VERSION)?;
        let entries = raw.iter().map(decode_entry).collect::<Option<Vec<_>>>()?;
        let list = Self { entries };
        list.is_sound().then_some(list)
    }

    /// Returns the value of the extended attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for Entry { tag, permissions, id } in &self.entries {
            let raw = RawEntry {
                tag: (*tag as u16).into(),
                permissions: (*permissions).into(),
                id: (*id).into(),
            };
            value.extend_from_slice(raw.as_bytes());
        }
        value
    }

    fn is_sound(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let names_anybody = count(Tag::User) + count(Tag::Group) > 0;
        let mut named: Vec<(Tag, u32)> =
            self.entries.iter().filter(|e| e.tag.is_named()).map(|e| (e.tag, e.id)).collect();
        named.sort_unstable();
        [Tag::Owner, Tag::OwningGroup, Tag::Other].into_iter().all(|tag| count(tag) == 1)
            && count(Tag::Mask) <= 1
            && (count(Tag::Mask) == 1 || !names_anybody)
            && self.entries.is_sorted_by_key(|entry| entry.tag)
            && named.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Returns the permission bits of a file with this access list: nine bits.
    pub fn shown(&self) -> u32 {
        let bits = |entry: &Entry| {
            self.shift(entry.tag).map_or(0, |by| u32::from(entry.permissions) << by)
        };
        self.entries.iter().map(bits).sum()
    }

    /// Sets the shown entries to the permission bits of `mode`, as chmod(2) does.
    pub fn show(&mut self, mode: u32) {
        self.change_shown(mode, |_, asked| asked);
    }

    /// Takes the permissions that `mode` lacks from the shown entries, as a file that inherits the list does.
    pub fn restrict(&mut self, mode: u32) {
        self.change_shown(mode, |inherited, asked| inherited & asked);
    }

    fn change_shown(&mut self, mode: u32, change: impl Fn(u16, u16) -> u16) {
        for index in 0..self.entries.len() {
            if let Some(by) = self.shift(self.entries[index].tag) {
                let permissions = &mut self.entries[index].permissions;
                *permissions = change(*permissions, (mode >> by) as u16 & PERMISSIONS);
            }
        }
    }

    /// Returns the place of the entry in the permission bits; `None` if the bits do not show the entry.
    fn shift(&self, tag: Tag) -> Option<u32> {
        match tag {
            Tag::Owner => Some(6),
            Tag::Other => Some(0),
            Tag::Mask => Some(3),
            Tag::OwningGroup if !self.has_mask() => Some(3),
            Tag::OwningGroup | Tag::User | Tag::Group => None,
        }
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.tag == Tag::Mask)
    }

    /// Returns whether the permission bits alone say the same as this access list.
    pub fn is_mode(&self) -> bool {
        !self.has_mask()
    }
}

fn decode_entry(raw: &RawEntry) -> Option<Entry> {
    let tag = Tag::decode(raw.tag.get())?;
    let (permissions, id) = (raw.permissions.get(), raw.id.get());
    let is_sound = permissions & !PERMISSIONS == 0 && tag.is_named() == (id != NOBODY);
    is_sound.then_some(Entry { tag, permissions, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    const OWNER: (u16, u16, u32) = (1, 6, NOBODY);
    const GROUP: (u16, u16, u32) = (4, 5, NOBODY);
    const OTHER: (u16, u16, u32) = (32, 4, NOBODY);

    fn mask(permissions: u16) -> (u16, u16, u32) {
        (16, permissions, NOBODY)
    }

    #[test]
    fn sound_lists_keep_their_bytes() {
        for entries in [
            vec![OWNER, GROUP, OTHER],
            vec![OWNER, GROUP, mask(7), OTHER],
            vec![OWNER, (2, 7, 9), (2, 0, 5), GROUP, (8, 1, 5), mask(3), OTHER],
        ] {
            let bytes = value(&entries);
            assert_eq!(AccessList::decode(&bytes).expect("a sound list").encode(), bytes);
        }
        let users = (0..507).map(|id| (2, 7, id));
        let most: Vec<_> =
            [OWNER].into_iter().chain(users).chain([GROUP, mask(7), OTHER]).collect();
        assert!(AccessList::decode(&value(&most)).is_some(), "4,092 bytes");
    }

    #[test]
    fn unsound_lists_are_refused() {
        let users = (0..508).map(|id| (2, 7, id));
        let too_many = [OWNER].into_iter().chain(users).chain([GROUP, mask(7), OTHER]).collect();
        for (defect, entries) in [
            ("no entries", vec![]),
            ("no owner", vec![GROUP, OTHER]),
            ("no group", vec![OWNER, OTHER]),
            ("no others", vec![OWNER, GROUP]),
            ("two owners", vec![OWNER, OWNER, GROUP, OTHER]),
            ("two masks", vec![OWNER, GROUP, mask(7), mask(7), OTHER]),
            ("a user without a mask", vec![OWNER, (2, 7, 5), GROUP, OTHER]),
            ("a group without a mask", vec![OWNER, GROUP, (8, 7, 5), OTHER]),
            ("a wrong order", vec![OWNER, GROUP, (2, 7, 5), mask(7), OTHER]),
            ("a user twice", vec![OWNER, (2, 7, 5), (2, 7, 6), (2, 0, 5), GROUP, mask(7), OTHER]),
            ("a group twice", vec![OWNER, GROUP, (8, 7, 5), (8, 7, 5), mask(7), OTHER]),
            ("an unknown tag", vec![OWNER, GROUP, OTHER, (64, 0, NOBODY)]),
            ("the tag 0", vec![(0, 0, NOBODY), OWNER, GROUP, OTHER]),
            ("an unknown permission", vec![(1, 8, NOBODY), GROUP, OTHER]),
            ("an owner with a number", vec![(1, 6, 0), GROUP, OTHER]),
            ("a user without a number", vec![OWNER, (2, 7, NOBODY), GROUP, mask(7), OTHER]),
            ("more than fits a page", too_many),
        ] {
            assert_eq!(AccessList::decode(&value(&entries)), None, "{defect}");
        }
        let sound = value(&[OWNER, GROUP, OTHER]);
        for len in 0..sound.len() {
            assert_eq!(AccessList::decode(&sound[..len]), None, "{len} bytes");
        }
        for version in [0, 1, 3] {
            let bytes = [&[version], &sound[1..]].concat();
            assert_eq!(AccessList::decode(&bytes), None, "version {version}");
        }
        assert_eq!(AccessList::decode(&[&sound[..], &[0]].concat()), None, "a byte too many");
    }

    #[test]
    fn the_mode_shows_the_mask_or_the_group() {
        let list = |entries: &[_]| AccessList::decode(&value(entries)).expect("a sound list");
        let mut plain = list(&[OWNER, GROUP, OTHER]);
        assert_eq!((plain.shown(), plain.is_mode()), (0o654, true));
        plain.show(0o4710);
        assert_eq!(plain, list(&[(1, 7, NOBODY), (4, 1, NOBODY), (32, 0, NOBODY)]));

        let mut masked = list(&[OWNER, (2, 7, 5), GROUP, mask(7), OTHER]);
        assert_eq!((masked.shown(), masked.is_mode()), (0o674, false));
        masked.show(0o730);
        assert_eq!(masked, list(&[(1, 7, NOBODY), (2, 7, 5), GROUP, mask(3), (32, 0, NOBODY)]));
        masked.restrict(0o625);
        assert_eq!(masked, list(&[OWNER, (2, 7, 5), GROUP, mask(2), (32, 0, NOBODY)]));
        assert_eq!(masked.shown(), 0o620);
    }
}

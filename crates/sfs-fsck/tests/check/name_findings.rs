//! Findings about items, inodes and names, each for one forged defect.

use sfs_core::format::{FileKind, ItemKind, Key, ROOT_INO};
use sfs_fsck::Finding;

use super::fixture::{forged, populated};
use super::forge::{DATA, Forge, GONE, HELLO, LINK, NEXT_INO, SUB, directory, entry_value};

#[test]
fn misplaced_items_are_found() {
    for key in [
        Key { ino: HELLO, kind: 9, offset: 0 },
        Key::new(0, ItemKind::Inline, 0),
        Key::new(HELLO, ItemKind::Orphan, 0),
        Key::new(HELLO, ItemKind::Inode, 1),
    ] {
        let found = forged(|forge| forge.put(key, vec![1, 2, 3]));
        assert_eq!(found, [Finding::ItemMisplaced { key }]);
    }
    let key = Key::inode(HELLO);
    assert_eq!(forged(|forge| forge.put(key, vec![0; 112])), [Finding::ItemDamaged { key }]);
    let key = Key::new(HELLO, ItemKind::Mapping, 0);
    let found = forged(|forge| forge.put(key, vec![0; 4]));
    assert_eq!(found, [Finding::ItemDamaged { key }]);
    let key = Key::new(0, ItemKind::Orphan, GONE);
    let found = forged(|forge| forge.put(key, vec![0; 7]));
    assert_eq!(found, [Finding::ItemDamaged { key }, Finding::OrphanMissing { ino: GONE }]);
}

#[test]
fn inodes_and_numbers_are_checked() {
    let key = Key::new(NEXT_INO - 1, ItemKind::Inline, 0);
    let found = forged(|forge| {
        forge.items.remove(&Key::inode(GONE));
        forge.items.remove(&Key::new(0, ItemKind::Orphan, GONE));
        forge.put(key, vec![]);
    });
    assert_eq!(found, [Finding::InodeMissing { ino: GONE }]);
    let found = forged(|forge| {
        forge.on_record = Box::new(|record| record.next_ino = GONE);
    });
    assert_eq!(found, [Finding::InodeNumber { ino: GONE }]);
    let found = forged(|forge| {
        forge.items.remove(&Key::inode(ROOT_INO));
    });
    assert_eq!(found[..2], [Finding::InodeMissing { ino: ROOT_INO }, Finding::RootMissing]);
}

#[test]
fn directory_entries_are_checked() {
    let hello = populated().entry_key(ROOT_INO, b"hello");
    let (ino, cookie) = (ROOT_INO, hello.offset);
    let regular = FileKind::Regular;
    let found = forged(|forge| forge.put(hello, entry_value(HELLO, regular, b"hellO")));
    assert_eq!(found, [Finding::EntryHash { ino, cookie }]);
    let found = forged(|forge| forge.put(hello, entry_value(HELLO, FileKind::Fifo, b"hello")));
    assert_eq!(found, [Finding::EntryKind { ino, cookie, target: HELLO }]);
    let found = forged(|forge| {
        forge.put(hello, entry_value(99, regular, b"hello"));
        forge.items.remove(&Key::inode(HELLO));
        forge.items.remove(&Key::new(HELLO, ItemKind::Inline, 0));
    });
    assert_eq!(found, [Finding::EntryDangling { ino, cookie, target: 99 }]);
    let found = forged(|forge| forge.put(hello, vec![0; 8]));
    assert_eq!(found[0], Finding::ItemDamaged { key: hello });

    let twin = Key { offset: hello.offset + 1, ..hello };
    let found = forged(|forge| {
        forge.put(twin, entry_value(HELLO, regular, b"hello"));
        forge.change_inode(HELLO, |inode| inode.links = 2);
        forge.change_inode(ROOT_INO, |inode| inode.size = 5);
    });
    assert_eq!(found, [Finding::EntryTwice { ino, cookie: twin.offset }]);

    for name in [&b"a/b"[..], b"a\0b", b".", b"..", b"", &[b'n'; 256]] {
        let mut cookie = 0;
        let found = forged(|forge| {
            cookie = forge.entry_key(ROOT_INO, name).offset;
            forge.entry(ROOT_INO, name, HELLO, regular);
            forge.items.remove(&hello);
        });
        assert_eq!(found, [Finding::EntryName { ino, cookie }], "{name:?}");
    }
}

#[test]
fn links_sizes_and_parents_are_checked() {
    let change = |ino, change: fn(&mut sfs_core::format::Inode)| {
        forged(|forge| forge.change_inode(ino, change))
    };
    let found = change(DATA, |inode| inode.links = 3);
    assert_eq!(found, [Finding::LinkCount { ino: DATA, links: 3, counted: 2 }]);
    let found = change(ROOT_INO, |inode| inode.links = 2);
    assert_eq!(found, [Finding::LinkCount { ino: ROOT_INO, links: 2, counted: 3 }]);
    let found = change(SUB, |inode| inode.size = 0);
    assert_eq!(found, [Finding::DirectorySize { ino: SUB, size: 0, counted: 1 }]);
    let found = change(SUB, |inode| inode.parent = SUB);
    assert_eq!(found, [Finding::ParentWrong { ino: SUB, parent: SUB, expected: ROOT_INO }]);
    let found = change(HELLO, |inode| inode.parent = SUB);
    assert_eq!(found, [Finding::ParentWrong { ino: HELLO, parent: SUB, expected: 0 }]);
    let found = change(GONE, |inode| inode.links = 1);
    assert_eq!(found, [Finding::Unreachable { ino: GONE }]);
    let found = change(LINK, |inode| inode.links = 0);
    assert_eq!(found, [Finding::OrphanMissing { ino: LINK }]);
}

#[test]
fn directories_in_a_ring_are_unreachable() {
    let ring = [NEXT_INO, NEXT_INO + 1];
    let found = forged(|forge| {
        for (ino, parent) in [(ring[0], ring[1]), (ring[1], ring[0])] {
            forge.inode(ino, &directory(parent, 1, 3));
            forge.entry(parent, b"child", ino, FileKind::Directory);
        }
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 2);
    });
    assert_eq!(found, ring.map(|ino| Finding::Unreachable { ino }));
}

#[test]
fn a_directory_that_is_its_own_parent_is_reported_as_such() {
    let found = forged(|forge| {
        forge.inode(NEXT_INO, &directory(NEXT_INO, 1, 3));
        forge.entry(NEXT_INO, b"self", NEXT_INO, FileKind::Directory);
        forge.on_record = Box::new(|record| record.next_ino = NEXT_INO + 1);
    });
    assert_eq!(found, [Finding::OwnParent { ino: NEXT_INO }]);
    assert_eq!(
        found[0].to_string(),
        "inode 21: directory whose only name is in the directory itself"
    );
    let found = forged(|forge| forge.change_inode(SUB, |inode| inode.parent = SUB));
    let text = format!("inode {SUB}: parent is the directory itself, but should be {ROOT_INO}");
    assert_eq!(found[0].to_string(), text);
}

#[test]
fn a_directory_with_two_names_is_found() {
    let found = forged(|forge| {
        forge.entry(ROOT_INO, b"sub again", SUB, FileKind::Directory);
        forge.change_inode(ROOT_INO, |inode| {
            inode.size = 5;
            inode.links = 4;
        });
    });
    assert_eq!(found, [Finding::DirectoryTwice { ino: SUB }]);
}

#[test]
fn orphans_are_checked() {
    let key = |ino| Key::new(0, ItemKind::Orphan, ino);
    let found = forged(|forge| drop(forge.items.remove(&key(GONE))));
    assert_eq!(found, [Finding::OrphanMissing { ino: GONE }]);
    let found = forged(|forge| forge.put(key(GONE), 3u64.to_le_bytes().to_vec()));
    assert_eq!(found, [Finding::OrphanWrong { ino: GONE }]);
    let found = forged(|forge| forge.put(key(99), vec![0; 8]));
    assert_eq!(found, [Finding::OrphanWrong { ino: 99 }]);
    let cut_data = |first: u64| {
        move |forge: &mut Forge| {
            forge.change_inode(DATA, |inode| inode.size = 40 * 4096);
            forge.put(key(DATA), first.to_le_bytes().to_vec());
        }
    };
    assert_eq!(forged(cut_data(u32::MAX.into())), []);
    for nowhere in [1 << 32, u64::MAX] {
        let expected = [
            Finding::OrphanWrong { ino: DATA },
            Finding::MappingBeyondEnd { ino: DATA, block: 40 },
        ];
        assert_eq!(forged(cut_data(nowhere)), expected);
    }
}

//! Findings about the content of files, each for one forged defect.

use sfs_core::format::{Features, FileKind, Head, History, InodeFlags, ItemKind, Key, Mapping};
use sfs_device::BLOCK_SIZE;
use sfs_fsck::Finding;

use super::fixture::{check_device, errors, forged, populated};
use super::forge::{DATA, Forge, GONE, HELLO, LINK, file};

#[test]
fn inline_content_is_checked() {
    let inline = |ino, part| Key::new(ino, ItemKind::Inline, part);
    let found = forged(|forge| forge.put(inline(HELLO, 0), b"hell".to_vec()));
    assert_eq!(found, [Finding::InlineSize { ino: HELLO, size: 5, counted: 4 }]);
    let found = forged(|forge| forge.put(inline(HELLO, 1), b"!".to_vec()));
    assert_eq!(found, [Finding::InlineParts { ino: HELLO }]);
    let found = forged(|forge| forge.put(inline(DATA, 0), b"!".to_vec()));
    assert_eq!(found, [Finding::InlineParts { ino: DATA }]);
    let found = forged(|forge| {
        forge.items.remove(&inline(LINK, 0));
    });
    assert_eq!(found, [Finding::InlineParts { ino: LINK }]);
    let found = forged(|forge| {
        forge.items.remove(&inline(LINK, 0));
        forge.items.remove(&inline(LINK, 1));
        forge.change_inode(LINK, |inode| inode.size = 0);
    });
    assert_eq!(found, [Finding::SymlinkSize { ino: LINK, size: 0 }]);
}

#[test]
fn extended_attributes_are_checked() {
    let ino = DATA;
    let short = populated().xattr_key(DATA, b"user.short", 0);
    let long = populated().xattr_key(DATA, b"user.long", 0);
    let middle = Key { offset: long.offset + 1, ..long };
    let offset = long.offset;
    let found = forged(|forge| drop(forge.items.remove(&middle)));
    assert_eq!(found, [Finding::XattrParts { ino, offset }]);
    let found = forged(|forge| forge.items.get_mut(&long).expect("a part").truncate(5));
    assert_eq!(found, [Finding::XattrParts { ino, offset }]);
    let offset = short.offset;
    let found = forged(|forge| forge.items.get_mut(&short).expect("a part")[8] ^= 1);
    assert_eq!(found, [Finding::XattrHash { ino, offset }]);
    let twin = Key { offset: short.offset | 1 << 16, ..short };
    let found = forged(|forge| forge.put(twin, forge.items[&short].clone()));
    assert_eq!(found, [Finding::XattrTwice { ino, offset: twin.offset }]);
    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.flags = InodeFlags::NONE));
    assert_eq!(found, [Finding::XattrFlag { ino }]);
}

#[test]
fn mappings_are_checked() {
    let address = populated().data_address(0);
    let ino = DATA;
    let at = |address| {
        let checksum = crc32c::crc32c(&[1; BLOCK_SIZE]);
        Mapping { address, checksum: Some(checksum), history: History::plain(2, 9) }
    };
    let found = forged(|forge| forge.map(DATA, 0, at(3)));
    assert_eq!(found, [Finding::MappingOutside { ino, block: 0, address: 3 }]);

    let found = forged(|forge| {
        forge.map(DATA, 2, at(address));
        forge.change_inode(DATA, |inode| inode.blocks = 4);
    });
    let shared = Finding::MappingShared { ino, block: 2, address, other: DATA };
    assert_eq!(found, [shared]);

    let wrong = Mapping { checksum: Some(5), ..at(address) };
    let found = forged(|forge| forge.map(DATA, 0, wrong));
    assert_eq!(
        found,
        [
            Finding::MappingUnknown { ino, block: 0, address },
            Finding::DataDamaged { ino, block: 0, address }
        ]
    );
    let found = forged(|forge| {
        forge.on_entries = Box::new(|entries| entries.swap(0, 1));
    });
    let unknown = |block, address| Finding::MappingUnknown { ino, block, address };
    assert_eq!(found, [unknown(0, address), unknown(1, address + 1)]);

    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.blocks = 7));
    assert_eq!(found, [Finding::BlockCount { ino, blocks: 7, counted: 3 }]);
    let found = forged(|forge| forge.change_inode(DATA, |inode| inode.size = 40 * 4096));
    assert_eq!(found, [Finding::MappingBeyondEnd { ino, block: 40 }]);
    let found = forged(|forge| {
        forge.change_inode(DATA, |inode| inode.size = 40 * 4096);
        forge.put(Key::new(0, ItemKind::Orphan, DATA), 40u64.to_le_bytes().to_vec());
    });
    assert_eq!(found, []);
    let found = forged(|forge| {
        let fifo = sfs_core::format::Inode { links: 0, ..file(FileKind::Fifo, 0) };
        forge.inode(GONE, &fifo);
        forge.map(GONE, 0, at(address));
        forge.map(DATA, 0, Mapping { address: address + 20, ..at(0) });
    });
    // The mapped block is after the head.
    assert_eq!(
        found[..2],
        [Finding::HeadInvalid { head: Head(1) }, Finding::MappingOwner { ino: GONE }]
    );
}

#[test]
fn flags_of_users_need_their_feature() {
    let set = |forge: &mut Forge| {
        forge.change_inode(DATA, |inode| inode.flags |= InodeFlags::IMMUTABLE);
    };
    assert_eq!(forged(set), [Finding::FlagFeature { ino: DATA }]);
    let found = forged(|forge| {
        set(forge);
        forge.superblock.features.read_only_compatible = Features::INODE_FLAGS;
    });
    assert_eq!(found, []);
}

#[test]
fn damaged_data_is_found_only_by_a_check_of_data() {
    let forge = populated();
    let (volume, address) = (forge.build(), forge.data_address(2));
    volume.flip(address, 4000);
    let found = Finding::DataDamaged { ino: DATA, block: 40, address };
    assert_eq!(errors(&volume), [found]);
    let report = check_device(&volume.device, false).expect("a volume");
    assert_eq!(report.errors(), 0);
}

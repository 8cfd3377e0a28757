//! Findings about access lists, and their repair.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{AccessListKind, Features, FileKind, Inode, InodeFlags, Key};
use sfs_core::request::VolumeOptions;
use sfs_device::Device;
use sfs_fsck::{Finding, Loss};

use super::fixture::{NOW, check_device, errors, populated, repair_with};
use super::forge::{DATA, Forge, HELLO, LINK, SUB};

const ACCESS: &[u8] = AccessListKind::Access.name();
const DEFAULT: &[u8] = AccessListKind::Default.name();

/// `u::rw-,u:5:rwx,g::r--,m::rw-,o::r--`, the list of a file with mode 664.
const LIST: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 7, 5), (4, 4, !0), (16, 6, !0), (32, 4, !0)];

fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Returns a list with the shown permissions of [`LIST`] whose value takes two parts.
fn long_list() -> Vec<u8> {
    let users = (0..200).map(|id| (2, 7, id));
    value(&[LIST[0]].into_iter().chain(users).chain(LIST[2..].to_vec()).collect::<Vec<_>>())
}

/// Returns a volume that declares access lists, with the attribute `name` of `ino`, whose permission bits are `mode`.
fn listed(ino: u64, mode: u32, name: &[u8], value: &[u8]) -> Forge {
    let mut forge = populated();
    forge.superblock.features.read_only_compatible = Features::ACCESS_LISTS;
    forge.change_inode(ino, |inode| {
        inode.mode = inode.mode & !0o777 | mode;
        inode.flags |= InodeFlags::XATTRS;
    });
    forge.xattr(ino, name, value);
    forge
}

/// Repairs the volume, by preening if that is enough; returns the repaired volume and the losses.
fn repaired(forge: &Forge, preen: bool) -> (Volume, Vec<Loss>) {
    let device = Arc::new(forge.build().device);
    let shared: Arc<dyn Device> = device.clone();
    if !preen {
        let refused = repair_with(&shared, true, false);
        assert!(refused.after.is_none(), "preening repairs only without losses");
    }
    let outcome = repair_with(&shared, preen, false);
    let after = outcome.after.as_ref().expect("something was written");
    assert_eq!(after.errors(), 0, "{:?}", after.findings.kept());
    assert_eq!(check_device(&*device, true).expect("a volume").errors(), 0);
    let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
    (volume, outcome.losses)
}

fn mode(volume: &Volume, ino: u64) -> u32 {
    volume.attributes(ino).expect("a file").mode & 0o777
}

#[test]
fn sound_access_lists_are_no_findings() {
    for (ino, name, value) in [
        (DATA, ACCESS, value(&LIST)),
        (DATA, ACCESS, long_list()),
        (SUB, ACCESS, value(&LIST)),
        (SUB, DEFAULT, value(&LIST)),
        // A list without named entries may be stored.
        (DATA, ACCESS, value(&[(1, 6, !0), (4, 6, !0), (32, 4, !0)])),
    ] {
        assert_eq!(errors(&listed(ino, 0o664, name, &value).build()), []);
    }
    // A default list says nothing about the directory's own mode.
    assert_eq!(errors(&listed(SUB, 0o700, DEFAULT, &value(&LIST)).build()), []);
}

#[test]
fn invalid_access_lists_are_dropped_with_the_permissions_of_others() {
    let twice = value(&[LIST[0], LIST[1], LIST[1], LIST[2], LIST[3], LIST[4]]);
    for (ino, name, value, kept) in [
        (DATA, ACCESS, value(&LIST[1..]), 0o600),
        (DATA, ACCESS, twice, 0o600),
        (DATA, ACCESS, b"\x01\0\0\0".to_vec(), 0o600),
        (DATA, ACCESS, Vec::new(), 0o600),
        (SUB, DEFAULT, value(&LIST[..4]), 0o664),
        (DATA, DEFAULT, value(&LIST), 0o664),
        (LINK, ACCESS, value(&LIST), 0o664),
    ] {
        let forge = listed(ino, 0o664, name, &value);
        let Key { offset, .. } = forge.xattr_key(ino, name, 0);
        assert_eq!(errors(&forge.build()), [Finding::AccessListInvalid { ino, offset }]);
        let (volume, losses) = repaired(&forge, false);
        assert_eq!(losses, [Loss::Xattr { ino }]);
        assert_eq!(mode(&volume, ino), kept);
        assert!(volume.xattr(ino, name).is_err());
    }
}

/// The attribute is damaged, and its name still tells that it decided about access.
#[test]
fn a_list_with_a_lost_part_takes_the_permissions_of_others_along() {
    let mut forge = listed(HELLO, 0o664, ACCESS, &long_list());
    let second = forge.xattr_key(HELLO, ACCESS, 1);
    forge.items.remove(&second);
    let (volume, losses) = repaired(&forge, false);
    assert_eq!((losses, mode(&volume, HELLO)), (vec![Loss::Xattr { ino: HELLO }], 0o600));
}

#[test]
fn mode_and_list_get_the_permissions_that_both_allow() {
    for list in [value(&LIST), long_list()] {
        let forge = listed(DATA, 0o745, ACCESS, &list);
        let Key { offset, .. } = forge.xattr_key(DATA, ACCESS, 0);
        let found = errors(&forge.build());
        let (ino, mode_found, shown) = (DATA, 0o745, 0o664);
        assert_eq!(found, [Finding::AccessListMode { ino, offset, mode: mode_found, shown }]);
        let (volume, losses) = repaired(&forge, true);
        assert_eq!((mode(&volume, DATA), losses), (0o644, vec![]));
        let mut expected = list.clone();
        let mask_at = list.len() - 16;
        expected[mask_at + 2] = 4;
        assert!(volume.xattr(DATA, ACCESS).expect("the list") == expected);
    }
}

#[test]
fn a_superblock_declares_the_lists_of_its_volume() {
    let mut forge = listed(DATA, 0o664, ACCESS, &value(&LIST));
    forge.superblock.features = Features::default();
    assert_eq!(errors(&forge.build()), [Finding::AccessListsUndeclared]);
    let (volume, losses) = repaired(&forge, true);
    assert_eq!(losses, []);
    assert_eq!(volume.superblock().features.read_only_compatible, Features::ACCESS_LISTS);
    // The repair of other damage declares the lists, too.
    forge.change_inode(DATA, |inode: &mut Inode| inode.links = 7);
    let (volume, _) = repaired(&forge, true);
    assert_eq!(volume.superblock().features.read_only_compatible, Features::ACCESS_LISTS);
    assert_eq!(volume.attributes(DATA).expect("a file").kind(), FileKind::Regular);
}

//! A look inside says what was forged.

use sfs_core::format::{
    Corruption, CorruptionKind, Extension, ExtensionClass, ROOT_INO, Structure,
};
use sfs_fsck::{FsckError, Subject, dump, in_words};

use super::findings::populated;
use super::forge::{DATA, HELLO, Volume};

fn value(volume: &Volume, subject: Subject) -> serde_json::Value {
    dump(&volume.device, &subject).expect("it is there")
}

#[test]
fn superblocks_and_checkpoints_are_shown_damaged_or_not() {
    let mut forge = populated();
    let kept = Extension { tag: 900, class: ExtensionClass::Keep, bytes: vec![7; 5] };
    forge.on_record = Box::new(move |record| record.extensions.set(kept.clone()));
    let volume = forge.build();
    let shown = value(&volume, Subject::Superblock);
    assert_eq!(shown["superblock"]["segment_blocks"], 32);
    assert_eq!(shown["superblock"]["version"], 2);
    assert_eq!(shown["superblock"]["generation"], 1);
    assert_eq!(shown["superblock"]["features"]["read_only_compatible"], "0x0");
    assert_eq!(shown["superblock"]["tick_shift"], 0);
    assert_eq!(shown["superblock"], shown["backup"]);
    let shown = value(&volume, Subject::Checkpoints);
    assert_eq!(shown["slot 0"]["number"], 2);
    let extensions = serde_json::json!([{ "tag": 900, "class": "keep", "len": 5 }]);
    assert_eq!(shown["slot 0"]["extensions"], extensions);
    assert_eq!(shown["slot 0"]["heads"][1]["segment"], 1);
    let at = volume.superblock.layout.slots[1];
    let corruption = Corruption::in_block(Structure::Checkpoint, at, CorruptionKind::Magic);
    assert_eq!(shown["slot 1"]["damaged"], corruption.to_string());
}

#[test]
fn segments_and_nodes_are_shown() {
    let volume = populated().build();
    let shown = value(&volume, Subject::Segment(1));
    assert_eq!(shown["usage"]["live_blocks"], 3);
    assert_eq!(shown["chunks"][0]["whole"], true);
    assert_eq!(shown["chunks"][0]["entries"][2]["block"], 40);
    volume.flip(populated().data_address(2), 7);
    assert_eq!(value(&volume, Subject::Segment(1))["chunks"][0]["whole"], false);
    let shown = value(&volume, Subject::Node(volume.record.root_address));
    assert_eq!(shown["level"], 1);
    let child = shown["children"][0]["address"].as_u64().expect("an address");
    let items = value(&volume, Subject::Node(child));
    assert_eq!(items["items"][0]["key"], "inode 0, orphan 0x14");
    volume.flip(child, 100);
    assert!(value(&volume, Subject::Node(child))["damaged"].is_string());
}

#[test]
fn inodes_and_paths_lead_to_the_same() {
    let volume = populated().build();
    let by_path = value(&volume, Subject::Path(b"/sub/data too".to_vec()));
    assert_eq!(by_path, value(&volume, Subject::Inode(DATA)));
    assert_eq!(by_path["items"][0]["value"]["size"], 41 * 4096 - 7);
    let root = value(&volume, Subject::Path(b"/".to_vec()));
    assert_eq!(root["ino"], ROOT_INO);
    let text = in_words(&value(&volume, Subject::Path(b"hello".to_vec())));
    assert!(text.starts_with(&format!("ino: {HELLO}\nitems:\n  - key inode 16")), "{text}");
    for missing in [Subject::Inode(99), Subject::Path(b"/no".to_vec()), Subject::Segment(9999)] {
        let result = dump(&volume.device, &missing);
        assert!(matches!(result, Err(FsckError::NotThere(_))), "{result:?}");
    }
}

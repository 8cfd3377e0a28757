//! `dump` shows the fields of forged structures.

use sfs_core::format::{
    Corruption, CorruptionKind, Extension, ExtensionClass, ROOT_INO, Structure,
};
use sfs_fsck::{DumpSubject, FsckError, dump, dump_to_text};

use super::fixture::populated;
use super::forge::{DATA, HELLO};
use super::forged_volume::ForgedVolume;

fn value(volume: &ForgedVolume, subject: DumpSubject) -> serde_json::Value {
    dump(&volume.device, &subject).expect("an item")
}

#[test]
fn superblocks_and_checkpoints_are_shown_damaged_or_not() {
    let mut forge = populated();
    let kept = Extension { tag: 900, class: ExtensionClass::Keep, bytes: vec![7; 5] };
    forge.on_record = Box::new(move |record| record.extensions.set(kept.clone()));
    let volume = forge.build();
    let shown = value(&volume, DumpSubject::Superblock);
    assert_eq!(shown["superblock"]["segment_blocks"], 32);
    assert_eq!(shown["superblock"]["version"], 2);
    assert_eq!(shown["superblock"]["generation"], 1);
    assert_eq!(shown["superblock"]["features"]["read_only_compatible"], "0x0");
    assert_eq!(shown["superblock"]["tick_shift"], 0);
    assert_eq!(shown["superblock"], shown["backup"]);
    let shown = value(&volume, DumpSubject::Checkpoints);
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
    let shown = value(&volume, DumpSubject::Segment(1));
    assert_eq!(shown["usage"]["live_blocks"], 3);
    assert_eq!(shown["chunks"][0]["whole"], true);
    assert_eq!(shown["chunks"][0]["entries"][2]["block"], 40);
    volume.flip(populated().data_address(2), 7);
    assert_eq!(value(&volume, DumpSubject::Segment(1))["chunks"][0]["whole"], false);
    let shown = value(&volume, DumpSubject::Node(volume.record.root_address));
    assert_eq!(shown["level"], 1);
    let child = shown["children"][0]["address"].as_u64().expect("an address");
    let items = value(&volume, DumpSubject::Node(child));
    assert_eq!(items["items"][0]["key"], "inode 0, orphan 0x14");
    volume.flip(child, 100);
    assert!(value(&volume, DumpSubject::Node(child))["damaged"].is_string());
}

#[test]
fn a_path_and_an_inode_number_show_the_same_inode() {
    let volume = populated().build();
    let by_path = value(&volume, DumpSubject::Path(b"/sub/data too".to_vec()));
    assert_eq!(by_path, value(&volume, DumpSubject::Inode(DATA)));
    assert_eq!(by_path["items"][0]["value"]["size"], 41 * 4096 - 7);
    let root = value(&volume, DumpSubject::Path(b"/".to_vec()));
    assert_eq!(root["ino"], ROOT_INO);
    let text = dump_to_text(&value(&volume, DumpSubject::Path(b"hello".to_vec())));
    assert!(text.starts_with(&format!("ino: {HELLO}\nitems:\n  - key inode 16")), "{text}");
    for missing in
        [DumpSubject::Inode(99), DumpSubject::Path(b"/no".to_vec()), DumpSubject::Segment(9999)]
    {
        let result = dump(&volume.device, &missing);
        assert!(matches!(result, Err(FsckError::NotFound(_))), "{result:?}");
    }
}

//! The probe on sound, forged and random devices: the result is that of a mount, and the work is bounded. Encodings are
//! compared with those of blkid(8).

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use sfs_core::format::{
    DataLayout, LOCATOR_ADDRESS, Label, Layout, SUPERBLOCK_ADDRESS, Superblock,
};
use sfs_probe::{BLOCK_LEN, FoundVolume, READS_MAX, encoded, find, properties, safe};

const BLOCKS: u64 = 4096;

/// A device in memory, most of whose blocks are zero.
struct Sparse {
    blocks: Vec<(u64, [u8; BLOCK_LEN])>,
    reads: Vec<u64>,
}

impl Sparse {
    fn new(blocks: impl IntoIterator<Item = (u64, [u8; BLOCK_LEN])>) -> Self {
        Self { blocks: blocks.into_iter().collect(), reads: Vec::new() }
    }

    fn find(&mut self, block_count: u64) -> Option<FoundVolume> {
        let found = find(block_count, |at, block| {
            assert!(at < block_count, "block {at} is behind the end");
            self.reads.push(at);
            let content = self.blocks.iter().find(|(address, _)| *address == at);
            *block = content.map_or([0; BLOCK_LEN], |(_, content)| *content);
            true
        });
        assert!(self.reads.len() <= READS_MAX, "{:?}", self.reads);
        found
    }
}

fn superblock(label: &str) -> Superblock {
    let layout = Layout::new(BLOCKS, 32, 0).expect("the volume is large enough");
    let mut superblock = Superblock::new(layout);
    superblock.uuid = [0xab; 16];
    superblock.label = Label::new(label).expect("a valid label");
    superblock.data_layout = DataLayout::Log;
    superblock
}

fn label(found: Option<FoundVolume>) -> String {
    let (_, label) = found.expect("a volume").identity.expect("a readable superblock");
    label.as_str().to_owned()
}

#[test]
fn the_newer_copy_counts_as_in_a_mount() {
    let old = superblock("old");
    let new = Superblock { generation: old.generation + 1, ..superblock("new") };
    let other = Superblock { uuid: [1; 16], generation: 9, ..superblock("other") };
    let backup = old.layout.backup;
    for (first, second, expected) in
        [(&old, &new, "new"), (&new, &old, "new"), (&old, &other, "old"), (&old, &old, "old")]
    {
        let blocks = [(SUPERBLOCK_ADDRESS, first.encode()), (backup, second.encode())];
        assert_eq!(label(Sparse::new(blocks).find(BLOCKS)), expected);
    }
}

#[test]
fn the_backup_is_found_without_the_first_copy() {
    let volume = superblock("kept");
    let backup = (volume.layout.backup, volume.encode());
    let locator = (LOCATOR_ADDRESS, volume.encode());
    // On a device that is as large as the volume, and on a larger one with a locator.
    assert_eq!(label(Sparse::new([backup]).find(BLOCKS)), "kept");
    assert_eq!(label(Sparse::new([backup, locator]).find(2 * BLOCKS)), "kept");
    assert_eq!(Sparse::new([backup]).find(2 * BLOCKS), None);
    let foreign = Superblock { uuid: [7; 16], ..volume.clone() };
    let forged = [backup, (LOCATOR_ADDRESS, foreign.encode())];
    assert_eq!(Sparse::new(forged).find(2 * BLOCKS), None);
}

#[test]
fn a_volume_of_a_newer_program_has_a_type_and_no_name() {
    let mut newer = superblock("secret").encode();
    newer[16] |= 0x80;
    let mut device = Sparse::new([(SUPERBLOCK_ADDRESS, newer)]);
    assert_eq!(device.find(BLOCKS), None, "the checksum is wrong");
    let checksum = crc32c(&newer[12..]).to_le_bytes();
    newer[8..12].copy_from_slice(&checksum);
    let mut device = Sparse::new([(SUPERBLOCK_ADDRESS, newer)]);
    let found = device.find(BLOCKS).expect("a volume");
    assert_eq!(properties(&found), "ID_FS_TYPE=sfs\nID_FS_USAGE=filesystem\nID_FS_VERSION=2\n");
}

/// CRC-32C by its definition.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn a_device_that_cannot_be_read_or_is_too_small_has_no_volume() {
    assert_eq!(find(BLOCKS, |_, _| false), None);
    for block_count in 0..=LOCATOR_ADDRESS + 1 {
        assert_eq!(Sparse::new([]).find(block_count), None);
    }
}

proptest! {
    /// Superblocks with right checksums and any other bytes: the work is bounded, and every output is one that udev can take.
    #[test]
    fn forged_superblocks_are_bounded(
        edits in proptest::collection::vec((12_usize..300, any::<u8>()), 0..24),
        at in prop_oneof![Just(SUPERBLOCK_ADDRESS), Just(LOCATOR_ADDRESS), Just(BLOCKS - 1)],
        block_count in prop_oneof![Just(BLOCKS), 0..3 * BLOCKS, Just(u64::MAX / 4096)],
    ) {
        let mut block = superblock("name").encode();
        for (offset, byte) in edits {
            block[offset] = byte;
        }
        let checksum = crc32c(&block[12..]).to_le_bytes();
        block[8..12].copy_from_slice(&checksum);
        if let Some(found) = Sparse::new([(at, block)]).find(block_count) {
            check_properties(&properties(&found));
        }
    }

    #[test]
    fn any_label_is_one_line_without_quotes(text in "\\PC{0,40}") {
        if let Some(label) = Label::new(&text) {
            let found = FoundVolume { version: Some(2), identity: Some(([3; 16], label)) };
            check_properties(&properties(&found));
        }
    }
}

/// Checks that `text` has only lines `ID_FS_NAME=value`, each name once, without characters that udev or a shell reads.
fn check_properties(text: &str) {
    let mut names = Vec::new();
    for line in text.lines() {
        let (name, value) = line.split_once('=').expect("a name and a value");
        assert!(name.starts_with("ID_FS_") && !names.contains(&name), "{line}");
        names.push(name);
        assert!(!value.contains(['"', '\'', '`', ';', '&', '|', '<', '>', '\0']), "{line}");
        assert!(!value.chars().any(char::is_control), "{line:?}");
        if name.ends_with("_ENC") {
            assert!(!value.contains(['/', ' ', '$']), "{line}");
        }
    }
}

#[test]
fn encodings_are_those_of_blkid() {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let image = directory.path().join("image");
    for label in [
        "plain",
        "two  words",
        " ends ",
        "a/../b",
        "q\"'`$;&|",
        "\\x2f\\xzz",
        "Gerät",
        "%?,<>[]{}~^!*()",
    ] {
        fs::write(&image, vec![0; 1 << 20]).expect("an image");
        let made = Command::new("mke2fs").args(["-q", "-F", "-L", label]).arg(&image).output();
        let blkid = Command::new("blkid").args(["-p", "-o", "udev"]).arg(&image).output();
        let (Ok(made), Ok(blkid)) = (made, blkid) else {
            return eprintln!("skipped: mke2fs or blkid is missing");
        };
        assert!(made.status.success() && blkid.status.success(), "{label}");
        let text = String::from_utf8(blkid.stdout).expect("labels are UTF-8");
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        // libblkid leaves quotes and the like in the text for people.
        if label.chars().all(|c| c.is_alphanumeric() || " /.".contains(c)) {
            assert_eq!(safe(label), value("ID_FS_LABEL="), "{label}");
        }
        assert_eq!(encoded(label.trim_end()), value("ID_FS_LABEL_ENC="), "{label}");
    }
}

#[test]
fn the_program_prints_properties_and_waits_for_no_pipe() {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let image = directory.path().join("image");
    let volume = superblock("two words");
    let mut bytes = vec![0; BLOCKS as usize * BLOCK_LEN];
    let at = SUPERBLOCK_ADDRESS as usize * BLOCK_LEN;
    bytes[at..at + BLOCK_LEN].copy_from_slice(&volume.encode());
    fs::write(&image, bytes).expect("an image");
    let run = |path: &std::path::Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_sfs-probe")).arg(path).output();
        let output = output.expect("the program runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let expected = "ID_FS_TYPE=sfs\nID_FS_USAGE=filesystem\nID_FS_VERSION=2\n\
                    ID_FS_UUID=abababab-abab-abab-abab-abababababab\n\
                    ID_FS_UUID_ENC=abababab-abab-abab-abab-abababababab\n\
                    ID_FS_LABEL=two_words\nID_FS_LABEL_ENC=two\\x20words\n";
    assert_eq!(run(&image), (Some(0), expected.to_owned()));
    fs::write(&image, [0; 100]).expect("an image");
    assert_eq!(run(&image).0, Some(2));
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    assert_eq!(run(&pipe).0, Some(1));
    assert_eq!(run(directory.path()).0, Some(1));
}

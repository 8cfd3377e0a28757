//! Tests of bit rot: blocks whose content changed on the medium or is corrupt when read.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{CorruptionKind, Layout, SUPERBLOCK_ADDRESS, Structure};
use sfs_core::request::VolumeOptions;
use sfs_core::{Error, Volume};
use sfs_device::{Device, FaultyDevice, RamDevice};
use sfs_sim::image::CowImage;
use sfs_sim::model::compare;
use sfs_sim::model::fixture::{SEGMENT_BLOCKS, after, ram, tight};
use sfs_sim::model::operation::{RunLimits, choose};
use sfs_sim::model::pair::VolumePair;
use sfs_sim::model::random::{SplitMix64, number};
use sfs_sim::model::reference::Reference;

use crate::witness::{Witness, check_image};

/// In each iteration the reads of one block are corrupt, and every answer is correct or an error.
#[test]
fn corrupt_reads_of_any_block_give_no_wrong_answer() {
    let limits = RunLimits { bytes: 1 << 20, files: 30, reopens: false };
    let mut random = SplitMix64::new(number("SFS_SEED", 5));
    let base: Arc<RamDevice> = Arc::new(ram(4_400_000, SEGMENT_BLOCKS));
    let mut pair = VolumePair::new(base.clone(), tight());
    for _ in 0..400 {
        let operation = choose(random.draw(), &pair.reference, &limits);
        pair.perform(&operation);
    }
    pair.volume().close().expect("the volume closes");
    pair.reference.forget_all();
    for address in 0..base.geometry().block_count {
        let device = Arc::new(FaultyDevice::new(base.snapshot()));
        device.corrupt_reads(address..address + 1);
        match Volume::open(device, VolumeOptions { read_only: true, ..tight() }, after(10_000_000))
        {
            Ok(volume) => check_answers(&volume, &pair.reference),
            Err(Error::Corrupt(_)) => {}
            Err(error) => panic!("block {address}: {error:?}"),
        }
    }
}

/// Asserts that every answer is correct, or an error that names the corrupt structure.
fn check_answers(volume: &Volume, reference: &Reference) {
    for (ino, node) in &reference.nodes {
        match volume.attributes(*ino) {
            Ok(inode) => compare::attributes(reference, *ino, &inode),
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{ino}: {error:?}"),
        }
        for (name, child) in &node.entries {
            match volume.lookup(*ino, name) {
                Ok(entry) => assert_eq!(entry.ino, *child),
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{ino}: {error:?}"),
            }
        }
        match volume.read(*ino, 0, 100_000) {
            Ok(bytes) => assert!(bytes.as_bytes() == node.content.read(0, 100_000), "{ino}"),
            Err(Error::IsDirectory | Error::Invalid) => {}
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{ino}: {error:?}"),
        }
    }
}

/// In each iteration one bit of one block is flipped on the medium. Every answer is correct or names the corrupt
/// structure, and `sfs-fsck` reports every damage that a mount or a read detects.
#[test]
fn bit_rot_in_every_structure_gives_no_wrong_byte() {
    let witness = Witness::new(11);
    let image = image_of(&witness);
    let mut random = SplitMix64::new(11);
    let mut refused = 0;
    for address in 0..image.geometry().block_count {
        let damaged = image.clone();
        let (byte, bit) = (random.below(4096) as usize, random.below(8));
        damaged.edit(address, |bytes| bytes[byte] ^= 1 << bit);
        let checked = check_image(&witness, &damaged);
        refused += u64::from(checked.is_err());
        if !matches!(checked, Ok(0)) {
            assert!(has_findings(&damaged), "no finding for block {address}: {checked:?}");
        }
    }
    assert!(refused > 0, "no damage was refused by a mount");
}

fn image_of(witness: &Witness) -> CowImage {
    let image = witness.recorded.base.clone();
    for event in &witness.recorded.events {
        sfs_sim::crash::apply(&image, event, sfs_sim::crash::RequestEffect::Done);
    }
    image
}

/// Returns whether the check reports anything, notes included.
fn has_findings(image: &CowImage) -> bool {
    let mut proceed = |_| ControlFlow::Continue(());
    match sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut proceed) {
        Ok(report) => report.errors() > 0 || !report.findings.kept().is_empty(),
        Err(_) => true,
    }
}

/// Either superblock is enough for a mount. With both damaged, the error of the mount names the superblock.
#[test]
fn one_superblock_is_enough() {
    let image = image_of(&Witness::new(12));
    let layout = layout_of(&image);
    for copy in [SUPERBLOCK_ADDRESS, layout.backup] {
        let damaged = flip(&image, &[copy]);
        Volume::open(Arc::new(damaged.clone()), tight(), after(0)).expect("one copy is valid");
        assert!(has_findings(&damaged), "no finding for the superblock at {copy}");
    }
    assert_refused(
        flip(&image, &[SUPERBLOCK_ADDRESS, layout.backup]),
        Structure::Superblock,
        "superblock at block 4: checksum mismatch",
    );
}

/// A mount does not need the older checkpoint. Without the newer checkpoint, the older one is used; if its tree
/// was overwritten since, the mount is refused. Without both, the mount is always refused.
#[test]
fn one_valid_checkpoint_is_mounted_or_refused() {
    let witness = Witness::new(12);
    let image = image_of(&witness);
    let slots = layout_of(&image).slots;
    let mut mounted = 0;
    for slot in slots {
        let damaged = flip(&image, &[slot]);
        mounted += usize::from(check_image(&witness, &damaged).is_ok());
        assert!(has_findings(&damaged), "no finding for the checkpoint at {slot}");
    }
    assert!(mounted > 0, "the mount needed the older checkpoint");
    let both = flip(&image, &slots);
    assert_refused(both, Structure::Checkpoint, "checkpoint at block 16: checksum mismatch");
}

fn layout_of(image: &CowImage) -> Layout {
    Layout::new(image.geometry().block_count, SEGMENT_BLOCKS, 0).expect("a layout")
}

/// Asserts that the image does not mount, and that the error is `message`.
fn assert_refused(image: CowImage, structure: Structure, message: &str) {
    match Volume::open(Arc::new(image), tight(), after(0)) {
        Err(Error::Corrupt(damage)) => {
            assert_eq!((damage.structure, damage.kind), (structure, CorruptionKind::Checksum));
            assert_eq!(damage.to_string(), message);
        }
        other => panic!("{structure:?}: {:?}", other.err()),
    }
}

/// Returns a copy of `image` with one bit flipped in the content of each of these blocks.
fn flip(image: &CowImage, addresses: &[u64]) -> CowImage {
    let damaged = image.clone();
    for address in addresses {
        damaged.edit(*address, |bytes| bytes[40] ^= 4);
    }
    damaged
}

//! Bit rot: blocks that are not what they were.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{CorruptionKind, Layout, SUPERBLOCK_ADDRESS, Structure};
use sfs_core::request::VolumeOptions;
use sfs_core::{Error, Volume};
use sfs_device::{Device, FaultyDevice, RamDevice};
use sfs_sim::image::Image;
use sfs_sim::model::compare;
use sfs_sim::model::operation::{Limits, choose};
use sfs_sim::model::pair::Pair;
use sfs_sim::model::random::{Random, number};
use sfs_sim::model::reference::Reference;
use sfs_sim::model::rig::{SEGMENT_BLOCKS, after, ram, tight};

use crate::witness::{Witness, judge_image};

/// Any one block of the device lies, whatever it holds: errors, but no wrong answer.
#[test]
fn whichever_block_lies_no_answer_is_wrong() {
    let limits = Limits { bytes: 1 << 20, files: 30, reopens: false };
    let mut random = Random::new(number("SFS_SEED", 5));
    let base: Arc<RamDevice> = Arc::new(ram(4_400_000, SEGMENT_BLOCKS));
    let mut pair = Pair::new(base.clone(), tight());
    for _ in 0..400 {
        let operation = choose(random.draw(), &pair.reference, &limits);
        pair.perform(&operation);
    }
    pair.volume().close().expect("it closes");
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

/// Every answer is right, or an error that says what is corrupt.
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

/// A bit of any one block is flipped on the medium, in whatever structure: a mount answers right, or
/// says what is corrupt; and `sfs-fsck` finds whatever a mount or a read of everything found.
#[test]
fn bit_rot_in_every_structure_gives_no_wrong_byte() {
    let witness = Witness::new(11);
    let image = image_of(&witness);
    let mut random = Random::new(11);
    let mut refused = 0;
    for address in 0..image.geometry().block_count {
        let rotten = image.clone();
        let (byte, bit) = (random.below(4096) as usize, random.below(8));
        rotten.edit(address, |bytes| bytes[byte] ^= 1 << bit);
        let judged = judge_image(&witness, &rotten);
        refused += u64::from(judged.is_err());
        if !matches!(judged, Ok(0)) {
            assert!(has_findings(&rotten), "sfs-fsck says nothing of block {address}: {judged:?}");
        }
    }
    assert!(refused > 0, "no block mattered to a mount");
}

fn image_of(witness: &Witness) -> Image {
    let image = witness.history.base.clone();
    for event in &witness.history.events {
        sfs_sim::crash::apply(&image, event, sfs_sim::crash::Fate::Done);
    }
    image
}

/// Whether the check finds something, were it only worth a note.
fn has_findings(image: &Image) -> bool {
    let mut go_on = |_| ControlFlow::Continue(());
    match sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut go_on) {
        Ok(report) => report.errors() > 0 || !report.findings.kept().is_empty(),
        Err(_) => true,
    }
}

/// Either superblock does for a mount; when both are gone, it is refused by name.
#[test]
fn one_superblock_is_enough() {
    let image = image_of(&Witness::new(12));
    let layout = layout_of(&image);
    for copy in [SUPERBLOCK_ADDRESS, layout.backup] {
        let rotten = flip(&image, &[copy]);
        Volume::open(Arc::new(rotten.clone()), tight(), after(0)).expect("the other one is there");
        assert!(has_findings(&rotten), "sfs-fsck says nothing of {copy}");
    }
    assert_refused(
        flip(&image, &[SUPERBLOCK_ADDRESS, layout.backup]),
        Structure::Superblock,
        "superblock at block 4: checksum mismatch",
    );
}

/// The older checkpoint is not needed. Without the newer one the older is taken, whose tree may have
/// been overwritten since: then the mount is refused by name, too. Without both it always is.
#[test]
fn one_checkpoint_is_enough_or_is_refused() {
    let witness = Witness::new(12);
    let image = image_of(&witness);
    let slots = layout_of(&image).slots;
    let mut mounted = 0;
    for slot in slots {
        let rotten = flip(&image, &[slot]);
        mounted += usize::from(judge_image(&witness, &rotten).is_ok());
        assert!(has_findings(&rotten), "sfs-fsck says nothing of {slot}");
    }
    assert!(mounted > 0, "the older one was needed");
    let both = flip(&image, &slots);
    assert_refused(both, Structure::Checkpoint, "checkpoint at block 16: checksum mismatch");
}

fn layout_of(image: &Image) -> Layout {
    Layout::new(image.geometry().block_count, SEGMENT_BLOCKS, 0).expect("it fits")
}

/// The image does not mount; the message is `said`.
fn assert_refused(image: Image, structure: Structure, said: &str) {
    match Volume::open(Arc::new(image), tight(), after(0)) {
        Err(Error::Corrupt(damage)) => {
            assert_eq!((damage.structure, damage.kind), (structure, CorruptionKind::Checksum));
            assert_eq!(damage.to_string(), said);
        }
        other => panic!("{structure:?}: {:?}", other.err()),
    }
}

/// Flips a bit in the middle of what each of these blocks says.
fn flip(image: &Image, addresses: &[u64]) -> Image {
    let rotten = image.clone();
    for address in addresses {
        rotten.edit(*address, |bytes| bytes[40] ^= 4);
    }
    rotten
}

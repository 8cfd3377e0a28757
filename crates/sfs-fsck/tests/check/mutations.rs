//! Arbitrary damage: a check ends without a panic on any content of the device.

use proptest::prelude::*;
use sfs_device::{BLOCK_SIZE, Block, Device, Stream};

use super::fixture::{check_device, populated};
use super::forged_volume::reseal;

#[derive(Clone, Debug)]
enum MutatedStructure {
    Node(u64),
    Superblock,
    Checkpoint,
    Summary,
    Data,
}

fn structures() -> impl Strategy<Value = MutatedStructure> {
    prop_oneof![
        4 => (0..5u64).prop_map(MutatedStructure::Node),
        1 => Just(MutatedStructure::Superblock),
        1 => Just(MutatedStructure::Checkpoint),
        1 => Just(MutatedStructure::Summary),
        1 => Just(MutatedStructure::Data),
    ]
}

fn edits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let interesting =
        prop_oneof![Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    prop::collection::vec((0..BLOCK_SIZE, interesting), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Changed bytes with sound checksums up to the root.
    #[test]
    fn resealed_mutations_never_panic(
        structure in structures(),
        edits in edits(),
        near_start in any::<bool>(),
    ) {
        let mut forge = populated();
        let place = |at: usize| if near_start { at % 200 } else { at };
        let edits: Vec<(usize, u8)> = edits.into_iter().map(|(at, to)| (place(at), to)).collect();
        if let MutatedStructure::Node(level) = structure {
            let edits = edits.clone();
            forge.on_node = Box::new(move |at, bytes| {
                if u64::from(at) == level % 2 {
                    edits.iter().for_each(|(at, to)| bytes[*at] = *to);
                }
            });
        }
        let volume = forge.build();
        let layout = volume.superblock.layout;
        let at = match structure {
            MutatedStructure::Node(_) => None,
            MutatedStructure::Superblock => Some((4, 12, 8)),
            MutatedStructure::Checkpoint => Some((layout.slots[0], 8, 4)),
            MutatedStructure::Summary => Some((layout.segment_address(1), 8, 4)),
            MutatedStructure::Data => Some((layout.segment_address(1) + 1, 8, 4)),
        };
        if let Some((at, from, field)) = at {
            let mut block = Block::zeroed(1);
            volume.device.read(at, &mut block).expect("RAM");
            let bytes = &mut block[0].0;
            edits.iter().for_each(|(at, to)| bytes[*at] = *to);
            let end = match structure {
                MutatedStructure::Checkpoint => {
                    let len = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
                    (32 + len as usize).min(BLOCK_SIZE)
                }
                _ => BLOCK_SIZE,
            };
            let checksum = crc32c::crc32c(&bytes[from..end]).to_le_bytes();
            bytes[field..field + 4].copy_from_slice(&checksum);
            volume.device.write(at, &[&block], Stream::default()).expect("RAM");
        }
        let _ = check_device(&volume.device, true);
    }

    /// Random bytes in random blocks.
    #[test]
    fn raw_mutations_never_panic(edits in prop::collection::vec((0..4096u64, edits()), 1..8)) {
        let volume = populated().build();
        for (at, bytes) in edits {
            // Most of the device is empty.
            let at = if at % 2 == 0 { at } else { at % 80 };
            let mut block = Block::zeroed(1);
            volume.device.read(at, &mut block).expect("RAM");
            bytes.iter().for_each(|(at, to)| block[0].0[*at] = *to);
            if at % 3 == 0 {
                reseal(&mut block[0].0);
            }
            volume.device.write(at, &[&block], Stream::default()).expect("RAM");
        }
        let _ = check_device(&volume.device, true);
    }
}

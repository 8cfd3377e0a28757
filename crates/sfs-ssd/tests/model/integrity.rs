//! Property test: after any sequence of requests, every layer finds the last version of every page.

use crate::fixture::{PAGE, config};
use proptest::prelude::*;
use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{FlashGeometry, HostRequest, RequestKind, Ssd};

/// Geometry of two gangs of two elements, with clustered blocks of eight pages.
const GEOMETRY: FlashGeometry = FlashGeometry {
    channels: 2,
    packages: 2,
    dies: 1,
    planes: 1,
    blocks: 16,
    flash_pages: 4,
    flash_page_size: PAGE as u32,
    gang: 2,
    stripe: 1,
    spare_permille: 600,
};

fn layers() -> Vec<Layer> {
    let mut layers = vec![
        Layer::Fast { log_blocks: 1 },
        Layer::Fast { log_blocks: 4 },
        Layer::Bast { log_blocks: 1 },
        Layer::Bast { log_blocks: 4 },
        Layer::Superblock { log_blocks: 1, width: 2 },
        Layer::Superblock { log_blocks: 4, width: 3 },
    ];
    for collection in [Collection::Greedy, Collection::Fifo] {
        for isolation in [Isolation::Initial, Isolation::Persistent] {
            layers.push(Layer::PageMapped { collection, streams: 2, isolation });
        }
    }
    layers
}

/// Generates a request of the host: kind, first page, number of pages, stream.
fn operation(pages: u32) -> impl Strategy<Value = (RequestKind, u32, u32, u8)> {
    let kind = prop_oneof![
        8 => Just(RequestKind::Write),
        2 => Just(RequestKind::Trim),
        1 => Just(RequestKind::Read),
    ];
    // Half of the operations go to a quarter of the pages; some are long and aligned.
    let first = prop_oneof![0..pages, 0..pages / 4, (0..pages / 8).prop_map(|block| block * 8)];
    (kind, first, prop_oneof![3 => 1..4u32, 1 => Just(8)], 0..3u8)
}

fn check(layer: Layer, wear: WearLevelling, operations: &[(RequestKind, u32, u32, u8)]) {
    let mut ssd = Ssd::new(&config(layer, wear, GEOMETRY)).expect("a device");
    let pages = GEOMETRY.pages();
    let mut versions = vec![None; pages as usize];
    let mut version = 0;
    for &(kind, first, count, stream) in operations {
        let count = count.min(pages - first);
        let request = HostRequest::new(kind, u64::from(first) * PAGE, u64::from(count) * PAGE);
        ssd.serve(&HostRequest { stream, ..request }, 0);
        for page in first..first + count {
            match kind {
                RequestKind::Write => {
                    version += 1;
                    versions[page as usize] = Some(version);
                }
                RequestKind::Trim => versions[page as usize] = None,
                RequestKind::Read | RequestKind::Flush => {}
            }
        }
    }
    let found: Vec<Option<u32>> =
        (0..pages).map(|page| ssd.look_up(page).map(|(_, version)| version)).collect();
    assert_eq!(found, versions, "{layer:?} {wear:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_page_has_its_last_version(
        operations in proptest::collection::vec(operation(GEOMETRY.pages()), 1..600),
    ) {
        for layer in layers() {
            for wear in [
                WearLevelling::None,
                WearLevelling::Dynamic,
                WearLevelling::Static { spread: 2 },
            ] {
                check(layer, wear, &operations);
            }
        }
    }
}

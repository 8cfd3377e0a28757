//! Comparison of the page-mapped layer with theory, and of sequential writes on all layers.

use crate::fixture::{XorShift64, ssd, write_page};
use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{Ssd, theory};

const CLUSTERS: u32 = 1024;
const CLUSTER_PAGES: u32 = 512;

fn page_mapped(collection: Collection, streams: u8) -> Layer {
    Layer::PageMapped { collection, streams, isolation: Isolation::Persistent }
}

/// Returns physical divided by logical space, without the space that holds no data.
///
/// Two blocks hold no data on average: the reserved block, half of the open block, and a free block half of
/// the time.
fn alpha(ssd: &Ssd) -> f64 {
    let geometry = ssd.geometry();
    f64::from(geometry.clusters() - 2) / f64::from(geometry.logical_clusters())
}

/// Fills the device, overwrites it three times to reach the steady state, and three times to measure.
fn steady(ssd: &mut Ssd, mut page: impl FnMut(&mut XorShift64) -> u32) -> f64 {
    let mut random = XorShift64::new(1);
    let pages = ssd.geometry().pages();
    (0..pages).for_each(|page| write_page(ssd, page, 0));
    for round in 0..6 {
        if round == 3 {
            ssd.reset_counters();
        }
        (0..pages).for_each(|_| write_page(ssd, page(&mut random), 0));
    }
    ssd.write_amplification()
}

fn assert_close(found: f64, theory: f64, what: &str) {
    let off = found / theory - 1.0;
    println!("{what}: {found:.3}, in theory {theory:.3}, {:+.1}%", off * 100.0);
    assert!(off.abs() < 0.03, "{what}: {found}, and in theory {theory}");
}

#[test]
fn uniform_random_writes_agree_with_the_closed_form() {
    for (collection, spare_permille) in
        [(Collection::Greedy, 150), (Collection::Greedy, 280), (Collection::Fifo, 150)]
    {
        let layer = page_mapped(collection, 1);
        let mut ssd = ssd(layer, WearLevelling::Dynamic, CLUSTERS, CLUSTER_PAGES, spare_permille);
        let theory = theory::uniform(alpha(&ssd));
        let pages = ssd.geometry().pages();
        let found = steady(&mut ssd, |random| random.below(pages));
        assert_close(found, theory, &format!("{collection:?}, {spare_permille} permille to spare"));
    }
}

#[test]
fn two_classes_of_pages_agree_with_the_closed_form() {
    for (writes, pages_part) in [(0.9, 0.1), (0.8, 0.2)] {
        let layer = page_mapped(Collection::Fifo, 1);
        let mut ssd = ssd(layer, WearLevelling::None, CLUSTERS, CLUSTER_PAGES, 250);
        let theory = theory::two_classes(alpha(&ssd), writes, pages_part);
        let pages = ssd.geometry().pages();
        let hot = (f64::from(pages) * pages_part) as u32;
        let found = steady(&mut ssd, |random| match random.unit() < writes {
            true => random.below(hot),
            false => hot + random.below(pages - hot),
        });
        assert_close(
            found,
            theory,
            &format!("{writes} of the writes to {pages_part} of the pages"),
        );
    }
}

#[test]
fn separate_streams_have_less_write_amplification_than_mixed_ones_in_theory() {
    let (writes, part) = (0.9, 0.1);
    let layer = page_mapped(Collection::Greedy, 2);
    let mut ssd = ssd(layer, WearLevelling::None, CLUSTERS, 128, 250);
    let mixed = theory::two_classes(alpha(&ssd), writes, part);
    let pages = ssd.geometry().pages();
    let hot = (f64::from(pages) * part) as u32;
    let mut random = XorShift64::new(1);
    for _ in 0..6 * pages {
        let is_hot = random.unit() < writes;
        let page = if is_hot { random.below(hot) } else { hot + random.below(pages - hot) };
        write_page(&mut ssd, page, u8::from(!is_hot));
    }
    let found = ssd.write_amplification();
    assert!(found < 0.75 * mixed, "{found}, mixed {mixed}");
}

#[test]
fn sequential_writes_have_no_amplification() {
    let fast = Layer::Fast { log_blocks: 4 };
    let bast = Layer::Bast { log_blocks: 4 };
    let superblock = Layer::Superblock { log_blocks: 4, width: 4 };
    let page_mapped = [Collection::Greedy, Collection::Fifo].map(|kind| page_mapped(kind, 1));
    for layer in page_mapped.into_iter().chain([fast, bast, superblock]) {
        let mut ssd = ssd(layer, WearLevelling::Dynamic, 128, 64, 150);
        let pages = ssd.geometry().pages();
        for _ in 0..3 {
            (0..pages).for_each(|page| write_page(&mut ssd, page, 0));
        }
        assert_eq!(ssd.counters().pages_moved, 0, "{layer:?}");
        assert_eq!(ssd.counters().flash_pages_programmed, 3 * u64::from(pages), "{layer:?}");
    }
}

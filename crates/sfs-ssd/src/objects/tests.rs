//! Tests of the object interface.

use super::*;
use crate::ftl::{Collection, Isolation, Layer, WearLevelling};
use crate::{FlashGeometry, SsdConfig, Timing};

fn store() -> ObjectStore {
    let geometry = FlashGeometry {
        channels: 1,
        packages: 1,
        dies: 1,
        planes: 1,
        blocks: 20,
        flash_pages: 8,
        flash_page_size: 4096,
        gang: 1,
        stripe: 1,
        spare_permille: 500,
    };
    let layer = Layer::PageMapped {
        collection: Collection::Greedy,
        streams: 2,
        isolation: Isolation::Persistent,
    };
    let config = SsdConfig {
        geometry,
        timing: Timing { program_ns: 200, ..Timing::NONE },
        layer,
        wear: WearLevelling::None,
        informed: true,
        cleaning: None,
    };
    ObjectStore::new(Ssd::new(&config).expect("a device"))
}

const PAGE: u64 = 4096;

#[test]
fn the_pages_of_a_deleted_object_are_free_and_not_moved() {
    let mut store = store();
    let pages = u64::from(store.ssd().geometry().pages());
    for _ in 0..10 {
        let id = store.create(ObjectAttributes::default());
        assert!(store.write(id, 0, pages * PAGE, 0).is_ok());
        let other = store.create(ObjectAttributes::default());
        assert_eq!(store.write(other, 0, 1, 0), Err(ObjectError::NoSpace));
        assert!(store.delete(id, 0).is_ok());
        assert_eq!(store.delete(id, 0), Err(ObjectError::NotFound));
    }
    let counters = store.ssd().counters();
    assert_eq!(counters.host_pages_trimmed, 10 * pages);
    assert_eq!(counters.pages_moved, 0, "pages of deleted objects are not moved");
}

#[test]
fn a_page_of_a_read_only_object_is_written_only_once() {
    let mut store = store();
    let id = store.create(ObjectAttributes { read_only: true, priority: false });
    assert!(store.write(id, 0, 2 * PAGE, 0).is_ok());
    assert!(store.write(id, 2 * PAGE, PAGE, 0).is_ok());
    assert_eq!(store.write(id, 2 * PAGE, 1, 0), Err(ObjectError::ReadOnly));
}

#[test]
fn read_only_objects_have_clustered_blocks_of_their_own() {
    let mut store = store();
    let fixed = store.create(ObjectAttributes { read_only: true, priority: false });
    let changing = store.create(ObjectAttributes::default());
    for number in 0..8 {
        store.write(fixed, number * PAGE, PAGE, 0).expect("room");
        store.write(changing, number * PAGE, PAGE, 0).expect("room");
    }
    let clusters = |id: ObjectId| -> BTreeSet<u32> {
        let pages = store.objects[&id].pages.values();
        pages.map(|&page| store.ssd.look_up(page).expect("written").0 / 8).collect()
    };
    assert!(clusters(fixed).is_disjoint(&clusters(changing)));
}

#[test]
fn a_partial_write_of_a_written_page_completes_the_page() {
    let mut store = store();
    let id = store.create(ObjectAttributes::default());
    store.write(id, 100, 2 * PAGE, 0).expect("room");
    assert_eq!(store.ssd().counters().host_pages_written, 3);
    assert_eq!(store.ssd().counters().pages_completed, 0, "the pages were empty before");
    let completion = store.write(id, PAGE, 10, 1000).expect("room");
    assert_eq!(store.ssd().counters().pages_completed, 1);
    assert_eq!(completion.response_ns(), 200);
}

//! Comparison of the object interface and the block interface for the same files (Rajimwale et al.,
//! section 3.7).

use std::collections::BTreeSet;

use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{HostRequest, ObjectAttributes, ObjectStore, RequestKind, Ssd, SsdConfig};

use crate::fixture::{PAGE, XorShift64, config, one_element};

/// Event in the history of a file, with the number of the file.
#[derive(Clone, Copy)]
enum FileEvent {
    /// The file is created; the second number counts its pages.
    Create(usize, u64),
    Delete(usize),
}

/// Interval between the numbers of read-only files, which are never deleted.
const READ_ONLY_INTERVAL: usize = 40;

/// Makes the events of a Postmark run.
///
/// Files of 3 or 4 pages (9 to 15 KB) are created and deleted at random, so that `files_max` files exist,
/// read-only ones included.
fn events(files_max: usize, count: usize) -> Vec<FileEvent> {
    let mut random = XorShift64::new(9);
    let mut deletable = Vec::new();
    let mut events = Vec::new();
    for file in 0..count {
        events.push(FileEvent::Create(file, 3 + u64::from(random.below(2))));
        if file % READ_ONLY_INTERVAL > 0 {
            deletable.push(file);
        }
        if file >= files_max {
            let no = random.below(deletable.len() as u32) as usize;
            events.push(FileEvent::Delete(deletable.swap_remove(no)));
        }
    }
    events
}

fn device(informed: bool) -> Ssd {
    let layer = Layer::PageMapped {
        collection: Collection::Greedy,
        streams: 2,
        isolation: Isolation::Persistent,
    };
    let config = config(layer, WearLevelling::Dynamic, one_element(300, 64, 70));
    Ssd::new(&SsdConfig { informed, ..config }).expect("a device")
}

/// Allocates the first free page from `cursor` on, or else the first free page of the device.
fn next_fit(free: &mut BTreeSet<u64>, cursor: &mut u64) -> u64 {
    let page = free.range(*cursor..).chain(free.iter()).next().copied().expect("a free page");
    free.remove(&page);
    *cursor = page + 1;
    page
}

/// Returns the number of pages that a block device moves under a filesystem that allocates the next
/// free pages and trims freed pages. The device obeys trim requests if `informed` is set.
fn moved_by_blocks(events: &[FileEvent], informed: bool) -> u64 {
    let mut ssd = device(informed);
    let mut free: BTreeSet<u64> = (0..u64::from(ssd.geometry().pages())).collect();
    let mut cursor = 0;
    let mut files: Vec<Vec<u64>> = Vec::new();
    for &event in events {
        match event {
            FileEvent::Create(_, count) => {
                let pages: Vec<u64> =
                    (0..count).map(|_| next_fit(&mut free, &mut cursor)).collect();
                for page in &pages {
                    ssd.serve(&HostRequest::new(RequestKind::Write, page * PAGE, PAGE), 0);
                }
                files.push(pages);
            }
            FileEvent::Delete(file) => {
                for page in std::mem::take(&mut files[file]) {
                    ssd.serve(&HostRequest::new(RequestKind::Trim, page * PAGE, PAGE), 0);
                    free.insert(page);
                }
            }
        }
    }
    ssd.counters().pages_moved
}

fn moved_by_objects(events: &[FileEvent]) -> u64 {
    let mut store = ObjectStore::new(device(true));
    let mut files = Vec::new();
    for &event in events {
        match event {
            FileEvent::Create(file, count) => {
                let read_only = file % READ_ONLY_INTERVAL == 0;
                files.push(store.create(ObjectAttributes { read_only, priority: false }));
                store.write(files[file], 0, count * PAGE, 0).expect("room");
            }
            FileEvent::Delete(file) => {
                store.delete(files[file], 0).expect("the file exists");
            }
        }
    }
    store.ssd().counters().pages_moved
}

#[test]
fn trim_reduces_moved_pages_and_objects_reduce_them_further() {
    let events = events(3000, 40_000);
    let blocks = moved_by_blocks(&events, false);
    let informed = moved_by_blocks(&events, true);
    let objects = moved_by_objects(&events);
    println!("pages moved: blocks {blocks}, with trim {informed}, objects {objects}");
    // The paper reports 0.25 to 0.50 for free-page information (table 5), for files of other ages.
    assert!(informed * 10 < blocks * 8, "{blocks} {informed}");
    assert!(objects * 2 < blocks, "{blocks} {objects}");
}

//! The object interface beside the block one, under the same files (Rajimwale et al., section 3.7).

use std::collections::BTreeSet;

use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{Attributes, Config, ObjectStore, Request, RequestKind, Ssd};

use crate::rig::{PAGE, Random, config, one_element};

/// What happens to files, by their number: made with so many pages, or deleted.
#[derive(Clone, Copy)]
enum Step {
    Create(usize, u64),
    Delete(usize),
}

/// One file in so many is made to stay, and read-only.
const FIXED: usize = 40;

/// Postmark's life: files of 3 or 4 pages (9 to 15 KB) are created and deleted at random, so that
/// there are `files_max`; those that stay are among them.
fn steps(files_max: usize, count: usize) -> Vec<Step> {
    let mut random = Random::new(9);
    let mut mortal = Vec::new();
    let mut steps = Vec::new();
    for file in 0..count {
        steps.push(Step::Create(file, 3 + u64::from(random.below(2))));
        if file % FIXED > 0 {
            mortal.push(file);
        }
        if file >= files_max {
            let no = random.below(mortal.len() as u32) as usize;
            steps.push(Step::Delete(mortal.swap_remove(no)));
        }
    }
    steps
}

fn device(informed: bool) -> Ssd {
    let layer = Layer::PageMapped {
        collection: Collection::Greedy,
        streams: 2,
        isolation: Isolation::Persistent,
    };
    let config = config(layer, WearLevelling::Dynamic, one_element(300, 64, 70));
    Ssd::new(&Config { informed, ..config }).expect("a device")
}

/// The next free page after `cursor`, and from the beginning again.
fn next_fit(free: &mut BTreeSet<u64>, cursor: &mut u64) -> u64 {
    let page = free.range(*cursor..).chain(free.iter()).next().copied().expect("a free page");
    free.remove(&page);
    *cursor = page + 1;
    page
}

/// The files on a filesystem that takes the next free pages and trims what it frees; whether the
/// device listens is its own matter.
fn moved_by_blocks(steps: &[Step], informed: bool) -> u64 {
    let mut ssd = device(informed);
    let mut free: BTreeSet<u64> = (0..u64::from(ssd.geometry().pages())).collect();
    let mut cursor = 0;
    let mut files: Vec<Vec<u64>> = Vec::new();
    for &step in steps {
        match step {
            Step::Create(_, count) => {
                let pages: Vec<u64> =
                    (0..count).map(|_| next_fit(&mut free, &mut cursor)).collect();
                for page in &pages {
                    ssd.serve(&Request::new(RequestKind::Write, page * PAGE, PAGE), 0);
                }
                files.push(pages);
            }
            Step::Delete(file) => {
                for page in std::mem::take(&mut files[file]) {
                    ssd.serve(&Request::new(RequestKind::Trim, page * PAGE, PAGE), 0);
                    free.insert(page);
                }
            }
        }
    }
    ssd.counters().pages_moved
}

fn moved_by_objects(steps: &[Step]) -> u64 {
    let mut store = ObjectStore::new(device(true));
    let mut files = Vec::new();
    for &step in steps {
        match step {
            Step::Create(file, count) => {
                let read_only = file % FIXED == 0;
                files.push(store.create(Attributes { read_only, priority: false }));
                store.write(files[file], 0, count * PAGE, 0).expect("room");
            }
            Step::Delete(file) => {
                store.delete(files[file], 0).expect("it is there");
            }
        }
    }
    store.ssd().counters().pages_moved
}

#[test]
fn a_device_that_knows_what_is_free_moves_less_and_one_that_knows_objects_least() {
    let steps = steps(3000, 40_000);
    let blocks = moved_by_blocks(&steps, false);
    let informed = moved_by_blocks(&steps, true);
    let objects = moved_by_objects(&steps);
    println!("pages moved: blocks {blocks}, with trim {informed}, objects {objects}");
    // The paper has 0.25 to 0.50 for free-page information (table 5), on files of another age.
    assert!(informed * 10 < blocks * 8, "{blocks} {informed}");
    assert!(objects * 2 < blocks, "{blocks} {objects}");
}

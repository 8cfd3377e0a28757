//! Files that are created and deleted on a model of flash, over the block interface and over the object interface
//! of `sfs-ssd` (Rajimwale et al., ATC 2009, section 3.7).
//!
//! The history of the files is the same for every interface. Over blocks, a filesystem allocates the next free pages, as most
//! do, and the device hears of deleted files only if it obeys trims. Over objects the device allocates, and knows which files
//! never change.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_ssd::ftl::{Collection, Isolation, Layer};
use sfs_ssd::{
    HostRequest, ObjectAttributes, ObjectStore, RequestKind, Ssd, SsdConfig, SsdProfile,
};

use crate::random::WorkloadRng;

/// Size of a flash page in all profiles, in bytes.
const PAGE: u64 = 4096;

/// Interval between the numbers of files that never change and are never deleted.
const READ_ONLY_INTERVAL: usize = 40;

/// Interface between the host and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// Blocks, and a device that ignores trims.
    Blocks,
    /// Blocks, and a device that obeys trims.
    BlocksWithTrim,
    /// Objects.
    Objects,
}

impl Interface {
    /// All interfaces.
    pub const ALL: [Interface; 3] =
        [Interface::Blocks, Interface::BlocksWithTrim, Interface::Objects];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::BlocksWithTrim => "blocks with trim",
            Self::Objects => "objects",
        }
    }
}

/// A history of files, and the device on which it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectLoad {
    /// Profile of the device. Its layer is page-mapped, with two streams.
    pub profile: SsdProfile,
    /// Part of the device that the files fill, 0..1.
    pub utilization: f64,
    /// Smallest and largest file, in bytes.
    pub sizes: (u64, u64),
    /// Number of files created and deleted while counting, in multiples of the number of files.
    pub turnover: f64,
}

/// Work of the device for a history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ObjectOutcome {
    /// Number of pages that the cleaner moved.
    pub pages_moved: u64,
    /// Time of moving, in nanoseconds of one element.
    pub moving_ns: u64,
    /// Pages programmed over pages that the host wrote.
    pub amplification: f64,
    /// Time of all requests, one after the other, in nanoseconds.
    pub elapsed_ns: u64,
}

/// A created or deleted file, by its number.
#[derive(Clone, Copy)]
enum FileEvent {
    Create { file: usize, pages: u64 },
    Delete { file: usize },
}

impl ObjectLoad {
    /// Runs the history of a seed. Returns the work after as many files as there can be were created, and half of the
    /// turnover was done.
    ///
    /// # Errors
    ///
    /// If the device has too few spare blocks, or too little room for the files.
    pub fn run(&self, interface: Interface, seed: u64) -> Result<ObjectOutcome> {
        let layer = Layer::PageMapped {
            collection: Collection::Greedy,
            streams: 2,
            isolation: Isolation::Persistent,
        };
        let config = self.profile.clone().with_layer(layer).config();
        let config = SsdConfig { informed: interface != Interface::Blocks, ..config };
        let ssd = Ssd::new(&config).context("too few spare blocks")?;
        let (events, warm_up) = self.events(ssd.capacity(), seed);
        let mut store: Box<dyn FileStore> = match interface {
            Interface::Objects => {
                Box::new(Objects { store: ObjectStore::new(ssd), ids: Vec::new() })
            }
            _ => Box::new(Blocks::new(ssd)),
        };
        let mut now_ns = 0;
        let mut before = (0, *store.ssd().counters());
        for (no, event) in events.into_iter().enumerate() {
            if no == warm_up {
                before = (now_ns, *store.ssd().counters());
            }
            now_ns = match event {
                FileEvent::Create { file, pages } => {
                    store.create(pages, file.is_multiple_of(READ_ONLY_INTERVAL), now_ns)?
                }
                FileEvent::Delete { file } => store.delete(file, now_ns)?,
            };
        }
        let (began_ns, before) = before;
        let after = store.ssd().counters();
        let written = after.host_pages_written - before.host_pages_written;
        let programmed = after.flash_pages_programmed - before.flash_pages_programmed;
        Ok(ObjectOutcome {
            pages_moved: after.pages_moved - before.pages_moved,
            moving_ns: after.moving_ns - before.moving_ns,
            amplification: programmed as f64 / written.max(1) as f64,
            elapsed_ns: now_ns - began_ns,
        })
    }

    /// Returns the history, and the number of events before counting.
    fn events(&self, capacity: u64, seed: u64) -> (Vec<FileEvent>, usize) {
        let mut random = WorkloadRng::new(seed);
        let (smallest, largest) = (self.sizes.0.div_ceil(PAGE), self.sizes.1.div_ceil(PAGE));
        let mean = (smallest + largest) as f64 / 2.0;
        let files_max = (capacity as f64 / PAGE as f64 * self.utilization / mean) as usize;
        let changes = (files_max as f64 * self.turnover * 1.5) as usize;
        let (mut deletable, mut events, mut warm_up) = (Vec::new(), Vec::new(), 0);
        for file in 0..files_max + changes {
            if file == files_max + changes / 3 {
                warm_up = events.len();
            }
            let pages = smallest + u64::from(random.below((largest - smallest + 1) as u32));
            if file >= files_max && !deletable.is_empty() {
                let no = random.below(deletable.len() as u32) as usize;
                events.push(FileEvent::Delete { file: deletable.swap_remove(no) });
            }
            events.push(FileEvent::Create { file, pages });
            // Read-only files are made in the beginning, or they would fill the device.
            if !(file < files_max && file.is_multiple_of(READ_ONLY_INTERVAL)) {
                deletable.push(file);
            }
        }
        (events, warm_up)
    }
}

/// Files on a device. Files have the numbers 0, 1, 2 and so on in the order of their creation.
trait FileStore {
    /// Creates a file, and returns the time at which it is written.
    fn create(&mut self, pages: u64, read_only: bool, at_ns: u64) -> Result<u64>;
    /// Deletes a file, and returns the time at which the device knows it, if it ever does.
    fn delete(&mut self, file: usize, at_ns: u64) -> Result<u64>;
    fn ssd(&self) -> &Ssd;
}

/// Files over the object interface.
struct Objects {
    store: ObjectStore,
    ids: Vec<sfs_ssd::ObjectId>,
}

impl FileStore for Objects {
    fn create(&mut self, pages: u64, read_only: bool, at_ns: u64) -> Result<u64> {
        // A file of later number may be deleted, so it is no read-only object.
        let id = self.store.create(ObjectAttributes { read_only, priority: false });
        self.ids.push(id);
        Ok(self.store.write(id, 0, pages * PAGE, at_ns)?.ended_ns)
    }

    fn delete(&mut self, file: usize, at_ns: u64) -> Result<u64> {
        Ok(self.store.delete(self.ids[file], at_ns)?.ended_ns)
    }

    fn ssd(&self) -> &Ssd {
        self.store.ssd()
    }
}

/// Files over the block interface, under a filesystem that allocates the next free pages.
struct Blocks {
    ssd: Ssd,
    free: BTreeSet<u64>,
    cursor: u64,
    files: Vec<Vec<u64>>,
}

impl Blocks {
    fn new(ssd: Ssd) -> Self {
        let free = (0..ssd.capacity() / PAGE).collect();
        Self { ssd, free, cursor: 0, files: Vec::new() }
    }

    fn next_free(&mut self) -> Result<u64> {
        let page = self.free.range(self.cursor..).chain(&self.free).next().copied();
        let page = page.context("the files do not fit")?;
        self.free.remove(&page);
        self.cursor = page + 1;
        Ok(page)
    }

    /// Sends a request for each run of adjacent pages at `at_ns`, and returns the end of the last one.
    fn serve(&mut self, kind: RequestKind, pages: &[u64], at_ns: u64) -> u64 {
        let runs = pages.chunk_by(|a, b| a + 1 == *b);
        let ends = runs.map(|run| {
            let request = HostRequest::new(kind, run[0] * PAGE, run.len() as u64 * PAGE);
            self.ssd.serve(&HostRequest { arrival_ns: at_ns, ..request }, at_ns).ended_ns
        });
        ends.max().unwrap_or(at_ns)
    }
}

impl FileStore for Blocks {
    fn create(&mut self, pages: u64, _: bool, at_ns: u64) -> Result<u64> {
        let pages: Vec<u64> = (0..pages).map(|_| self.next_free()).collect::<Result<_>>()?;
        let ended_ns = self.serve(RequestKind::Write, &pages, at_ns);
        self.files.push(pages);
        Ok(ended_ns)
    }

    fn delete(&mut self, file: usize, at_ns: u64) -> Result<u64> {
        let pages = std::mem::take(&mut self.files[file]);
        let ended_ns = self.serve(RequestKind::Trim, &pages, at_ns);
        self.free.extend(pages);
        Ok(ended_ns)
    }

    fn ssd(&self) -> &Ssd {
        &self.ssd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_writes_the_same_files_and_objects_move_the_fewest_pages() {
        let profile = SsdProfile::by_name("fast12").expect("a profile").with_capacity(64 << 20);
        let load = ObjectLoad { profile, utilization: 0.7, sizes: (9_216, 15_360), turnover: 2.0 };
        let [blocks, trim, objects] =
            Interface::ALL.map(|interface| load.run(interface, 1).expect("an outcome"));
        assert!(trim.pages_moved * 10 < blocks.pages_moved * 8, "{blocks:?} {trim:?}");
        assert!(objects.pages_moved <= trim.pages_moved, "{trim:?} {objects:?}");
        assert!(objects.amplification >= 1.0 && blocks.amplification > trim.amplification);
        assert_eq!(load.run(Interface::Objects, 1).expect("an outcome"), objects);
    }

    #[test]
    fn files_that_do_not_fit_are_an_error() {
        let profile = SsdProfile::by_name("fast12").expect("a profile").with_capacity(64 << 20);
        let load = ObjectLoad { profile, utilization: 1.2, sizes: (4096, 4096), turnover: 0.1 };
        for interface in Interface::ALL {
            assert!(load.run(interface, 1).is_err(), "{interface:?}");
        }
    }
}

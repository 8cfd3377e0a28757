//! The controller, which splits the byte requests of the host into pages.
//!
//! The controller hands pages to its translation layer one by one. A page that is written in part is
//! completed by reading the rest of it first. Requests are served in the order of the calls;
//! [`RequestQueue`](crate::RequestQueue) reorders and delays them.

use serde::Serialize;
use sfs_device::BLOCK_SIZE;

use crate::counters::SsdCounters;
use crate::flash::Flash;
use crate::ftl::{Ftl, Layer, PageWrite, WearLevelling};
use crate::geometry::FlashGeometry;
use crate::model::TimedModel;
use crate::request::{Completion, HostRequest, RequestKind};
use crate::timing::Timing;

/// Configuration of a device model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SsdConfig {
    /// Geometry of the array.
    pub geometry: FlashGeometry,
    /// Durations of the operations.
    pub timing: Timing,
    /// Translation layer.
    pub layer: Layer,
    /// Wear levelling of the translation layer.
    pub wear: WearLevelling,
    /// `true` if trim requests are obeyed: informed cleaning (Rajimwale et al., section 3.5).
    pub informed: bool,
    /// Thresholds of background cleaning; `None` if blocks are cleaned only when a write needs one.
    pub cleaning: Option<Cleaning>,
}

impl SsdConfig {
    /// Returns the simulated device of Rajimwale et al., with `blocks` erase blocks in each of its eight
    /// packages.
    ///
    /// The device has single-level cells, flash pages of 4 KiB, a quarter of spare space, and a page-mapped
    /// layer. `gang` packages work together, with pages of `stripe` flash pages.
    pub fn eight_packages(gang: u32, stripe: u32, blocks: u32) -> SsdConfig {
        let geometry = FlashGeometry {
            channels: 8,
            packages: 1,
            dies: 1,
            planes: 1,
            blocks,
            flash_pages: 64,
            flash_page_size: 4096,
            gang,
            stripe,
            spare_permille: 250,
        };
        SsdConfig {
            geometry,
            timing: Timing::SLC,
            layer: Layer::GREEDY,
            wear: WearLevelling::Dynamic,
            informed: true,
            cleaning: None,
        }
    }
}

/// Thresholds of background cleaning in a page-mapped device (Rajimwale et al., section 3.6), in free
/// clustered blocks per thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cleaning {
    /// Fraction of free blocks below which the device cleans.
    pub low_permille: u32,
    /// Fraction of free blocks below which the device cleans even while a priority request waits.
    pub critical_permille: u32,
    /// `true` if cleaning is deferred while a priority request waits.
    pub priority_aware: bool,
}

/// Model of a device, without the data.
pub struct Ssd {
    flash: Flash,
    layer: Box<dyn Ftl>,
    informed: bool,
    cleaning: Option<Cleaning>,
    page_size: u64,
    link_free_ns: u64,
    version: u32,
}

impl Ssd {
    /// Makes an erased device; returns `None` if the geometry is not sound, or has too few spare blocks for
    /// the translation layer.
    pub fn new(config: &SsdConfig) -> Option<Ssd> {
        if !config.geometry.is_sound() {
            return None;
        }
        Some(Ssd {
            layer: config.layer.build(&config.geometry, config.wear)?,
            flash: Flash::new(config.geometry.clone(), config.timing),
            informed: config.informed,
            cleaning: config.cleaning,
            page_size: config.geometry.page_size(),
            link_free_ns: 0,
            version: 0,
        })
    }

    /// Makes a device whose pages were each written once, in order, and whose counters are zero.
    ///
    /// Returns `None` in the same cases as [`Ssd::new`].
    pub fn filled(config: &SsdConfig) -> Option<Ssd> {
        let mut ssd = Ssd::new(config)?;
        let page_size = ssd.page_size;
        for page in 0..u64::from(ssd.geometry().pages()) {
            ssd.serve(&HostRequest::new(RequestKind::Write, page * page_size, page_size), 0);
        }
        ssd.reset_counters();
        Some(ssd)
    }

    /// Returns the time at which all elements are idle, in nanoseconds.
    pub fn idle_ns(&self) -> u64 {
        let slots = 0..self.geometry().slots();
        slots.map(|slot| self.flash.free_ns(slot)).max().unwrap_or(0)
    }

    /// Returns the capacity that the host sees, in bytes.
    pub fn capacity(&self) -> u64 {
        self.flash.geometry().capacity()
    }

    /// Returns the geometry of the array.
    pub fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    /// Returns the array, for inspection.
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// Returns the counts since the device was made, or since the last [`Ssd::reset_counters`].
    pub fn counters(&self) -> &SsdCounters {
        &self.flash.counters
    }

    /// Resets the counters to zero; the erase count of each block stays.
    pub fn reset_counters(&mut self) {
        self.flash.counters = SsdCounters::default();
    }

    /// Returns the bytes programmed divided by the bytes that the host wrote.
    pub fn write_amplification(&self) -> f64 {
        self.counters().write_amplification(self.geometry().flash_page_size)
    }

    /// Returns the slot and the number of the last version of a page; `None` if the page holds nothing.
    pub fn look_up(&self, page: u32) -> Option<(u32, u32)> {
        let slot = self.layer.slot(page)?;
        let spare = self.flash.spare(slot).expect("a mapped slot is programmed");
        assert_eq!(spare.page, page, "slot {slot} holds another page");
        Some((slot, spare.version))
    }

    /// Serves a request from `at_ns` on, which must not be before its arrival.
    ///
    /// # Panics
    ///
    /// If the request does not lie wholly on the device.
    pub fn serve(&mut self, request: &HostRequest, at_ns: u64) -> Completion {
        assert!(request.end() <= self.capacity(), "{request:?} ends beyond the device");
        let from_ns = at_ns + self.flash.timing().command_ns;
        let ended_ns = match request.kind {
            RequestKind::Read => self.read(request, from_ns),
            RequestKind::Write => self.write(request, from_ns),
            RequestKind::Trim => self.trim(request, from_ns),
            RequestKind::Flush => {
                self.flash.counters.flush_requests += 1;
                from_ns
            }
        };
        Completion { arrived_ns: request.arrival_ns, begun_ns: at_ns, ended_ns }
    }

    /// Cleans one block if background cleaning is due, and returns whether a block was cleaned.
    ///
    /// `urgent` is `true` while a priority request waits.
    pub fn clean(&mut self, urgent: bool, at_ns: u64) -> bool {
        let Some(cleaning) = self.cleaning else { return false };
        let below = match urgent && cleaning.priority_aware {
            true => cleaning.critical_permille,
            false => cleaning.low_permille,
        };
        self.layer.clean(&mut self.flash, below, at_ns)
    }

    /// Returns the time at which the elements that a request needs first are idle; zero if these elements
    /// are not known in advance.
    pub fn ready_ns(&self, request: &HostRequest) -> u64 {
        let page = (request.offset / self.page_size) as u32;
        let slot = match request.kind {
            RequestKind::Read => self.layer.slot(page),
            RequestKind::Write => self.layer.slot_next(&self.flash, page, request.stream),
            RequestKind::Trim | RequestKind::Flush => None,
        };
        slot.map_or(0, |slot| self.flash.free_ns(slot))
    }

    fn read(&mut self, request: &HostRequest, from_ns: u64) -> u64 {
        self.flash.counters.read_requests += 1;
        self.flash.counters.host_bytes_read += request.len;
        let mut ended_ns = from_ns;
        for (page, bytes) in self.pages(request) {
            let slot = self.layer.slot(page);
            let sensed_ns = slot.map_or(from_ns, |slot| self.flash.read(slot, from_ns));
            ended_ns = ended_ns.max(self.send(bytes, sensed_ns));
        }
        ended_ns
    }

    fn write(&mut self, request: &HostRequest, from_ns: u64) -> u64 {
        self.flash.counters.write_requests += 1;
        self.flash.counters.host_bytes_written += request.len;
        let mut ended_ns = from_ns;
        for (page, bytes) in self.pages(request) {
            self.flash.counters.host_pages_written += 1;
            let mut complete_ns = self.send(bytes, from_ns);
            if bytes < self.page_size
                && let Some(slot) = self.layer.slot(page)
            {
                self.flash.counters.pages_completed += 1;
                complete_ns = complete_ns.max(self.flash.read(slot, from_ns));
            }
            self.version = self.version.wrapping_add(1);
            let write = PageWrite { page, version: self.version, stream: request.stream };
            ended_ns = ended_ns.max(self.layer.write(&mut self.flash, write, complete_ns));
        }
        ended_ns
    }

    fn trim(&mut self, request: &HostRequest, from_ns: u64) -> u64 {
        self.flash.counters.trim_requests += 1;
        let whole = request.offset.div_ceil(self.page_size)..request.end() / self.page_size;
        if self.informed {
            for page in whole {
                self.layer.trim(&mut self.flash, page as u32, from_ns);
            }
        }
        from_ns
    }

    /// Iterates over the pages of a request, with the number of requested bytes in each.
    fn pages(&self, request: &HostRequest) -> impl Iterator<Item = (u32, u64)> + use<> {
        let (page_size, offset, end) = (self.page_size, request.offset, request.end());
        (offset / page_size..end.div_ceil(page_size)).map(move |page| {
            let first = offset.max(page * page_size);
            (page as u32, end.min((page + 1) * page_size) - first)
        })
    }

    /// Transfers bytes over the host interface and returns the time at which the transfer ends.
    fn send(&mut self, bytes: u64, at_ns: u64) -> u64 {
        self.link_free_ns = self.link_free_ns.max(at_ns) + self.flash.timing().link_ns(bytes);
        self.link_free_ns
    }
}

impl TimedModel for Ssd {
    fn geometry(&self) -> sfs_device::Geometry {
        sfs_device::Geometry {
            block_count: self.capacity() / BLOCK_SIZE as u64,
            logical_block_size: 512,
            physical_block_size: BLOCK_SIZE as u32,
            discard_granularity: self.page_size.max(BLOCK_SIZE as u64),
            ..sfs_device::Geometry::default()
        }
    }

    fn serve(&mut self, request: &HostRequest, at_ns: u64) -> Completion {
        Ssd::serve(self, request, at_ns)
    }

    fn idle_ns(&self) -> u64 {
        Ssd::idle_ns(self)
    }

    fn rest(&mut self, at_ns: u64) {
        self.clean(false, at_ns);
    }
}

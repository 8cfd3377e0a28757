//! The controller: from bytes to pages.
//!
//! Owns: the array, the translation layer, and the host's interface.
//! Promises: serves one request after the other; a page that is written in part is completed by
//! reading the rest of it.
//! Never: holds requests back: [`Queue`](crate::Queue) does.

use serde::Serialize;

use crate::ftl::{Ftl, Layer, PageWrite, WearLevelling};
use crate::{Completion, Counters, Flash, Geometry, Request, RequestKind, Timing};

/// A device to be modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Its shape.
    pub geometry: Geometry,
    /// Its times.
    pub timing: Timing,
    /// Its translation layer.
    pub layer: Layer,
    /// How it spreads erases.
    pub wear: WearLevelling,
    /// Whether it listens to trim requests: informed cleaning (Rajimwale et al., section 3.5).
    pub informed: bool,
    /// When it cleans before it must; only when it must if there is none.
    pub cleaning: Option<Cleaning>,
}

impl Config {
    /// The simulated device of Rajimwale et al., with `blocks` erase blocks in each of its eight
    /// packages: single-level cells, pages of 4 KiB, a quarter to spare, page-mapped. `gang` packages
    /// work together, with pages of `stripe` flash pages.
    pub fn eight_packages(gang: u32, stripe: u32, blocks: u32) -> Config {
        let geometry = Geometry {
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
        Config {
            geometry,
            timing: Timing::SLC,
            layer: Layer::GREEDY,
            wear: WearLevelling::Dynamic,
            informed: true,
            cleaning: None,
        }
    }
}

/// When a page-mapped device cleans in the background (Rajimwale et al., section 3.6), in
/// thousandths of its clustered blocks that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cleaning {
    /// Below this it cleans.
    pub low_permille: u32,
    /// Below this it cleans even if a priority request waits.
    pub critical_permille: u32,
    /// Whether it waits for that.
    pub priority_aware: bool,
}

/// A device model without bytes.
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
    /// An erased device; `None` if its geometry is not sound, or its spare blocks are too few for
    /// its translation layer.
    pub fn new(config: &Config) -> Option<Ssd> {
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

    /// A device every page of which was written once, in order, and which has counted nothing; `None`
    /// as in [`Ssd::new`].
    pub fn filled(config: &Config) -> Option<Ssd> {
        let mut ssd = Ssd::new(config)?;
        let page_size = ssd.page_size;
        for page in 0..u64::from(ssd.geometry().pages()) {
            ssd.serve(&Request::new(RequestKind::Write, page * page_size, page_size), 0);
        }
        ssd.reset_counters();
        Some(ssd)
    }

    /// When everything that the device was told has been done.
    pub fn idle_ns(&self) -> u64 {
        let slots = 0..self.geometry().slots();
        slots.map(|slot| self.flash.free_ns(slot)).max().unwrap_or(0)
    }

    /// Bytes that the host sees.
    pub fn capacity(&self) -> u64 {
        self.flash.geometry().capacity()
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        self.flash.geometry()
    }

    /// The array, to look at.
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// What was counted since the beginning, or the last [`Ssd::reset_counters`].
    pub fn counters(&self) -> &Counters {
        &self.flash.counters
    }

    /// Counts from zero again. Erase counts of blocks stay.
    pub fn reset_counters(&mut self) {
        self.flash.counters = Counters::default();
    }

    /// Bytes programmed over bytes that the host wrote.
    pub fn write_amplification(&self) -> f64 {
        self.counters().write_amplification(self.geometry().flash_page_size)
    }

    /// Where the last version of a page is, and which it is.
    pub fn look_up(&self, page: u32) -> Option<(u32, u32)> {
        let slot = self.layer.slot(page)?;
        let spare = self.flash.spare(slot).expect("the mapping points at something");
        assert_eq!(spare.page, page, "slot {slot} holds another page");
        Some((slot, spare.version))
    }

    /// Serves a request from `at_ns` on, which is not before it arrived.
    ///
    /// # Panics
    ///
    /// If it does not lie wholly on the device.
    pub fn serve(&mut self, request: &Request, at_ns: u64) -> Completion {
        assert!(request.end() <= self.capacity(), "{request:?} is past the end");
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

    /// Cleans one block, if cleaning is due; `urgent` says that a priority request waits.
    pub fn clean(&mut self, urgent: bool, at_ns: u64) -> bool {
        let Some(cleaning) = self.cleaning else { return false };
        let below = match urgent && cleaning.priority_aware {
            true => cleaning.critical_permille,
            false => cleaning.low_permille,
        };
        self.layer.clean(&mut self.flash, below, at_ns)
    }

    /// When the elements that a request needs first will have nothing to do; 0 if that is not
    /// known before.
    pub fn ready_ns(&self, request: &Request) -> u64 {
        let page = (request.offset / self.page_size) as u32;
        let slot = match request.kind {
            RequestKind::Read => self.layer.slot(page),
            RequestKind::Write => self.layer.slot_next(&self.flash, page, request.stream),
            RequestKind::Trim | RequestKind::Flush => None,
        };
        slot.map_or(0, |slot| self.flash.free_ns(slot))
    }

    fn read(&mut self, request: &Request, from_ns: u64) -> u64 {
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

    fn write(&mut self, request: &Request, from_ns: u64) -> u64 {
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

    fn trim(&mut self, request: &Request, from_ns: u64) -> u64 {
        self.flash.counters.trim_requests += 1;
        let whole = request.offset.div_ceil(self.page_size)..request.end() / self.page_size;
        if self.informed {
            for page in whole {
                self.layer.trim(&mut self.flash, page as u32, from_ns);
            }
        }
        from_ns
    }

    /// The pages of a request, and how many bytes of each are in it.
    fn pages(&self, request: &Request) -> impl Iterator<Item = (u32, u64)> + use<> {
        let (page_size, offset, end) = (self.page_size, request.offset, request.end());
        (offset / page_size..end.div_ceil(page_size)).map(move |page| {
            let first = offset.max(page * page_size);
            (page as u32, end.min((page + 1) * page_size) - first)
        })
    }

    /// Moves bytes over the host's interface; says when they have arrived.
    fn send(&mut self, bytes: u64, at_ns: u64) -> u64 {
        self.link_free_ns = self.link_free_ns.max(at_ns) + self.flash.timing().link_ns(bytes);
        self.link_free_ns
    }
}

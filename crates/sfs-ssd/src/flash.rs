//! The flash array: cells, elements, channels.
//!
//! Owns: what each slot holds, erase counts, and how long each element and channel is busy.
//! Promises: the rules of NAND: no slot is programmed twice between erases, nor after a later one
//! of its clustered block. Breaking one is a bug of a translation layer, and panics.
//! Never: decides where anything goes.

use crate::divisor::Divisor;
use crate::{Counters, Geometry, Timing};

/// No page, or no slot.
pub(crate) const NONE: u32 = u32::MAX;

/// What stands in the spare area of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The page it holds.
    pub page: u32,
    /// Which writing of it: grows with every write of the host.
    pub version: u32,
}

impl Spare {
    const ERASED: Spare = Spare { page: NONE, version: 0 };
}

/// A flash array.
///
/// Every operation is told the earliest time at which it may begin, in nanoseconds, and returns
/// the time at which it ends. Elements and channels serve in the order of the calls.
pub struct Flash {
    geometry: Geometry,
    timing: Timing,
    cluster_pages: Divisor,
    /// Gangs, pages of a stripe over a gang, and channels: what a slot's elements follow from.
    gangs: Divisor,
    stripes: Divisor,
    channels: Divisor,
    spares: Vec<Spare>,
    /// For each clustered block, how many of its first slots are programmed or passed over.
    filled: Vec<u32>,
    erases: Vec<u32>,
    element_free_ns: Vec<u64>,
    channel_free_ns: Vec<u64>,
    /// What was counted.
    pub counters: Counters,
}

impl Flash {
    /// An erased array.
    ///
    /// # Panics
    ///
    /// If `geometry` is not sound.
    pub fn new(geometry: Geometry, timing: Timing) -> Flash {
        assert!(geometry.is_sound(), "{geometry:?}");
        Flash {
            cluster_pages: Divisor::new(geometry.cluster_pages()),
            gangs: Divisor::new(geometry.gangs()),
            stripes: Divisor::new(geometry.gang / geometry.stripe),
            channels: Divisor::new(geometry.channels),
            spares: vec![Spare::ERASED; geometry.slots() as usize],
            filled: vec![0; geometry.clusters() as usize],
            erases: vec![0; geometry.clusters() as usize],
            element_free_ns: vec![0; geometry.elements() as usize],
            channel_free_ns: vec![0; geometry.channels as usize],
            counters: Counters::default(),
            geometry,
            timing,
        }
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its times.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Pages in a clustered block.
    pub fn cluster_pages(&self) -> u32 {
        self.cluster_pages.number()
    }

    /// How often each clustered block was erased.
    pub fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// How many slots of `cluster` can not be programmed any more before it is erased: always the
    /// first ones.
    pub fn filled(&self, cluster: u32) -> u32 {
        self.filled[cluster as usize]
    }

    /// The slot `index` pages into `cluster`.
    pub fn slot(&self, cluster: u32, index: u32) -> u32 {
        cluster * self.cluster_pages.number() + index
    }

    /// The clustered block of a slot.
    pub fn cluster_of(&self, slot: u32) -> u32 {
        self.cluster_pages.quotient(slot)
    }

    /// What a slot holds; `None` if it is erased.
    pub fn spare(&self, slot: u32) -> Option<Spare> {
        let spare = self.spares[slot as usize];
        (spare != Spare::ERASED).then_some(spare)
    }

    /// When the elements of a slot have done all that they were told so far.
    pub fn free_ns(&self, slot: u32) -> u64 {
        let (cluster, index) = self.place(slot);
        let elements = self.elements(cluster, index);
        elements.map(|element| self.element_free_ns[element]).max().unwrap_or(0)
    }

    /// Reads a page to the controller.
    pub fn read(&mut self, slot: u32, at_ns: u64) -> u64 {
        assert_ne!(self.spares[slot as usize], Spare::ERASED, "slot {slot} is erased");
        self.counters.flash_pages_read += u64::from(self.geometry.stripe);
        let mut end_ns = at_ns;
        let (cluster, index) = self.place(slot);
        for element in self.elements(cluster, index) {
            let channel = self.channels.remainder(element as u32) as usize;
            let sensed_ns = at_ns.max(self.element_free_ns[element]) + self.timing.read_ns;
            let begin_ns = sensed_ns.max(self.channel_free_ns[channel]);
            let done_ns = begin_ns + self.timing.transfer_ns;
            self.channel_free_ns[channel] = done_ns;
            self.element_free_ns[element] = done_ns;
            end_ns = end_ns.max(done_ns);
        }
        end_ns
    }

    /// Programs a page from the controller.
    pub fn program(&mut self, slot: u32, spare: Spare, at_ns: u64) -> u64 {
        let (cluster, index) = self.place(slot);
        let filled = &mut self.filled[cluster as usize];
        assert!(index >= *filled, "slot {slot}: {index} of {cluster} comes after {filled}");
        *filled = index + 1;
        self.spares[slot as usize] = spare;
        self.counters.flash_pages_programmed += u64::from(self.geometry.stripe);
        let mut end_ns = at_ns;
        for element in self.elements(cluster, index) {
            let channel = self.channels.remainder(element as u32) as usize;
            let free_ns = self.element_free_ns[element].max(self.channel_free_ns[channel]);
            let sent_ns = at_ns.max(free_ns) + self.timing.transfer_ns;
            self.channel_free_ns[channel] = sent_ns;
            self.element_free_ns[element] = sent_ns + self.timing.program_ns;
            end_ns = end_ns.max(self.element_free_ns[element]);
        }
        end_ns
    }

    /// Moves a page: reads it, and programs it elsewhere with what its spare area says.
    pub fn copy(&mut self, from: u32, to: u32, at_ns: u64) -> u64 {
        self.counters.pages_moved += 1;
        let Timing { read_ns, program_ns, transfer_ns, .. } = self.timing;
        let busy_ns = read_ns + program_ns + 2 * transfer_ns;
        self.counters.moving_ns += busy_ns * u64::from(self.geometry.stripe);
        let read_ns = self.read(from, at_ns);
        self.program(to, self.spares[from as usize], read_ns)
    }

    /// Erases a clustered block: the same erase block on all elements of its gang at once.
    pub fn erase(&mut self, cluster: u32, at_ns: u64) -> u64 {
        let slots = self.slot(cluster, 0) as usize..self.slot(cluster + 1, 0) as usize;
        self.spares[slots].fill(Spare::ERASED);
        self.filled[cluster as usize] = 0;
        self.erases[cluster as usize] += 1;
        self.counters.erases += 1;
        self.counters.moving_ns += self.timing.erase_ns * u64::from(self.geometry.gang);
        let first = (self.geometry.gang_of(cluster) * self.geometry.gang) as usize;
        let elements = &mut self.element_free_ns[first..first + self.geometry.gang as usize];
        let mut end_ns = at_ns;
        for free_ns in elements {
            *free_ns = at_ns.max(*free_ns) + self.timing.erase_ns;
            end_ns = end_ns.max(*free_ns);
        }
        end_ns
    }

    /// The clustered block of a slot, and its place there.
    fn place(&self, slot: u32) -> (u32, u32) {
        let cluster = self.cluster_of(slot);
        (cluster, slot - cluster * self.cluster_pages.number())
    }

    /// The elements that a page lies on: as [`Geometry::element_of`] says.
    fn elements(&self, cluster: u32, index: u32) -> std::ops::Range<usize> {
        let gang = self.gangs.remainder(cluster);
        let stripe = self.stripes.remainder(index);
        let first = (gang * self.geometry.gang + stripe * self.geometry.stripe) as usize;
        first..first + self.geometry.stripe as usize
    }
}

#[cfg(test)]
mod tests;

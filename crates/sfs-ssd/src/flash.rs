//! The flash array: content of slots, erase counts, and the busy times of elements and channels.
//!
//! The array enforces the rules of NAND: a slot is not programmed twice between erases, nor after a later
//! slot of its clustered block. A violation is a bug of the translation layer, and panics. Translation layers
//! decide where pages go.

use crate::counters::SsdCounters;
use crate::divisor::Divisor;
use crate::geometry::FlashGeometry;
use crate::timing::Timing;

/// Number that stands for no page, no slot or no block.
pub(crate) const NONE: u32 = u32::MAX;

/// Content of the spare area of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Page that the slot holds.
    pub page: u32,
    /// Number of the write, which grows with every page that the host writes.
    pub version: u32,
}

impl Spare {
    const ERASED: Spare = Spare { page: NONE, version: 0 };
}

/// Flash array.
///
/// Every operation takes the earliest time at which it may begin, in nanoseconds, and returns the time at
/// which it ends. Elements and channels serve operations in the order of the calls.
pub struct Flash {
    geometry: FlashGeometry,
    timing: Timing,
    cluster_pages: Divisor,
    /// Number of gangs.
    gangs: Divisor,
    /// Number of pages side by side on a gang.
    stripes: Divisor,
    channels: Divisor,
    spares: Vec<Spare>,
    /// Number of the first slots of each clustered block that are programmed or skipped.
    filled: Vec<u32>,
    erases: Vec<u32>,
    element_free_ns: Vec<u64>,
    channel_free_ns: Vec<u64>,
    /// Counts of the operations, which translation layers and the controller extend.
    pub counters: SsdCounters,
}

impl Flash {
    /// Makes an erased array.
    ///
    /// # Panics
    ///
    /// If `geometry` is not sound.
    pub fn new(geometry: FlashGeometry, timing: Timing) -> Flash {
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
            counters: SsdCounters::default(),
            geometry,
            timing,
        }
    }

    /// Returns the geometry of the array.
    pub fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    /// Returns the durations of the operations.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the number of pages in a clustered block.
    pub fn cluster_pages(&self) -> u32 {
        self.cluster_pages.number()
    }

    /// Returns the erase count of each clustered block.
    pub fn erases(&self) -> &[u32] {
        &self.erases
    }

    /// Returns the number of first slots of `cluster` that cannot be programmed before the next erase.
    pub fn filled(&self, cluster: u32) -> u32 {
        self.filled[cluster as usize]
    }

    /// Returns the slot at position `index` of `cluster`.
    pub fn slot(&self, cluster: u32, index: u32) -> u32 {
        cluster * self.cluster_pages.number() + index
    }

    /// Returns the clustered block of a slot.
    pub fn cluster_of(&self, slot: u32) -> u32 {
        self.cluster_pages.quotient(slot)
    }

    /// Returns the spare area of a slot; `None` if the slot is erased.
    pub fn spare(&self, slot: u32) -> Option<Spare> {
        let spare = self.spares[slot as usize];
        (spare != Spare::ERASED).then_some(spare)
    }

    /// Returns the time at which all elements of a slot are idle.
    pub fn free_ns(&self, slot: u32) -> u64 {
        let (cluster, index) = self.position(slot);
        let elements = self.elements(cluster, index);
        elements.map(|element| self.element_free_ns[element]).max().unwrap_or(0)
    }

    /// Reads a page and transfers it to the controller.
    ///
    /// # Panics
    ///
    /// If the slot is erased.
    pub fn read(&mut self, slot: u32, at_ns: u64) -> u64 {
        assert_ne!(self.spares[slot as usize], Spare::ERASED, "slot {slot} is erased");
        self.counters.flash_pages_read += u64::from(self.geometry.stripe);
        let mut end_ns = at_ns;
        let (cluster, index) = self.position(slot);
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

    /// Transfers a page from the controller and programs it.
    ///
    /// # Panics
    ///
    /// If the slot, or a later one of its clustered block, was programmed since the last erase.
    pub fn program(&mut self, slot: u32, spare: Spare, at_ns: u64) -> u64 {
        let (cluster, index) = self.position(slot);
        let filled = &mut self.filled[cluster as usize];
        assert!(index >= *filled, "slot {slot}: {index} is below the first free index {filled}");
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

    /// Moves a page: reads it, and programs it into another slot with the same spare area.
    pub fn copy(&mut self, from: u32, to: u32, at_ns: u64) -> u64 {
        self.counters.pages_moved += 1;
        let Timing { read_ns, program_ns, transfer_ns, .. } = self.timing;
        let busy_ns = read_ns + program_ns + 2 * transfer_ns;
        self.counters.moving_ns += busy_ns * u64::from(self.geometry.stripe);
        let read_ns = self.read(from, at_ns);
        self.program(to, self.spares[from as usize], read_ns)
    }

    /// Erases a clustered block: the same erase block on all elements of its gang at the same time.
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

    /// Returns the clustered block of a slot, and its index in the block.
    fn position(&self, slot: u32) -> (u32, u32) {
        let cluster = self.cluster_of(slot);
        (cluster, slot - cluster * self.cluster_pages.number())
    }

    /// Returns the elements that a page lies on, which begin at [`FlashGeometry::element_of`].
    fn elements(&self, cluster: u32, index: u32) -> std::ops::Range<usize> {
        let gang = self.gangs.remainder(cluster);
        let stripe = self.stripes.remainder(index);
        let first = (gang * self.geometry.gang + stripe * self.geometry.stripe) as usize;
        first..first + self.geometry.stripe as usize
    }
}

#[cfg(test)]
mod tests;

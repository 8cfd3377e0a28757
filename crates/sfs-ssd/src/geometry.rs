//! How a flash device is built, and what stands where.
//!
//! Owns: the counts of channels, packages, dies, planes, erase blocks and pages, and the striping.
//! Promises: every slot lies on one gang of elements, and on whole flash pages of it.
//! Never: knows what a slot holds.

use serde::Serialize;

/// The shape of a device.
///
/// A *parallel element* is a plane of a die of a package: it does one thing at a time. A *gang* of
/// elements works together: its same-numbered erase blocks make a *clustered block*, striped flash
/// page by flash page, which is the erase block that the host sees (the FAST'09 paper's logical
/// block, section 2.1; the SFS paper's clustered block). The translation layer maps *pages*: one
/// flash page, or several that are striped over as many elements (Rajimwale et al., section 3.4:
/// a logical page of 32 KiB on eight packages).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Buses to the packages; one transfer at a time on each.
    pub channels: u32,
    /// Packages on each channel.
    pub packages: u32,
    /// Dies in each package.
    pub dies: u32,
    /// Planes in each die.
    pub planes: u32,
    /// Erase blocks in each plane.
    pub blocks: u32,
    /// Flash pages in each erase block.
    pub flash_pages: u32,
    /// Bytes of a flash page.
    pub flash_page_size: u32,
    /// Elements in a gang; divides their number.
    pub gang: u32,
    /// Flash pages of a page; divides the gang.
    pub stripe: u32,
    /// Flash that the host does not see, in thousandths of what it sees.
    pub spare_permille: u32,
}

impl Geometry {
    /// Parallel elements.
    pub fn elements(&self) -> u32 {
        self.channels * self.packages * self.dies * self.planes
    }

    /// Gangs of elements.
    pub fn gangs(&self) -> u32 {
        self.elements() / self.gang
    }

    /// Clustered blocks on the device.
    pub fn clusters(&self) -> u32 {
        self.gangs() * self.blocks
    }

    /// Pages in a clustered block.
    pub fn cluster_pages(&self) -> u32 {
        self.gang / self.stripe * self.flash_pages
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u64 {
        u64::from(self.stripe) * u64::from(self.flash_page_size)
    }

    /// Bytes of a clustered block.
    pub fn cluster_size(&self) -> u64 {
        u64::from(self.cluster_pages()) * self.page_size()
    }

    /// Places for pages on the device.
    pub fn slots(&self) -> u32 {
        self.clusters() * self.cluster_pages()
    }

    /// Clustered blocks' worth of pages that the host sees.
    pub fn logical_clusters(&self) -> u32 {
        let physical = u64::from(self.clusters());
        (physical * 1000 / (1000 + u64::from(self.spare_permille))) as u32
    }

    /// Pages that the host sees.
    pub fn pages(&self) -> u32 {
        self.logical_clusters() * self.cluster_pages()
    }

    /// Bytes that the host sees.
    pub fn capacity(&self) -> u64 {
        u64::from(self.pages()) * self.page_size()
    }

    /// Gang that a clustered block lies on: neighbours lie on different ones.
    pub fn gang_of(&self, cluster: u32) -> u32 {
        cluster % self.gangs()
    }

    /// First element of a page `index` pages into `cluster`; its stripe goes on from there.
    pub fn element_of(&self, cluster: u32, index: u32) -> u32 {
        self.gang_of(cluster) * self.gang + index % (self.gang / self.stripe) * self.stripe
    }

    /// Channel that an element is on: neighbours are on different ones.
    pub fn channel_of(&self, element: u32) -> u32 {
        element % self.channels
    }

    /// The same device with so many erase blocks that the host sees the whole clustered blocks of
    /// `capacity` bytes, and by rounding less than one for each gang more.
    pub fn with_capacity(&self, capacity: u64) -> Geometry {
        let clusters = capacity / self.cluster_size() * (1000 + u64::from(self.spare_permille));
        let blocks = clusters.div_ceil(1000).div_ceil(u64::from(self.gangs()));
        Geometry { blocks: blocks as u32, ..self.clone() }
    }

    /// Whether the numbers fit together, and slots and pages fit in 32 bits.
    pub fn is_sound(&self) -> bool {
        let counts = [self.channels, self.packages, self.dies, self.planes, self.blocks];
        let sizes = [self.flash_pages, self.flash_page_size, self.gang, self.stripe];
        let planes: u128 = counts.iter().map(|&count| u128::from(count)).product();
        counts.iter().chain(&sizes).all(|&count| count > 0)
            && planes.saturating_mul(u128::from(self.flash_pages)) < u128::from(u32::MAX)
            && self.elements().is_multiple_of(self.gang)
            && self.gang.is_multiple_of(self.stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eight_elements() -> Geometry {
        Geometry {
            channels: 4,
            packages: 2,
            dies: 1,
            planes: 1,
            blocks: 11,
            flash_pages: 64,
            flash_page_size: 4096,
            gang: 4,
            stripe: 1,
            spare_permille: 100,
        }
    }

    #[test]
    fn a_clustered_block_is_striped_over_its_gang() {
        let geometry = eight_elements();
        assert!(geometry.is_sound());
        assert_eq!((geometry.elements(), geometry.gangs(), geometry.clusters()), (8, 2, 22));
        assert_eq!((geometry.cluster_pages(), geometry.cluster_size()), (256, 1 << 20));
        let elements = |cluster| (0..5).map(move |i| eight_elements().element_of(cluster, i));
        assert!(elements(0).eq([0, 1, 2, 3, 0]));
        assert!(elements(3).eq([4, 5, 6, 7, 4]));
        assert!((0..5).map(|element| geometry.channel_of(element)).eq([0, 1, 2, 3, 0]));
    }

    #[test]
    fn a_page_may_be_striped_itself() {
        let geometry = Geometry { stripe: 2, ..eight_elements() };
        assert_eq!((geometry.cluster_pages(), geometry.page_size()), (128, 8192));
        assert_eq!(geometry.cluster_size(), 1 << 20);
        assert!((0..3).map(|index| geometry.element_of(1, index)).eq([4, 6, 4]));
    }

    #[test]
    fn the_spare_is_a_part_of_what_the_host_sees() {
        let geometry = eight_elements();
        assert_eq!((geometry.logical_clusters(), geometry.pages()), (20, 5120));
        let larger = geometry.with_capacity((1 << 30) + 5);
        assert_eq!((larger.clusters(), larger.logical_clusters()), (1128, 1025));
        let alone = Geometry { gang: 8, ..geometry };
        assert_eq!(alone.with_capacity((1 << 30) + 5).capacity(), 1 << 30);
    }

    #[test]
    fn what_does_not_fit_together_is_unsound() {
        let sound = eight_elements();
        assert!(!Geometry { gang: 3, ..sound.clone() }.is_sound());
        assert!(!Geometry { stripe: 3, ..sound.clone() }.is_sound());
        assert!(!Geometry { blocks: 0, ..sound.clone() }.is_sound());
        assert!(!Geometry { blocks: u32::MAX, ..sound }.is_sound());
    }
}

//! The geometry of a flash array: its parts, and the striping of pages over them.
//!
//! Every slot lies on the elements of one gang, and on whole flash pages of these elements.

use serde::Serialize;

/// Geometry of a flash array.
///
/// A *parallel element* is one plane of a die of a package, and does one operation at a time. A *gang* is a
/// group of elements that work together: erase blocks with the same number on all of them form a *clustered
/// block*, striped flash page by flash page. A clustered block is the erase block that the host sees (the
/// FAST'09 paper's logical block, section 2.1; the SFS paper's clustered block). The translation layer maps
/// *pages*: one flash page, or several that are striped over as many elements (Rajimwale et al., section
/// 3.4: a logical page of 32 KiB on eight packages). A *slot* is the physical position of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlashGeometry {
    /// Number of buses to the packages; a bus does one transfer at a time.
    pub channels: u32,
    /// Number of packages on each channel.
    pub packages: u32,
    /// Number of dies in each package.
    pub dies: u32,
    /// Number of planes in each die.
    pub planes: u32,
    /// Number of erase blocks in each plane.
    pub blocks: u32,
    /// Number of flash pages in each erase block.
    pub flash_pages: u32,
    /// Size of a flash page in bytes.
    pub flash_page_size: u32,
    /// Number of elements in a gang; has to divide the number of all elements.
    pub gang: u32,
    /// Number of flash pages in a page; has to divide `gang`.
    pub stripe: u32,
    /// Spare capacity, which the host does not see, in thousandths of the capacity that the host sees.
    pub spare_permille: u32,
}

impl FlashGeometry {
    /// Returns the number of parallel elements.
    pub fn elements(&self) -> u32 {
        self.channels * self.packages * self.dies * self.planes
    }

    /// Returns the number of gangs.
    pub fn gangs(&self) -> u32 {
        self.elements() / self.gang
    }

    /// Returns the number of clustered blocks on the device, spare ones included.
    pub fn clusters(&self) -> u32 {
        self.gangs() * self.blocks
    }

    /// Returns the number of pages in a clustered block.
    pub fn cluster_pages(&self) -> u32 {
        self.gang / self.stripe * self.flash_pages
    }

    /// Returns the size of a page in bytes.
    pub fn page_size(&self) -> u64 {
        u64::from(self.stripe) * u64::from(self.flash_page_size)
    }

    /// Returns the size of a clustered block in bytes.
    pub fn cluster_size(&self) -> u64 {
        u64::from(self.cluster_pages()) * self.page_size()
    }

    /// Returns the number of slots on the device.
    pub fn slots(&self) -> u32 {
        self.clusters() * self.cluster_pages()
    }

    /// Returns the capacity that the host sees, in clustered blocks.
    pub fn logical_clusters(&self) -> u32 {
        let physical = u64::from(self.clusters());
        (physical * 1000 / (1000 + u64::from(self.spare_permille))) as u32
    }

    /// Returns the capacity that the host sees, in pages.
    pub fn pages(&self) -> u32 {
        self.logical_clusters() * self.cluster_pages()
    }

    /// Returns the capacity that the host sees, in bytes.
    pub fn capacity(&self) -> u64 {
        u64::from(self.pages()) * self.page_size()
    }

    /// Returns the gang of a clustered block; blocks with adjacent numbers are on different gangs.
    pub fn gang_of(&self, cluster: u32) -> u32 {
        cluster % self.gangs()
    }

    /// Returns the first element of the page at `index` of `cluster`; the page continues on the
    /// next elements.
    pub fn element_of(&self, cluster: u32, index: u32) -> u32 {
        self.gang_of(cluster) * self.gang + index % (self.gang / self.stripe) * self.stripe
    }

    /// Returns the channel of an element; elements with adjacent numbers are on different channels.
    pub fn channel_of(&self, element: u32) -> u32 {
        element % self.channels
    }

    /// Returns this geometry with the number of erase blocks for a capacity of `capacity` bytes.
    ///
    /// The capacity is rounded down to whole clustered blocks. Rounding to whole gangs can add less than
    /// one clustered block for each gang.
    pub fn with_capacity(&self, capacity: u64) -> FlashGeometry {
        let clusters = capacity / self.cluster_size() * (1000 + u64::from(self.spare_permille));
        let blocks = clusters.div_ceil(1000).div_ceil(u64::from(self.gangs()));
        FlashGeometry { blocks: blocks as u32, ..self.clone() }
    }

    /// Returns whether the numbers are consistent, and every slot and page number fits in 32 bits.
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

    fn eight_elements() -> FlashGeometry {
        FlashGeometry {
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
    fn a_striped_page_lies_on_several_elements() {
        let geometry = FlashGeometry { stripe: 2, ..eight_elements() };
        assert_eq!((geometry.cluster_pages(), geometry.page_size()), (128, 8192));
        assert_eq!(geometry.cluster_size(), 1 << 20);
        assert!((0..3).map(|index| geometry.element_of(1, index)).eq([4, 6, 4]));
    }

    #[test]
    fn spare_capacity_is_relative_to_the_capacity_that_the_host_sees() {
        let geometry = eight_elements();
        assert_eq!((geometry.logical_clusters(), geometry.pages()), (20, 5120));
        let larger = geometry.with_capacity((1 << 30) + 5);
        assert_eq!((larger.clusters(), larger.logical_clusters()), (1128, 1025));
        let alone = FlashGeometry { gang: 8, ..geometry };
        assert_eq!(alone.with_capacity((1 << 30) + 5).capacity(), 1 << 30);
    }

    #[test]
    fn an_inconsistent_geometry_is_unsound() {
        let sound = eight_elements();
        assert!(!FlashGeometry { gang: 3, ..sound.clone() }.is_sound());
        assert!(!FlashGeometry { stripe: 3, ..sound.clone() }.is_sound());
        assert!(!FlashGeometry { blocks: 0, ..sound.clone() }.is_sound());
        assert!(!FlashGeometry { blocks: u32::MAX, ..sound }.is_sound());
    }
}

//! Fixtures of the tests: a device of one element, and a pseudo-random generator.

use sfs_ssd::ftl::{Layer, WearLevelling};
use sfs_ssd::{FlashGeometry, HostRequest, RequestKind, Ssd, SsdConfig, Timing};

/// Size of a page in bytes.
pub(crate) const PAGE: u64 = 4096;

/// Pseudo-random generator xorshift64*, good enough to scatter writes.
pub(crate) struct XorShift64(u64);

impl XorShift64 {
    /// Starts the sequence of `seed`, which must not be zero.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Draws 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Draws a number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u32
    }

    /// Draws a number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the geometry of a device of one element.
pub(crate) fn one_element(clusters: u32, cluster_pages: u32, spare_permille: u32) -> FlashGeometry {
    FlashGeometry {
        channels: 1,
        packages: 1,
        dies: 1,
        planes: 1,
        blocks: clusters,
        flash_pages: cluster_pages,
        flash_page_size: PAGE as u32,
        gang: 1,
        stripe: 1,
        spare_permille,
    }
}

/// Returns a configuration that counts operations and takes no time.
pub(crate) fn config(layer: Layer, wear: WearLevelling, geometry: FlashGeometry) -> SsdConfig {
    SsdConfig { geometry, timing: Timing::NONE, layer, wear, informed: true, cleaning: None }
}

/// Makes a device of one element that counts operations and takes no time.
pub(crate) fn ssd(
    layer: Layer,
    wear: WearLevelling,
    clusters: u32,
    cluster_pages: u32,
    spare_permille: u32,
) -> Ssd {
    let geometry = one_element(clusters, cluster_pages, spare_permille);
    Ssd::new(&config(layer, wear, geometry)).expect("a device")
}

/// Writes one page.
pub(crate) fn write_page(ssd: &mut Ssd, page: u32, stream: u8) {
    let request = HostRequest::new(RequestKind::Write, u64::from(page) * PAGE, PAGE);
    ssd.serve(&HostRequest { stream, ..request }, 0);
}

/// Trims one page.
pub(crate) fn trim_page(ssd: &mut Ssd, page: u32) {
    ssd.serve(&HostRequest::new(RequestKind::Trim, u64::from(page) * PAGE, PAGE), 0);
}

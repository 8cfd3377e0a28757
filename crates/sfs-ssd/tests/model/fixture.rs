//! What the tests share: a plain device, and numbers that look random.

use sfs_ssd::ftl::{Layer, WearLevelling};
use sfs_ssd::{Config, Geometry, Request, RequestKind, Ssd, Timing};

/// Bytes of a page of the plain device.
pub(crate) const PAGE: u64 = 4096;

/// xorshift64*: enough to scatter writes.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of this seed, which is not zero.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u32
    }

    /// A number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The shape of a device of one element.
pub(crate) fn one_element(clusters: u32, cluster_pages: u32, spare_permille: u32) -> Geometry {
    Geometry {
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

/// A configuration that counts and takes no time.
pub(crate) fn config(layer: Layer, wear: WearLevelling, geometry: Geometry) -> Config {
    Config { geometry, timing: Timing::NONE, layer, wear, informed: true, cleaning: None }
}

/// A device of one element that counts and takes no time.
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
    let request = Request::new(RequestKind::Write, u64::from(page) * PAGE, PAGE);
    ssd.serve(&Request { stream, ..request }, 0);
}

/// Trims one page.
pub(crate) fn trim_page(ssd: &mut Ssd, page: u32) {
    ssd.serve(&Request::new(RequestKind::Trim, u64::from(page) * PAGE, PAGE), 0);
}

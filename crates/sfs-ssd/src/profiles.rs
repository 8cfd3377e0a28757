//! Profiles of the devices in the papers: geometry, timing, translation layer, and the sources.
//!
//! Timings are computed from published bandwidths. A test compares the bandwidths of each model with the
//! published ones, within 5%. Where no source is named, geometry and translation layer are assumptions.

use serde::Serialize;

use crate::ftl::{Layer, WearLevelling};
use crate::geometry::FlashGeometry;
use crate::ssd::SsdConfig;
use crate::timing::Timing;

/// Flash page size of all profiles in bytes, as in the SFS paper's simulator.
const FLASH_PAGE_SIZE: u32 = 4096;

/// Profile of a commercial device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SsdProfile {
    /// Name of the profile in this project.
    pub name: &'static str,
    /// Name of the product.
    pub device: &'static str,
    /// Source of the sizes and bandwidths.
    pub source: &'static str,
    /// Geometry of the array.
    pub geometry: FlashGeometry,
    /// Durations of the operations.
    pub timing: Timing,
    /// Translation layer.
    pub layer: Layer,
    /// `true` if the device reports the size of its erase blocks.
    pub erase_size_known: bool,
}

/// Published bandwidths of a device in kB/s (1000 bytes), and its assumed internal structure.
struct DataSheet {
    write_kb: u64,
    read_kb: u64,
    /// Bandwidth of random reads of 4 KiB, one at a time.
    random_read_kb: u64,
    /// Size of a clustered block in bytes.
    cluster_size: u64,
    channels: u32,
    elements: u32,
    spare_permille: u32,
    /// `true` for single-level cells.
    slc: bool,
    /// Transfer time of a kibibyte over the host interface, in nanoseconds.
    link_kib_ns: u64,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Nanoseconds for each KiB over SATA, 300 MB/s.
const SATA: u64 = 3413;
/// Nanoseconds for each KiB over USB 3, 400 MB/s.
const USB3: u64 = 2560;
/// Nanoseconds for each KiB over SD UHS-I, 104 MB/s.
const SD: u64 = 9846;
/// Nanoseconds for each KiB over eMMC HS200, 200 MB/s.
const HS200: u64 = 5120;

impl DataSheet {
    fn geometry(&self) -> FlashGeometry {
        let block_size = self.cluster_size / u64::from(self.elements);
        FlashGeometry {
            channels: self.channels,
            packages: self.elements / self.channels,
            dies: 1,
            planes: 1,
            blocks: 1,
            flash_pages: (block_size / u64::from(FLASH_PAGE_SIZE)) as u32,
            flash_page_size: FLASH_PAGE_SIZE,
            gang: self.elements,
            stripe: 1,
            spare_permille: self.spare_permille,
        }
    }

    /// Computes the durations from the bandwidths.
    ///
    /// The channels limit sequential reads, and programming after the transfer limits sequential writes. A
    /// random read takes the sum of the command, the page read and the interface.
    fn timing(&self) -> Timing {
        let page_ns = |kb_per_s: u64| u64::from(FLASH_PAGE_SIZE) * 1_000_000 / kb_per_s;
        // FAST'09 paper, section 2.1; multi-level cells are assumed to take twice as long.
        let (read_ns, erase_ns) = if self.slc { (25_000, 1_500_000) } else { (50_000, 3_000_000) };
        let transfer_ns = page_ns(self.read_kb) * u64::from(self.channels);
        let program_ns = page_ns(self.write_kb) * u64::from(self.elements) - transfer_ns;
        let inside_ns = read_ns + transfer_ns + self.link_kib_ns * 4;
        let command_ns = page_ns(self.random_read_kb).saturating_sub(inside_ns);
        let link_kib_ns = self.link_kib_ns;
        Timing { read_ns, program_ns, erase_ns, transfer_ns, command_ns, link_kib_ns }
    }
}

/// Intel X25-E. The SFS paper states the bandwidths (table 1), and 16 MiB as the request size from
/// which on random writes are as fast as sequential writes (figure 1). Random 4 KiB writes at 5.3
/// MB/s are possible only with a page-mapped layer. The spare capacity is assumed.
const SSD_H: DataSheet = DataSheet {
    write_kb: 170_000,
    read_kb: 216_900,
    random_read_kb: 13_800,
    cluster_size: 16 * MIB,
    channels: 4,
    elements: 16,
    spare_permille: 250,
    slc: true,
    link_kib_ns: SATA,
};

/// Samsung S470. Sources as for SSD-H; the request size is 32 MiB. Random 4 KiB writes at 0.6 MB/s
/// agree with a page-mapped layer and 7% of spare capacity (a gibibyte of flash for a gigabyte).
const SSD_M: DataSheet = DataSheet {
    write_kb: 87_000,
    read_kb: 212_600,
    random_read_kb: 10_600,
    cluster_size: 32 * MIB,
    channels: 4,
    elements: 16,
    spare_permille: 73,
    slc: false,
    link_kib_ns: SATA,
};

/// Transcend JetFlash 700. Sources as for SSD-H; the request size is 16 MiB. Random 4 KiB writes at
/// 0.002 MB/s mean that every write merges a block, as in BAST.
const SSD_L: DataSheet = DataSheet {
    write_kb: 38_000,
    read_kb: 69_100,
    random_read_kb: 5_300,
    cluster_size: 16 * MIB,
    channels: 2,
    elements: 8,
    spare_permille: 73,
    slc: false,
    link_kib_ns: USB3,
};

/// SanDisk SDS5C-032G. The logical block of 4 MiB is from the FAST'09 paper, section 5.2. The
/// bandwidths are assumed, because that paper shows them only in figure 3, whose numbers are not
/// available.
const SANDISK: DataSheet = DataSheet {
    write_kb: 50_000,
    read_kb: 67_000,
    random_read_kb: 14_000,
    cluster_size: 4 * MIB,
    channels: 4,
    elements: 8,
    spare_permille: 73,
    slc: true,
    link_kib_ns: SATA,
};

/// Samsung MCCOE64G5MPP. The logical block of 8 MiB is from the FAST'09 paper, section 5.2. The bandwidths
/// are assumed, as for SanDisk.
const SAMSUNG: DataSheet = DataSheet {
    write_kb: 80_000,
    read_kb: 100_000,
    random_read_kb: 14_000,
    cluster_size: 8 * MIB,
    ..SANDISK
};

/// Mtron MSD-SATA3025. The logical block of 4 MiB, and 12 ms for a write of 1 MiB, are from the FAST'09
/// paper, sections 5.2 and 3.2. The bandwidths are those of "vendor M, 32 GB, SATA" in Shin's slides.
const MTRON: DataSheet = DataSheet {
    write_kb: 80_000,
    read_kb: 100_000,
    random_read_kb: 14_000,
    cluster_size: 4 * MIB,
    ..SANDISK
};

/// SDHC card of class 10. The allocation unit of 4 MiB, a handful of which can be open, is from Bergmann,
/// "Optimizing Linux with cheap flash drives", LWN 428584 (2011). Class 10 means writes at 10 MB/s. The
/// other numbers are assumed.
const SD_CARD: DataSheet = DataSheet {
    write_kb: 10_000,
    read_kb: 20_000,
    random_read_kb: 4_000,
    cluster_size: 4 * MIB,
    channels: 1,
    elements: 2,
    spare_permille: 40,
    slc: false,
    link_kib_ns: SD,
};

/// eMMC of a single-board computer, HS200 (JEDEC 5.0). All sizes and bandwidths are assumed.
const EMMC: DataSheet = DataSheet {
    write_kb: 30_000,
    read_kb: 100_000,
    random_read_kb: 12_000,
    cluster_size: 8 * MIB,
    channels: 1,
    elements: 4,
    spare_permille: 73,
    slc: false,
    link_kib_ns: HS200,
};

const SFS_PAPER: &str = "SFS paper (FAST 2012), table 1, figure 1";
const FAST09_PAPER: &str = "FAST 2009 paper, section 5.2; bandwidths assumed";

/// Returns all profiles: `ssd-h`, `ssd-m`, `ssd-l`, `sandisk`, `samsung`, `mtron`, `sd`, `emmc`, and
/// `fast12`, the flash of the SFS paper's simulator.
pub fn profiles() -> Vec<SsdProfile> {
    let fast = Layer::Fast { log_blocks: 8 };
    let bast = Layer::Bast { log_blocks: 5 };
    let profile = |name, device, source, gib, sheet: &DataSheet, layer| SsdProfile {
        name,
        device,
        source,
        geometry: sheet.geometry().with_capacity(gib * GIB),
        timing: sheet.timing(),
        layer,
        erase_size_known: false,
    };
    vec![
        profile("ssd-h", "Intel X25-E", SFS_PAPER, 32, &SSD_H, Layer::GREEDY),
        profile("ssd-m", "Samsung S470", SFS_PAPER, 64, &SSD_M, Layer::GREEDY),
        profile("ssd-l", "Transcend JetFlash 700", SFS_PAPER, 32, &SSD_L, bast),
        profile("sandisk", "SanDisk SDS5C-032G", FAST09_PAPER, 32, &SANDISK, fast),
        profile("samsung", "Samsung MCCOE64G5MPP", FAST09_PAPER, 64, &SAMSUNG, fast),
        profile("mtron", "Mtron MSD-SATA3025", "FAST 2009 paper; Shin 2008", 32, &MTRON, fast),
        SsdProfile {
            erase_size_known: true,
            ..profile("sd", "SDHC card, class 10", "LWN 428584", 16, &SD_CARD, bast)
        },
        SsdProfile {
            erase_size_known: true,
            ..profile("emmc", "eMMC 5.0", "assumed", 16, &EMMC, fast)
        },
        fast12(),
    ]
}

/// Returns the flash of the SFS paper's simulator: 65,536 blocks of 512 KiB in pages of 4 KiB, 10%
/// of spare capacity, without clustering of blocks.
///
/// The source has no timing, so the timing of SSD-M is used.
fn fast12() -> SsdProfile {
    let sheet = DataSheet { cluster_size: 512 << 10, elements: 1, channels: 1, ..SSD_M };
    let geometry = FlashGeometry { spare_permille: 100, blocks: 65_536, ..sheet.geometry() };
    SsdProfile {
        name: "fast12",
        device: "the SFS paper's simulator",
        source: "simulator of the SFS paper; timing of ssd-m",
        geometry,
        timing: SSD_M.timing(),
        layer: Layer::GREEDY,
        erase_size_known: false,
    }
}

impl SsdProfile {
    /// Returns the profile with this name, or `None` if there is none.
    pub fn by_name(name: &str) -> Option<SsdProfile> {
        profiles().into_iter().find(|profile| profile.name == name)
    }

    /// Returns this profile with another translation layer.
    ///
    /// Has to be called before [`SsdProfile::with_capacity`], which reserves the spare blocks of the layer.
    pub fn with_layer(self, layer: Layer) -> SsdProfile {
        SsdProfile { layer, ..self }
    }

    /// Returns this profile with clustered blocks of about `size` bytes, for a smaller device of
    /// the same speed.
    ///
    /// Has to be called before [`SsdProfile::with_capacity`], which counts the erase blocks.
    pub fn with_cluster_size(self, size: u64) -> SsdProfile {
        let page_bytes = u64::from(self.geometry.flash_page_size) * u64::from(self.geometry.gang);
        let flash_pages = (size / page_bytes).max(1) as u32;
        SsdProfile { geometry: FlashGeometry { flash_pages, ..self.geometry }, ..self }
    }

    /// Returns this profile with another capacity, in bytes.
    ///
    /// The spare capacity grows to the minimum of the translation layer if it would be smaller.
    pub fn with_capacity(self, capacity: u64) -> SsdProfile {
        let logical = (capacity / self.geometry.cluster_size()).max(1);
        let spare = u64::from(self.layer.spare_clusters_min() * self.geometry.gangs());
        let permille = (spare * 1000).div_ceil(logical) as u32;
        let spare_permille = self.geometry.spare_permille.max(permille);
        let geometry = FlashGeometry { spare_permille, ..self.geometry }.with_capacity(capacity);
        SsdProfile { geometry, ..self }
    }

    /// Returns the configuration of a model that obeys trim requests and levels wear dynamically.
    pub fn config(&self) -> SsdConfig {
        SsdConfig {
            geometry: self.geometry.clone(),
            timing: self.timing,
            layer: self.layer,
            wear: WearLevelling::Dynamic,
            informed: true,
            cleaning: None,
        }
    }
}

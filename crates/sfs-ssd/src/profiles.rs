//! The devices of the papers.
//!
//! Owns: their sizes and times, and where each comes from.
//! Promises: a profile's bandwidths are what the model gives, within 5% (a test).
//! Never: claims to know what is inside: geometry and layer are our guess where no source is named.

use serde::Serialize;

use crate::ftl::{Layer, WearLevelling};
use crate::{Config, Geometry, Timing};

/// Flash page of all of them, and of the SFS paper's own simulator (papers.md, section 2).
const FLASH_PAGE_SIZE: u32 = 4096;

/// A device that exists, or did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Its name in this project.
    pub name: &'static str,
    /// Its name in the shop.
    pub device: &'static str,
    /// Where its sizes and times come from.
    pub source: &'static str,
    /// Shape and times.
    pub geometry: Geometry,
    /// Times.
    pub timing: Timing,
    /// Its translation layer.
    pub layer: Layer,
    /// Whether it tells the size of its erase blocks.
    pub erase_size_known: bool,
}

/// What is known of a device from outside: bandwidths in kB/s (1000 bytes), and what its shape is
/// taken to be.
struct Outside {
    write_kb: u64,
    read_kb: u64,
    /// Random reads of 4 KiB, one at a time.
    random_read_kb: u64,
    cluster_size: u64,
    channels: u32,
    elements: u32,
    spare_permille: u32,
    /// Single-level cells.
    slc: bool,
    /// Nanoseconds that a kibibyte takes over the interface.
    link_kib_ns: u64,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// 300 MB/s.
const SATA: u64 = 3413;
/// 400 MB/s.
const USB3: u64 = 2560;
/// 104 MB/s (SD UHS-I).
const SD: u64 = 9846;
/// 200 MB/s (eMMC HS200).
const HS200: u64 = 5120;

impl Outside {
    fn geometry(&self) -> Geometry {
        let block_size = self.cluster_size / u64::from(self.elements);
        Geometry {
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

    /// Sequential reads are bound by the channels, sequential writes by programming after the
    /// transfer, and a random read is all of a command, a page, and the interface.
    fn timing(&self) -> Timing {
        let page_ns = |kb_per_s: u64| u64::from(FLASH_PAGE_SIZE) * 1_000_000 / kb_per_s;
        // FAST'09 paper, section 2.1; for multi-level cells twice that.
        let (read_ns, erase_ns) = if self.slc { (25_000, 1_500_000) } else { (50_000, 3_000_000) };
        let transfer_ns = page_ns(self.read_kb) * u64::from(self.channels);
        let program_ns = page_ns(self.write_kb) * u64::from(self.elements) - transfer_ns;
        let inside_ns = read_ns + transfer_ns + self.link_kib_ns * 4;
        let command_ns = page_ns(self.random_read_kb).saturating_sub(inside_ns);
        let link_kib_ns = self.link_kib_ns;
        Timing { read_ns, program_ns, erase_ns, transfer_ns, command_ns, link_kib_ns }
    }
}

/// Intel X25-E. Bandwidths, and 16 MiB where random writes are as fast as sequential ones: SFS
/// paper, table 1 and figure 1. Page-mapped, as 5.3 MB/s of random 4 KiB writes leave no other
/// choice; its spare part is a guess.
const SSD_H: Outside = Outside {
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

/// Samsung S470. As for SSD-H; 32 MiB. Random 4 KiB writes of 0.6 MB/s fit a page-mapped layer
/// with 7% to spare (a gibibyte of flash for a gigabyte).
const SSD_M: Outside = Outside {
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

/// Transcend JetFlash 700. As for SSD-H; 16 MiB. Random 4 KiB writes of 0.002 MB/s mean that a
/// block is merged for every one: BAST.
const SSD_L: Outside = Outside {
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

/// SanDisk SDS5C-032G. Logical block of 4 MiB: FAST'09 paper, section 5.2. Its bandwidths are in
/// that paper's figure 3 only, which we do not have: assumed.
const SANDISK: Outside = Outside {
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

/// Samsung MCCOE64G5MPP. Logical block of 8 MiB: FAST'09 paper, section 5.2; bandwidths assumed,
/// as for SanDisk.
const SAMSUNG: Outside = Outside {
    write_kb: 80_000,
    read_kb: 100_000,
    random_read_kb: 14_000,
    cluster_size: 8 * MIB,
    ..SANDISK
};

/// Mtron MSD-SATA3025. Logical block of 4 MiB, 1 MiB written in 12 ms: FAST'09 paper, sections 5.2
/// and 3.2. Bandwidths: "vendor M, 32 GB, SATA" of Shin's slides.
const MTRON: Outside = Outside {
    write_kb: 80_000,
    read_kb: 100_000,
    random_read_kb: 14_000,
    cluster_size: 4 * MIB,
    ..SANDISK
};

/// An SDHC card of class 10. Allocation unit of 4 MiB, a handful of which can be open: Bergmann,
/// "Optimizing Linux with cheap flash drives", LWN 428584 (2011). Bandwidths: class 10 is 10 MB/s;
/// the rest is assumed.
const SD_CARD: Outside = Outside {
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

/// An eMMC of a single-board computer, HS200 (JEDEC 5.0). All sizes and bandwidths are assumed.
const EMMC: Outside = Outside {
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

/// All profiles, by name: `ssd-h`, `ssd-m`, `ssd-l`, `sandisk`, `samsung`, `mtron`, `sd`, `emmc`,
/// and `fast12`, the flash of the SFS paper's own simulator.
pub fn profiles() -> Vec<Profile> {
    let fast = Layer::Fast { log_blocks: 8 };
    let bast = Layer::Bast { log_blocks: 5 };
    let profile = |name, device, source, gib, outside: &Outside, layer| Profile {
        name,
        device,
        source,
        geometry: outside.geometry().with_capacity(gib * GIB),
        timing: outside.timing(),
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
        Profile {
            erase_size_known: true,
            ..profile("sd", "SDHC card, class 10", "LWN 428584", 16, &SD_CARD, bast)
        },
        Profile {
            erase_size_known: true,
            ..profile("emmc", "eMMC 5.0", "assumed", 16, &EMMC, fast)
        },
        fast12(),
    ]
}

/// 65,536 blocks of 512 KiB in pages of 4 KiB, 10% to spare, each block alone (papers.md, section
/// 2). No times are given there: those of SSD-M's flash.
fn fast12() -> Profile {
    let outside = Outside { cluster_size: 512 << 10, elements: 1, channels: 1, ..SSD_M };
    let geometry = Geometry { spare_permille: 100, blocks: 65_536, ..outside.geometry() };
    Profile {
        name: "fast12",
        device: "the SFS paper's simulator",
        source: "SFS paper, its simulator; times of ssd-m",
        geometry,
        timing: SSD_M.timing(),
        layer: Layer::GREEDY,
        erase_size_known: false,
    }
}

impl Profile {
    /// The profile of this name.
    pub fn by_name(name: &str) -> Option<Profile> {
        profiles().into_iter().find(|profile| profile.name == name)
    }

    /// A device like this one, but with another translation layer. To be said before
    /// [`Profile::with_capacity`].
    pub fn with_layer(self, layer: Layer) -> Profile {
        Profile { layer, ..self }
    }

    /// A device like this one, but of another capacity, in bytes. A small one has relatively more
    /// to spare: as much as its translation layer needs.
    pub fn with_capacity(self, capacity: u64) -> Profile {
        let logical = (capacity / self.geometry.cluster_size()).max(1);
        let spare = u64::from(self.layer.spare_clusters_min() * self.geometry.gangs());
        let permille = (spare * 1000).div_ceil(logical) as u32;
        let spare_permille = self.geometry.spare_permille.max(permille);
        let geometry = Geometry { spare_permille, ..self.geometry }.with_capacity(capacity);
        Profile { geometry, ..self }
    }

    /// The model's configuration: it listens to trim, and levels wear dynamically.
    pub fn config(&self) -> Config {
        Config {
            geometry: self.geometry.clone(),
            timing: self.timing,
            layer: self.layer,
            wear: WearLevelling::Dynamic,
            informed: true,
            cleaning: None,
        }
    }
}

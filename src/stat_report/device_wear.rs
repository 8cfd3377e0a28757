//! The wear of a device as the kernel knows it: files in sysfs.
//!
//! The kernel shows the life of eMMC (`life_time` and `pre_eol_info` of the card) and of UFS (`health_descriptor`). For NVMe
//! and SATA it shows temperatures only (hwmon): their SMART values need requests to the device, which smartctl(8) makes. SD
//! cards report nothing.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Wear of the device as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceWearReport {
    /// The file in sysfs.
    pub source: String,
    /// Used part of the device's life in percent, an upper bound; above 100 if the life is exceeded. `None` if it is not
    /// stated.
    pub life_used_percent: Option<u32>,
    /// State of the reserved blocks: `"normal"`, `"warning"` or `"urgent"`; `None` if it is not stated.
    pub pre_eol: Option<String>,
}

/// Code of the life that means that it is exceeded.
const LIFE_EXCEEDED: u32 = 11;

/// Percents in one step of the life.
const LIFE_STEP_PERCENT: u32 = 10;

/// Files of a kind of device, in the directory of the device or in one above it.
struct WearFiles {
    /// Used life; a file may hold several codes, one for each kind of flash.
    life: &'static [&'static str],
    pre_eol: &'static str,
}

const KINDS: [WearFiles; 2] = [
    WearFiles { life: &["life_time"], pre_eol: "pre_eol_info" },
    WearFiles {
        life: &[
            "health_descriptor/life_time_estimation_a",
            "health_descriptor/life_time_estimation_b",
        ],
        pre_eol: "health_descriptor/eol_info",
    },
];

/// Returns the wear of the block device at `path`; `None` for other files, and if the kernel knows nothing.
pub(super) fn of_path(path: &Path) -> Option<DeviceWearReport> {
    let metadata = fs::metadata(path).ok()?;
    let number = metadata.rdev();
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let is_block_device = metadata.file_type().is_block_device();
    is_block_device.then(|| of_number(Path::new("/sys"), (major, minor))).flatten()
}

/// Returns the files that state the wear of the block device at `path`.
pub(crate) fn files_of(path: &Path) -> Vec<PathBuf> {
    let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
    if !metadata.file_type().is_block_device() {
        return Vec::new();
    }
    let number = metadata.rdev();
    let number = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let files = directories(Path::new("/sys"), number).into_iter().flat_map(|dir| {
        let names = KINDS.iter().flat_map(|kind| kind.life.iter().chain([&kind.pre_eol]));
        names.map(|name| dir.join(name)).collect::<Vec<_>>()
    });
    files.filter(|file| file.exists()).collect()
}

/// Returns the directories of block device `number` in sysfs, its own first.
fn directories(sysfs: &Path, (major, minor): (u64, u64)) -> Vec<PathBuf> {
    let link = sysfs.join(format!("dev/block/{major}:{minor}"));
    let (Ok(device), Ok(root)) = (link.canonicalize(), sysfs.canonicalize()) else {
        return Vec::new();
    };
    let above = device.ancestors().take_while(|dir| **dir != root);
    above.map(Path::to_owned).collect()
}

/// Returns the wear of block device `number`, with the files of sysfs below `sysfs`.
fn of_number(sysfs: &Path, number: (u64, u64)) -> Option<DeviceWearReport> {
    let directories = directories(sysfs, number);
    let mut found =
        directories.iter().flat_map(|dir| KINDS.iter().filter_map(|kind| of_directory(dir, kind)));
    found.next()
}

fn of_directory(dir: &Path, kind: &WearFiles) -> Option<DeviceWearReport> {
    let files: Vec<PathBuf> = kind.life.iter().map(|name| dir.join(name)).collect();
    let codes = files.iter().filter_map(|file| codes_of(file)).flatten();
    let used = codes.filter(|code| (1..=LIFE_EXCEEDED).contains(code)).max();
    let life_used_percent = used.map(|code| code * LIFE_STEP_PERCENT);
    let state = codes_of(&dir.join(kind.pre_eol)).and_then(|codes| codes.first().copied());
    let pre_eol = match state {
        Some(1) => Some("normal"),
        Some(2) => Some("warning"),
        Some(3) => Some("urgent"),
        _ => None,
    };
    let is_known = life_used_percent.is_some() || pre_eol.is_some();
    is_known.then(|| DeviceWearReport {
        source: files[0].display().to_string(),
        life_used_percent,
        pre_eol: pre_eol.map(str::to_owned),
    })
}

/// Returns the hexadecimal numbers in `file`, as in `0x01 0x02`.
fn codes_of(file: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(file).ok()?;
    let code = |word: &str| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    text.split_whitespace().map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Makes the directories of a disk with a partition, as sysfs has them, and `files` of the card.
    fn imitation(files: &[(&str, &str)]) -> TempDir {
        let scratch = tempfile::tempdir().expect("a directory");
        let card = scratch.path().join("devices/platform/soc/mmc0/mmc0:0001");
        let partition = card.join("block/mmcblk0/mmcblk0p2");
        fs::create_dir_all(&partition).expect("directories");
        let links = scratch.path().join("dev/block");
        fs::create_dir_all(&links).expect("a directory");
        std::os::unix::fs::symlink(&partition, links.join("179:2")).expect("a link");
        for (name, content) in files {
            let file = card.join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(file, content).expect("a file");
        }
        scratch
    }

    fn wear_of(files: &[(&str, &str)]) -> Option<(Option<u32>, Option<String>)> {
        let sysfs = imitation(files);
        let wear = of_number(sysfs.path(), (179, 2))?;
        assert!(wear.source.contains("mmc0:0001"), "{}", wear.source);
        Some((wear.life_used_percent, wear.pre_eol))
    }

    #[test]
    fn the_worse_kind_of_flash_counts() {
        let normal = Some("normal".to_owned());
        let emmc = [("life_time", "0x01 0x03\n"), ("pre_eol_info", "0x01\n")];
        assert_eq!(wear_of(&emmc), Some((Some(30), normal)));
        let worn = [("life_time", "0x0b 0x00\n"), ("pre_eol_info", "0x03\n")];
        assert_eq!(wear_of(&worn), Some((Some(110), Some("urgent".to_owned()))));
        let ufs = [
            ("health_descriptor/life_time_estimation_a", "0x02\n"),
            ("health_descriptor/life_time_estimation_b", "0x04\n"),
            ("health_descriptor/eol_info", "0x02\n"),
        ];
        assert_eq!(wear_of(&ufs), Some((Some(40), Some("warning".to_owned()))));
    }

    #[test]
    fn an_sd_card_and_strange_files_report_nothing() {
        assert_eq!(wear_of(&[]), None);
        let undefined = [("life_time", "0x00 0x00\n"), ("pre_eol_info", "0x00\n")];
        assert_eq!(wear_of(&undefined), None);
        assert_eq!(wear_of(&[("life_time", "worn out\n"), ("pre_eol_info", "")]), None);
        assert_eq!(wear_of(&[("life_time", "0xffffffff\n")]), None);
        assert_eq!(of_path(Path::new("/dev/null")), None, "no block device");
    }
}

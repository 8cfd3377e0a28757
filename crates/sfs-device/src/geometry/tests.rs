//! Tests of geometries read from sysfs trees that the tests build.
//!
//! The trees have the links and directories that the kernel makes for a whole disk, a partition and
//! an MMC card. The `/sys` of this machine is not read.

use std::os::unix::fs::symlink;

use super::*;

/// Fake `/sys` in a temporary directory, which is removed on drop.
struct FakeSysfs(tempfile::TempDir);

impl FakeSysfs {
    fn new() -> FakeSysfs {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("dev/block")).unwrap();
        FakeSysfs(directory)
    }

    fn attribute(&self, path: &str, value: &str) -> &FakeSysfs {
        let path = self.0.path().join("devices").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
        self
    }

    fn number(&self, number: &str, path: &str) -> &FakeSysfs {
        let link = self.0.path().join("dev/block").join(number);
        symlink(format!("../../devices/{path}"), link).unwrap();
        self
    }

    fn disk(&self, name: &str) -> &FakeSysfs {
        self.attribute(&format!("{name}/queue/logical_block_size"), "512")
            .attribute(&format!("{name}/queue/physical_block_size"), "4096")
            .attribute(&format!("{name}/queue/discard_granularity"), "65536")
            .attribute(&format!("{name}/queue/discard_max_bytes"), "2147450880")
            .attribute(&format!("{name}/queue/optimal_io_size"), "131072")
    }

    fn geometry(&self, major: u32, minor: u32, length: u64) -> Geometry {
        Geometry::from_sysfs(self.0.path(), BlockDeviceNumber { major, minor }, length)
    }
}

const WHOLE_DISK: Geometry = Geometry {
    block_count: 256,
    logical_block_size: 512,
    physical_block_size: 4096,
    discard_granularity: 65536,
    optimal_io_size: 131_072,
    partition_start: 0,
    preferred_erase_size: 0,
};

#[test]
fn a_whole_disk_has_the_attributes_of_its_queue() {
    let sysfs = FakeSysfs::new();
    sysfs.disk("sda").number("8:0", "sda");
    assert_eq!(sysfs.geometry(8, 0, 1 << 20), WHOLE_DISK);
}

#[test]
fn a_partition_has_the_attributes_of_its_disk_and_its_own_start() {
    let sysfs = FakeSysfs::new();
    sysfs
        .disk("sda")
        .attribute("sda/sda1/partition", "1")
        .attribute("sda/sda1/start", "2048")
        .number("8:1", "sda/sda1");
    let expected = Geometry { partition_start: 1 << 20, ..WHOLE_DISK };
    assert_eq!(sysfs.geometry(8, 1, 1 << 20), expected);
}

#[test]
fn a_card_and_its_partition_report_the_preferred_erase_size() {
    let sysfs = FakeSysfs::new();
    sysfs
        .disk("mmcblk0")
        .attribute("mmcblk0/device/preferred_erase_size", "4194304")
        .attribute("mmcblk0/mmcblk0p1/partition", "1")
        .attribute("mmcblk0/mmcblk0p1/start", "8192")
        .number("179:0", "mmcblk0")
        .number("179:1", "mmcblk0/mmcblk0p1");
    let card = Geometry { preferred_erase_size: 4 << 20, ..WHOLE_DISK };
    assert_eq!(sysfs.geometry(179, 0, 1 << 20), card);
    let partition = Geometry { partition_start: 4 << 20, ..card };
    assert_eq!(sysfs.geometry(179, 1, 1 << 20), partition);
}

#[test]
fn a_device_without_discard_has_granularity_zero() {
    let sysfs = FakeSysfs::new();
    sysfs.disk("sda").attribute("sda/queue/discard_max_bytes", "0").number("8:0", "sda");
    assert_eq!(sysfs.geometry(8, 0, 1 << 20).discard_granularity, 0);
}

#[test]
fn a_missing_or_malformed_attribute_is_zero() {
    let sysfs = FakeSysfs::new();
    sysfs
        .attribute("sda/queue/logical_block_size", "a lot")
        .attribute("sda/queue/physical_block_size", "99999999999")
        .attribute("sda/queue/optimal_io_size", "-1")
        .number("8:0", "sda");
    let only_length = Geometry { block_count: 2, ..Geometry::default() };
    assert_eq!(sysfs.geometry(8, 0, 3 * 4096 - 1), only_length);
    assert_eq!(sysfs.geometry(9, 9, 2 * 4096), only_length);
}

#[test]
fn a_request_past_the_end_is_invalid_input() {
    let geometry = Geometry::of_image(8 * 4096);
    geometry.check_range(Operation::Read, 0, 8).unwrap();
    geometry.check_range(Operation::Read, 8, 0).unwrap();
    for (address, block_count) in [(0, 9), (8, 1), (9, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let error = geometry.check_range(Operation::Discard, address, block_count).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.operation, Operation::Discard);
    }
}

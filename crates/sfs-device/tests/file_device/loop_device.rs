//! Tests of [`FileDevice`] on loop devices over temporary image files.
//!
//! A test prints the reason and passes where loop devices cannot be made. Each device is detached on drop.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use sfs_device::{Access, Block, Device, FileDevice, OpenErrorKind};

use super::{ImageFile, numbered, open_error, read, round_trip};

/// Loop device over a temporary image, detached on drop.
struct LoopDevice {
    image: ImageFile,
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a loop device; returns `None` and prints the reason where none can be made.
    fn new(block_count: u64, options: &[&str]) -> Option<LoopDevice> {
        let image = ImageFile::new(block_count);
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(&image.path)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(LoopDevice { image, path })
            }
            Ok(output) => {
                println!("skip: losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skip: losetup: {error}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.path).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("cannot detach {}", self.path.display());
        }
    }
}

#[test]
fn a_block_device_is_written_discarded_and_claimed() {
    let Some(loop_device) = LoopDevice::new(1024, &[]) else { return };
    let device = FileDevice::open(&loop_device.path, Access::ReadWrite).unwrap();
    assert!(device.is_block_device());
    assert_eq!(device.geometry().block_count, 1024);
    assert_eq!(device.geometry().logical_block_size, 512);
    assert_eq!(device.geometry().partition_start, 0);

    round_trip(&device);
    let mut in_image = Block::zeroed(1);
    let image = File::open(&loop_device.image.path).unwrap();
    image.read_exact_at(Block::bytes_of_mut(&mut in_image), 3 * 4096).unwrap();
    assert_eq!(in_image[..], numbered(1));

    device.discard(0, 1024).unwrap();
    if device.geometry().discard_granularity > 0 {
        assert_eq!(read(&device, 3, 1), [Block::ZERO]);
    }

    let path = &loop_device.path;
    assert!(matches!(open_error(path, Access::ReadWrite), OpenErrorKind::Busy));
    assert!(matches!(open_error(path, Access::ReadOnly), OpenErrorKind::Busy));
    FileDevice::open_shared(path, Access::ReadOnly).unwrap();
    drop(device);
    FileDevice::open(path, Access::ReadWrite).unwrap();
}

/// As udev does at every event of the device; the kernel's claim stays with whoever opens it for use.
#[test]
fn an_open_waits_for_a_program_that_inspects_a_block_device() {
    let Some(loop_device) = LoopDevice::new(16, &[]) else { return };
    let inspecting = File::open(&loop_device.path).unwrap();
    inspecting.lock_shared().unwrap();
    let refused = open_error(&loop_device.path, Access::ReadWrite);
    assert!(matches!(refused, OpenErrorKind::Locked), "{refused:?}");
    let mut explained = 0;
    let opened = FileDevice::open_patiently(&loop_device.path, Access::ReadWrite, || {
        explained += 1;
        inspecting.unlock().unwrap();
    });
    opened.unwrap();
    assert_eq!(explained, 1);
}

#[test]
fn a_write_protected_block_device_opens_for_reading_only() {
    let Some(loop_device) = LoopDevice::new(16, &["--read-only"]) else { return };
    let error = open_error(&loop_device.path, Access::ReadWrite);
    assert!(matches!(error, OpenErrorKind::WriteProtected), "{error:?}");
    let device = FileDevice::open(&loop_device.path, Access::ReadOnly).unwrap();
    assert_eq!(read(&device, 0, 16), vec![Block::ZERO; 16]);
}

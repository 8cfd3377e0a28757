//! Errors of making a volume.
//!
//! Each message is one line that begins with the device and names the remedy, if there is one.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use sfs_core::format::{Layout, LayoutError};
use sfs_device::{BLOCK_SIZE, DeviceError, OpenError};

use crate::plan::SEGMENT_SIZE_MIN;
use crate::signatures::Found;
use crate::{FillError, Verdict};

/// Reason why no volume was made.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// There is no such file or device.
    #[error("{}: no such file or device; give --size to make an image file", .0.display())]
    Missing(PathBuf),
    /// The device could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The device is mounted.
    #[error("{}: is mounted at {}; unmount it first", .device.display(), .at.display())]
    Mounted {
        /// Path of the device.
        device: PathBuf,
        /// Mount point.
        at: PathBuf,
    },
    /// A loop device uses the image file.
    #[error("{}: is in use by {used}; detach it first with losetup -d {used}", .device.display(), used = .loop_device.display())]
    BehindLoop {
        /// Path of the image file.
        device: PathBuf,
        /// Path of the loop device.
        loop_device: PathBuf,
    },
    /// The file below the loop device is mounted by itself.
    #[error("{}: its file {} is mounted at {}; unmount it first", .device.display(), .file.display(), .at.display())]
    FileMounted {
        /// Path of the loop device.
        device: PathBuf,
        /// Path of the file below it.
        file: PathBuf,
        /// Mount point.
        at: PathBuf,
    },
    /// The kernel swaps to the device.
    #[error("{device}: is in use as swap; swapoff {device} first", device = .0.display())]
    Swap(PathBuf),
    /// The device carries the signatures of other content.
    #[error("{}: has {}; give -f to overwrite", .device.display(), listed(.found))]
    Signatures {
        /// Path of the device.
        device: PathBuf,
        /// Signatures; at least one.
        found: Vec<Found>,
    },
    /// The file or device exists and is smaller than the requested size.
    #[error("{}: exists and has {actual} bytes, not {wanted}; remove it, or leave out --size", .device.display())]
    SizeDiffers {
        /// Path of the device.
        device: PathBuf,
        /// Actual size in bytes.
        actual: u64,
        /// Requested size in bytes.
        wanted: u64,
    },
    /// No volume fits.
    #[error("{}: {error}{}", .device.display(), hint(.error))]
    Layout {
        /// Path of the device.
        device: PathBuf,
        /// Reason.
        #[source]
        error: LayoutError,
    },
    /// The device does not store all data that is written to it.
    #[error("{}: {verdict}; do not use the device: no volume was made", .device.display())]
    Faulty {
        /// Path of the device.
        device: PathBuf,
        /// Verdict with the defect of the device.
        verdict: Verdict,
    },
    /// The path of a new image file is in the directory of device files.
    #[error("{}: no such device; an image file cannot be made in {}, where only device files are", .path.display(), .directory.display())]
    AmongDevices {
        /// Path of the image file.
        path: PathBuf,
        /// Root of the filesystem with the device files.
        directory: PathBuf,
    },
    /// The device failed.
    #[error("{}: {error}", .device.display())]
    Device {
        /// Path of the device.
        device: PathBuf,
        /// Error of the device.
        #[source]
        error: DeviceError,
    },
    /// The volume's first content could not be written.
    #[error("{}: {error}", .device.display())]
    Volume {
        /// Path of the device.
        device: PathBuf,
        /// Error of the core.
        #[source]
        error: sfs_core::Error,
    },
    /// The volume could not be filled.
    #[error("{}: {error}", .device.display())]
    Fill {
        /// Path of the device.
        device: PathBuf,
        /// Entry that could not be copied, and the reason.
        #[source]
        error: FillError,
    },
    /// A volume could not be made in an object store.
    #[error("{}: {reason}", .store.display())]
    Store {
        /// URL of the store.
        store: PathBuf,
        /// Answer of the store, or of the program that reaches it.
        reason: String,
    },
    /// The key file cannot be read or made.
    #[error(transparent)]
    Key(#[from] sfs_object::KeyFileError),
    /// A key for a volume on a device.
    #[error("{}: --key-file and --new-key-file are for a volume in an object store; dm-crypt encrypts a device", .0.display())]
    KeyOfDevice(PathBuf),
    /// `--fit` needs a file that it may give its size.
    #[error("{}: exists; --fit makes a new image file", .0.display())]
    FitExists(PathBuf),
    /// `--seed` with a data layout whose protection from other users depends on a secret key.
    #[error("{}: --seed needs --layout log: data in place is safe from other users by a secret key", .0.display())]
    SeedInPlace(PathBuf),
    /// A cache before a volume whose data is overwritten in place.
    #[error("{}: --cache needs --layout log: where data is overwritten in place, nothing on the disk tells which copy is newer", .0.display())]
    CacheInPlace(PathBuf),
    /// The cache would be on the disk itself.
    #[error("{}: is the disk itself; give another device to --cache", .0.display())]
    CacheIsDisk(PathBuf),
    /// The cache could not be made; the volume was.
    #[error("{}: {error}; the volume was made, and mounts without its cache", .device.display())]
    Cache {
        /// Path of the cache device.
        device: PathBuf,
        /// Reason.
        #[source]
        error: sfs_cache::CacheError,
    },
    /// The environment variable has no number of seconds.
    #[error("SOURCE_DATE_EPOCH={0}: not a number of seconds since 1970")]
    SourceDate(String),
    /// The device could not be read, or the bytes after its last whole block could not be wiped.
    #[error("{}: {error}", .device.display())]
    Bytes {
        /// Path of the device.
        device: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
}

/// Returns the signatures as a list: `XFS filesystem (at byte 0), ...`.
fn listed(found: &[Found]) -> String {
    let mut list = String::new();
    for (index, Found { name, offset }) in found.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let _ = write!(list, "{separator}{name} (at byte {offset})");
    }
    list
}

/// Returns the remedy of `error`, if another segment size would fit.
fn hint(error: &LayoutError) -> &'static str {
    match error {
        LayoutError::TooSmall { minimum } if *minimum > least_volume() => {
            "; try --segment-size auto"
        }
        _ => "",
    }
}

/// Returns the size of the smallest volume with any segment size, in bytes.
fn least_volume() -> u64 {
    match Layout::new(0, SEGMENT_SIZE_MIN / BLOCK_SIZE as u64, 0) {
        Err(LayoutError::TooSmall { minimum }) => minimum,
        _ => 0,
    }
}

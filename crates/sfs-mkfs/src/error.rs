//! Why no volume was made.
//!
//! Owns: the error type, and the remedy that each message names.
//! Promises: one line each.
//! Never: carries text that another part made up.

use std::fmt;
use std::io;
use std::path::PathBuf;

use sfs_core::format::{Layout, LayoutError};
use sfs_device::{BLOCK_SIZE, DeviceError, OpenError};

use crate::Fault;
use crate::plan::SEGMENT_SIZE_MIN;
use crate::signatures::Found;

/// Why no volume was made.
#[derive(Debug)]
pub enum MkfsError {
    /// There is no such file or device.
    Missing(PathBuf),
    /// It could not be opened.
    Open(OpenError),
    /// It is mounted there.
    Mounted {
        /// The device.
        device: PathBuf,
        /// The mount point.
        at: PathBuf,
    },
    /// It is behind that loop device.
    BehindLoop {
        /// The image file.
        device: PathBuf,
        /// The loop device.
        loop_device: PathBuf,
    },
    /// It is a loop device over a file that is mounted by itself.
    FileMounted {
        /// The loop device.
        device: PathBuf,
        /// What it is over.
        file: PathBuf,
        /// The mount point.
        at: PathBuf,
    },
    /// The kernel swaps to it.
    Swap(PathBuf),
    /// It carries the marks of something else.
    Signatures {
        /// The device.
        device: PathBuf,
        /// The marks; at least one.
        found: Vec<Found>,
    },
    /// It exists, and is not as large as asked for.
    SizeDiffers {
        /// The device.
        device: PathBuf,
        /// Its size in bytes.
        actual: u64,
        /// The size asked for.
        wanted: u64,
    },
    /// No volume fits.
    Layout {
        /// The device.
        device: PathBuf,
        /// Why.
        error: LayoutError,
    },
    /// The device does not store what it is given.
    Faulty {
        /// The device.
        device: PathBuf,
        /// What it does instead.
        fault: Fault,
    },
    /// The device failed.
    Device {
        /// The device.
        device: PathBuf,
        /// What it said.
        error: DeviceError,
    },
    /// The volume's first content could not be written.
    Volume {
        /// The device.
        device: PathBuf,
        /// What happened.
        error: sfs_core::Error,
    },
    /// The device's bytes could not be looked at, or its last odd bytes not be wiped.
    Bytes {
        /// The device.
        device: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(device) => write!(
                f,
                "{}: no such file or device; give --size to make an image file",
                device.display()
            ),
            Self::Open(error) => error.fmt(f),
            Self::Mounted { device, at } => {
                let (device, at) = (device.display(), at.display());
                write!(f, "{device}: is mounted at {at}; unmount it first")
            }
            Self::BehindLoop { device, loop_device } => {
                let (device, used) = (device.display(), loop_device.display());
                write!(f, "{device}: is in use by {used}; detach it first with losetup -d {used}")
            }
            Self::FileMounted { device, file, at } => {
                let (device, file, at) = (device.display(), file.display(), at.display());
                write!(f, "{device}: its file {file} is mounted at {at}; unmount it first")
            }
            Self::Swap(device) => {
                let device = device.display();
                write!(f, "{device}: is in use as swap; swapoff {device} first")
            }
            Self::Signatures { device, found } => {
                write!(f, "{}: has ", device.display())?;
                for (index, found) in found.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{} (at byte {})", found.name, found.offset)?;
                }
                f.write_str("; give -f to overwrite")
            }
            Self::SizeDiffers { device, actual, wanted } => write!(
                f,
                "{}: exists and has {actual} bytes, not {wanted}; remove it, or leave out --size",
                device.display()
            ),
            Self::Layout { device, error } => {
                write!(f, "{}: {error}", device.display())?;
                let would_fit = match error {
                    LayoutError::TooSmall { minimum } => *minimum > least_volume(),
                    LayoutError::SegmentSize => false,
                };
                if would_fit { f.write_str("; try --segment-size auto") } else { Ok(()) }
            }
            Self::Faulty { device, fault } => {
                write!(f, "{}: {fault}; do not use it: nothing was made", device.display())
            }
            Self::Device { device, error } => write!(f, "{}: {error}", device.display()),
            Self::Volume { device, error } => write!(f, "{}: {error}", device.display()),
            Self::Bytes { device, error } => write!(f, "{}: {error}", device.display()),
        }
    }
}

impl std::error::Error for MkfsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Layout { error, .. } => Some(error),
            Self::Device { error, .. } => Some(error),
            Self::Volume { error, .. } => Some(error),
            Self::Bytes { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Bytes of the smallest volume, whatever its segment size.
fn least_volume() -> u64 {
    match Layout::new(0, SEGMENT_SIZE_MIN / BLOCK_SIZE as u64, 0) {
        Err(LayoutError::TooSmall { minimum }) => minimum,
        _ => 0,
    }
}

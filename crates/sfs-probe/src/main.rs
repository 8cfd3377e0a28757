//! `sfs-probe`: prints udev's properties of a device with an SFS volume.
//!
//! `65-sfs.rules` runs it for every block device that nothing else has recognized. The exit status is 0 after a volume
//! was found, 2 if there is none, as of blkid(8), 1 if the device cannot be opened, and 4 after wrong usage.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use sfs_probe::{BLOCK_LEN, find, properties};

const CANNOT_OPEN: u8 = 1;
const NOTHING_FOUND: u8 = 2;
const USAGE: u8 = 4;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [path] = arguments.as_slice() else {
        eprintln!("usage: sfs-probe DEVICE");
        return ExitCode::from(USAGE);
    };
    let device = match open(path) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("sfs-probe: {}: {error}", path.display());
            return ExitCode::from(CANNOT_OPEN);
        }
    };
    // The length of a block device is where it ends.
    let len = rustix::fs::seek(&device, SeekFrom::End(0)).unwrap_or(0);
    let read = |at: u64, block: &mut [u8; BLOCK_LEN]| {
        device.read_exact_at(block, at * BLOCK_LEN as u64).is_ok()
    };
    match find(len / BLOCK_LEN as u64, read) {
        Some(volume) => match io::stdout().write_all(properties(&volume).as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(CANNOT_OPEN),
        },
        None => ExitCode::from(NOTHING_FOUND),
    }
}

/// Opens a block device or a file; nothing else is waited for, such as the writer of a pipe.
fn open(path: &OsString) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let device = rustix::fs::open(path.as_os_str(), flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&device)?.st_mode) {
        FileType::BlockDevice | FileType::RegularFile => Ok(device.into()),
        _ => Err(io::Error::other("is neither a block device nor a file")),
    }
}

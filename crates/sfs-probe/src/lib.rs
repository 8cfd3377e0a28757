//! Finds the SFS volume of a device for udev: its UUID, its label and its format version.
//!
//! [`find`] runs as root whenever a device appears, so the work is bounded for any content: it reads at most
//! [`READS_MAX`] blocks of 4 KiB, and keeps one of them. No length on the device decides how much is read or allocated. The
//! rules are those of a mount: the newer of two sound superblocks of one volume counts, and if the first copy is damaged,
//! the locator or the last block leads to the backup.
//! [`properties`] has what udev imports, with the characters that udev expects.
#![forbid(unsafe_code)]

mod encode;

use std::fmt::Write as _;

use sfs_core::format::{
    FORMAT_VERSION, Incompatibility, LOCATOR_ADDRESS, Label, SUPERBLOCK_ADDRESS, Superblock,
};

pub use encode::{encoded, safe};

/// Length of a block in bytes.
pub const BLOCK_LEN: usize = 4096;

/// Maximum number of blocks that [`find`] reads.
pub const READS_MAX: usize = 4;

/// A volume of SFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundVolume {
    /// Format version; `None` if a newer program has added features to the version of this program.
    pub version: Option<u32>,
    /// UUID and label; `None` if only a newer program can read them.
    pub identity: Option<([u8; 16], Label)>,
}

/// Content of one block that may have a superblock.
enum Copy {
    /// Superblock of a volume that this program can read.
    Sound(Box<Superblock>),
    /// Superblock of a newer program.
    Newer(Option<u32>),
    /// Anything else.
    None,
}

/// Looks for a volume on a device of `block_count` blocks. `read` fills the block with this number, and returns whether it
/// could; it is called at most [`READS_MAX`] times, with numbers below `block_count`.
pub fn find(
    block_count: u64,
    mut read: impl FnMut(u64, &mut [u8; BLOCK_LEN]) -> bool,
) -> Option<FoundVolume> {
    let mut block = [0; BLOCK_LEN];
    let mut copy = |at: u64| match at < block_count && read(at, &mut block) {
        true => decode(&block, at),
        false => Copy::None,
    };
    let first = match copy(SUPERBLOCK_ADDRESS) {
        Copy::Newer(version) => return Some(FoundVolume { version, identity: None }),
        Copy::Sound(first) => first,
        Copy::None => return found(backup_without_first(block_count, copy)?),
    };
    match copy(first.layout.backup) {
        Copy::Newer(version) => Some(FoundVolume { version, identity: None }),
        Copy::Sound(backup) if is_newer(&backup, &first) => found(*backup),
        _ => found(*first),
    }
}

/// Returns the backup of a volume whose first superblock is damaged.
fn backup_without_first(block_count: u64, mut copy: impl FnMut(u64) -> Copy) -> Option<Superblock> {
    if let Copy::Sound(locator) = copy(LOCATOR_ADDRESS) {
        let at = locator.layout.backup;
        if let Copy::Sound(backup) = copy(at)
            && backup.uuid == locator.uuid
            && backup.layout.backup == at
        {
            return Some(*backup);
        }
    }
    let last = block_count.checked_sub(1)?;
    match copy(last) {
        Copy::Sound(backup) if backup.layout.backup == last => Some(*backup),
        _ => None,
    }
}

fn is_newer(backup: &Superblock, first: &Superblock) -> bool {
    backup.uuid == first.uuid && backup.generation > first.generation
}

fn decode(block: &[u8; BLOCK_LEN], at: u64) -> Copy {
    match Superblock::incompatibility_of(block) {
        Some(Incompatibility::Version(version)) => Copy::Newer(Some(version)),
        Some(_) => Copy::Newer(None),
        None => Superblock::decode(block, at).map_or(Copy::None, |found| Copy::Sound(found.into())),
    }
}

fn found(superblock: Superblock) -> Option<FoundVolume> {
    let Superblock { version, uuid, label, .. } = superblock;
    Some(FoundVolume { version: Some(version), identity: Some((uuid, label)) })
}

/// Returns the properties of a device with `volume`, one a line, as udev's `IMPORT{program}` reads them.
pub fn properties(volume: &FoundVolume) -> String {
    let version = volume.version.unwrap_or(FORMAT_VERSION);
    let mut text = format!("ID_FS_TYPE=sfs\nID_FS_USAGE=filesystem\nID_FS_VERSION={version}\n");
    let Some((uuid, label)) = &volume.identity else { return text };
    // A UUID of zeros names no volume, and libblkid leaves it out, too.
    if *uuid != [0; 16] {
        let uuid = uuid_text(uuid);
        let _ = write!(text, "ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n");
    }
    // As libblkid does with the labels of every filesystem.
    let label = label.as_str().trim_end_matches(' ');
    if !label.is_empty() {
        let _ = write!(text, "ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n", safe(label), encoded(label));
    }
    text
}

/// Returns a UUID in its usual form.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

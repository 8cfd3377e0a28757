//! Programs that fail in place of the one that is installed: scripts that speak a part of the protocol of a handover.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::harness::copy_program;

const BLOCK: usize = 4096;

/// Number of the block with the first superblock; the second one is in the last block.
const SUPERBLOCK: u64 = 4;

/// The installed program of a mount.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
}

impl Program {
    /// Installs the program under test in `directory`.
    pub(crate) fn copy_to(directory: &Path) -> Self {
        let program = Self { path: directory.join("sfs-mount") };
        program.restore();
        program
    }

    pub(crate) fn restore(&self) {
        let _ = fs::remove_file(&self.path);
        copy_program(Path::new(env!("CARGO_BIN_EXE_sfs-mount")), &self.path);
    }

    pub(crate) fn remove(&self) {
        fs::remove_file(&self.path).expect("the program");
    }

    /// Replaces the program, as a package manager does: by another file.
    pub(crate) fn replace_by(&self, content: &[u8]) {
        let _ = fs::remove_file(&self.path);
        fs::write(&self.path, content).expect("room");
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
}

pub(crate) fn script(commands: &str) -> String {
    format!("#!/bin/sh\n{commands}\n")
}

/// Returns a command that sends `message`: its length, and its JSON.
fn send(message: &str) -> String {
    let len: String =
        (message.len() as u32).to_le_bytes().map(|byte| format!("\\{byte:03o}")).concat();
    format!("printf '{len}{message}' >&0")
}

/// Protocol of handovers that the programs under test speak.
pub(crate) const PROTOCOL: u32 = 3;

pub(crate) fn hello(protocol: u32, version: &str) -> String {
    send(&format!(r#"{{"Hello":{{"protocol":{protocol},"version":"{version}"}}}}"#))
}

pub(crate) fn ready() -> String {
    send(r#""Ready""#)
}

/// Returns a command that receives a message, and drops it with its descriptors.
pub(crate) fn take_state() -> String {
    "head -c $(head -c 4 <&0 | od -An -tu4) <&0 >/dev/null".into()
}

/// Returns commands that put superblocks of an older format version in the places of `saved`, and run the real program. The file
/// `older` is made for it.
pub(crate) fn put_older_format(path: &Path, saved: &[(u64, Vec<u8>)], older: &Path) -> String {
    const CHECKSUM_AT: usize = 8;
    const VERSION_AT: usize = 12;
    let mut block = saved[0].1.clone();
    block[VERSION_AT] -= 1;
    let checksum = crc32c::crc32c(&block[VERSION_AT..]).to_le_bytes();
    block[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum);
    fs::write(older, block).expect("room");
    let put = |(at, _): &(u64, Vec<u8>)| {
        let (older, path, seek) = (older.display(), path.display(), at / BLOCK as u64);
        format!("dd if={older} of={path} bs={BLOCK} seek={seek} count=1 conv=notrunc status=none\n")
    };
    let puts: String = saved.iter().map(put).collect();
    let program = env!("CARGO_BIN_EXE_sfs-mount");
    format!("{puts}exec {program} \"$@\"")
}

/// Returns commands that overwrite both superblocks of the image at `path`, and run the real program.
pub(crate) fn damage_and_run(path: &Path) -> String {
    let program = env!("CARGO_BIN_EXE_sfs-mount");
    format!("{}\nexec {program} \"$@\"", damage(path))
}

/// Returns commands that overwrite both superblocks of the image at `path`.
pub(crate) fn damage(path: &Path) -> String {
    let last = fs::metadata(path).expect("the image").len() / BLOCK as u64 - 1;
    let wipe = |block: u64| {
        let path = path.display();
        format!(
            "dd if=/dev/zero of={path} bs={BLOCK} seek={block} count=1 conv=notrunc status=none"
        )
    };
    format!("{}\n{}", wipe(SUPERBLOCK), wipe(last))
}

/// Returns both superblocks, with their offsets.
pub(crate) fn superblocks(path: &Path) -> [(u64, Vec<u8>); 2] {
    let image = fs::File::open(path).expect("the image");
    let last = image.metadata().expect("the image").len() / BLOCK as u64 - 1;
    [SUPERBLOCK, last].map(|block| {
        let (at, mut bytes) = (block * BLOCK as u64, vec![0; BLOCK]);
        image.read_exact_at(&mut bytes, at).expect("the image");
        (at, bytes)
    })
}

pub(crate) fn restore(path: &Path, saved: &[(u64, Vec<u8>)]) {
    let image = fs::File::options().write(true).open(path).expect("the image");
    saved.iter().for_each(|(at, bytes)| image.write_all_at(bytes, *at).expect("the image"));
}

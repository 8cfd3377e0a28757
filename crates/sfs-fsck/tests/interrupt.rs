//! SIGINT during a check: exit code 32, and the image is unchanged.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod used;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sfs_core::format::{ChunkSummary, SummaryEntry};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice};

use used::{BLOCKS, used};

/// Maximum number of attempts. A check that ends before the signal is repeated.
const TRIES_MAX: u32 = 200;

const CANCELLED: i32 = 32;

fn bytes_of(device: &RamDevice) -> Vec<u8> {
    let mut blocks = Block::zeroed(BLOCKS as usize);
    device.read(0, &mut blocks).expect("RAM");
    Block::bytes_of(&blocks).to_vec()
}

/// Flips a bit of each data block of the first chunk with data.
fn damage(bytes: &mut [u8]) {
    for at in 0..BLOCKS as usize {
        let first = &bytes[at * BLOCK_SIZE..];
        let Ok(blocks) = ChunkSummary::peek(first, at as u64, BLOCKS - at as u64) else { continue };
        let volume = u64::from_le_bytes(*b"01234567");
        let summary = ChunkSummary::decode(&first[..blocks * BLOCK_SIZE], volume, at as u64);
        let Ok(summary) = summary else { continue };
        let is_data = |entry: &&SummaryEntry| matches!(entry, SummaryEntry::Data { .. });
        let count = summary.entries.iter().filter(is_data).count();
        if count > 0 {
            (0..count).for_each(|no| bytes[(at + blocks + no) * BLOCK_SIZE] ^= 1);
            return;
        }
    }
    panic!("no chunk holds data");
}

fn write(path: &Path, bytes: &[u8]) {
    File::create(path).and_then(|file| file.write_all_at(bytes, 0)).expect("an image");
}

/// Returns whether `child` catches SIGINT, or has ended.
fn catches_interrupt(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a child");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).expect("a mask"));
    mask & 1 << (libc::SIGINT - 1) != 0 || status.contains("State:\tZ")
}

/// Runs `sfs-fsck`, and interrupts it as soon as it catches the signal.
fn interrupted(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-fsck"));
    command.args(arguments).arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("sfs-fsck runs");
    while !catches_interrupt(&child) {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("a running process");
    child.wait_with_output().expect("an exit")
}

#[test]
fn an_interrupted_check_exits_with_32_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    let mut bytes = bytes_of(&used(true).0);
    damage(&mut bytes);
    for (arguments, quick) in [(&["-n", "--data"][..], 4), (&["-y", "--data"], 1)] {
        let is_cancelled = |_| {
            write(&path, &bytes);
            let output = interrupted(arguments, &path);
            let code = output.status.code().expect("no signal ended the program");
            if code != CANCELLED {
                // The check, or the repair, ended before the signal.
                assert_eq!(code, quick, "{arguments:?}");
                return false;
            }
            let errors = String::from_utf8(output.stderr).expect("UTF-8");
            let name = path.display();
            assert_eq!(errors, format!("sfs-fsck: {name}: cancelled; nothing was changed\n"));
            assert!(fs::read(&path).expect("the image") == bytes, "{arguments:?} alters the image");
            true
        };
        assert!((0..TRIES_MAX).any(is_cancelled), "{arguments:?} always ends before the signal");
    }
}

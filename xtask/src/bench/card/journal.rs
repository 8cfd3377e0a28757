//! A log like journald's, a stand-in: journald itself logs for the whole machine.
//!
//! As in a journal, the file grows by 8 MiB at a time, entries are added behind the last one, and the head of
//! the file changes with them. Ten entries are synced at once, as after a message of high priority.

use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf, time::Duration};

use anyhow::Result;
use rustix::fs::FallocateFlags;

use super::load::{Place, Program, UnitLoad, timed};

/// Bytes by which the file grows.
const GROWTH: u64 = 8 << 20;

/// Bytes of a file after which the next one is begun.
const FILE_MAX: u64 = 64 << 20;

/// Number of files that are kept.
const FILES: u64 = 2;

const HEAD_LEN: usize = 264;
const ENTRY_LEN: usize = 320;
const ENTRIES: usize = 10;

pub(super) struct Journal {
    dir: PathBuf,
    file: File,
    number: u64,
    allocated: u64,
    end: u64,
    entries: u64,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Journal> {
    let dir = place.dir.clone();
    let file = File::create_new(name(&dir, 0))?;
    Ok(Journal { dir, file, number: 0, allocated: 0, end: HEAD_LEN as u64, entries: 0 })
}

fn name(dir: &std::path::Path, number: u64) -> PathBuf {
    dir.join(format!("system-{number}.journal"))
}

impl Journal {
    fn append(&mut self) -> Result<()> {
        if self.end + (ENTRIES * ENTRY_LEN) as u64 > FILE_MAX {
            self.rotate()?;
        }
        for _ in 0..ENTRIES {
            if self.end + ENTRY_LEN as u64 > self.allocated {
                rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.allocated, GROWTH)?;
                self.allocated += GROWTH;
            }
            self.entries += 1;
            let text =
                format!("entry {} of a service that has something to report; ", self.entries);
            let bytes: Vec<u8> = text.bytes().cycle().take(ENTRY_LEN).collect();
            self.file.write_all_at(&bytes, self.end)?;
            self.end += ENTRY_LEN as u64;
            let mut head = [0; HEAD_LEN];
            head[..8].copy_from_slice(&self.end.to_le_bytes());
            head[8..16].copy_from_slice(&self.entries.to_le_bytes());
            self.file.write_all_at(&head, 0)?;
        }
        Ok(self.file.sync_all()?)
    }

    fn rotate(&mut self) -> Result<()> {
        self.number += 1;
        self.file = File::create_new(name(&self.dir, self.number))?;
        (self.allocated, self.end) = (0, HEAD_LEN as u64);
        if self.number >= FILES {
            std::fs::remove_file(name(&self.dir, self.number - FILES))?;
        }
        Ok(())
    }
}

impl UnitLoad for Journal {
    const PROGRAM: Program = Program::Journal;

    fn unit(&mut self) -> Result<Duration> {
        timed(|| self.append())
    }
}

//! A camera: files of 2 MB, each synced when it is complete; the oldest is deleted at 90 %.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;

use super::load::{Place, Program, UnitLoad, timed, used_percent};
use crate::cleanup;

const FILE_LEN: usize = 2_000_000;

/// Bytes of a write, as a recorder's buffer.
const WRITE_LEN: usize = 64 << 10;

/// Part of the space in use at which the oldest file is deleted, in percent.
const FULL_PERCENT: f64 = 90.0;

pub(super) struct Camera {
    dir: PathBuf,
    files: VecDeque<PathBuf>,
    number: u64,
    ring_bytes: u64,
    pixels: Vec<u8>,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Camera> {
    let mut numbers = super::sqlite::Numbers::new(3);
    let pixels = (0..FILE_LEN).map(|_| numbers.below(256) as u8).collect();
    let dir = place.dir.clone();
    let files = VecDeque::new();
    let mut camera = Camera { dir, files, number: 0, ring_bytes: place.ring_bytes, pixels };
    while !camera.is_full()? && !cleanup::is_stopping() {
        if let Err(error) = camera.write_file() {
            camera.delete_for(error)?;
            break;
        }
    }
    Ok(camera)
}

impl Camera {
    /// Returns whether the oldest file has to be deleted.
    fn is_full(&self) -> Result<bool> {
        let bytes = (self.files.len() * FILE_LEN) as u64;
        Ok(bytes >= self.ring_bytes || used_percent(&self.dir)? >= FULL_PERCENT)
    }

    fn record(&mut self) -> Result<()> {
        // The last file stays.
        while self.files.len() > 1 && self.is_full()? {
            self.delete_oldest()?;
        }
        while let Err(error) = self.write_file() {
            self.delete_for(error)?;
        }
        Ok(())
    }

    fn write_file(&mut self) -> io::Result<()> {
        self.number += 1;
        let path = self.dir.join(format!("clip-{:06}.mp4", self.number));
        let mut file = File::create_new(&path)?;
        self.files.push_back(path);
        // Each file has other content.
        self.pixels.rotate_left(4_099);
        for part in self.pixels.chunks(WRITE_LEN) {
            file.write_all(part)?;
        }
        file.sync_all()
    }

    /// Deletes the incomplete file and the oldest, if `error` is for want of space.
    fn delete_for(&mut self, error: io::Error) -> Result<()> {
        if error.kind() != io::ErrorKind::StorageFull || self.files.len() < 2 {
            return Err(error.into());
        }
        if let Some(incomplete) = self.files.pop_back() {
            fs::remove_file(incomplete)?;
        }
        self.delete_oldest()
    }

    fn delete_oldest(&mut self) -> Result<()> {
        if let Some(oldest) = self.files.pop_front() {
            fs::remove_file(oldest)?;
        }
        Ok(())
    }
}

impl UnitLoad for Camera {
    const PROGRAM: Program = Program::Camera;

    fn unit(&mut self) -> Result<Duration> {
        timed(|| self.record())
    }
}

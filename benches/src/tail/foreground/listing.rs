//! `ls -l` of directories that are in no cache.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, statat};

use crate::tail::{Amounts, Latencies, Outcome, Playground};

/// Lists every directory of cold names once, with the attributes of each name. The listings are spread
/// evenly over `time`; a slow filesystem lists fewer directories.
///
/// # Errors
///
/// If the filesystem refuses a request.
pub fn listing(place: &Playground, amounts: &Amounts, time: Duration) -> Result<Outcome> {
    let directories = Playground::name_directories(amounts.names);
    let interval = time / directories as u32;
    let [mut whole, mut stat] = [Latencies::default(), Latencies::default()];
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < directories && start.elapsed() < time {
        let directory = place.name_directory(rounds);
        whole.time(|| list(&directory, &mut stat)).context("listing")?;
        rounds += 1;
        thread::sleep((interval * rounds as u32).saturating_sub(start.elapsed()));
    }
    let secs = start.elapsed().as_secs_f64();
    let calls = [("ls -l", whole), ("lstat", stat)];
    let calls = calls.into_iter().filter_map(|(name, call)| Some((name, call.summary()?)));
    Ok(Outcome { rounds, secs, calls: calls.collect(), ..Outcome::default() })
}

fn list(path: &Path, stat: &mut Latencies) -> Result<()> {
    let directory = File::open(path)?;
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        stat.time(|| statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW))?;
    }
    Ok(())
}

//! The loads, and one measurement of each.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use sfs_servers::Traffic;

use super::{
    contender::{Contender, Place},
    processor,
};
use crate::run::Cmd;

const MIB: usize = 1 << 20;
/// Size of the objects of the plain transfers.
const PLAIN: usize = 8 * MIB;
const BLOCK: usize = 4096;
/// Small files that go to the store.
const FILES: usize = 200;
/// Calls for names, and for each of the two mounts whose every call is a request.
const CALLS: [usize; 2] = [5000, 50];
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time until everything is in the store.
const WAIT: Duration = Duration::from_secs(300);

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// MiB of the large file.
    pub(super) mib: u64,
}

impl Scale {
    pub(super) fn bytes(self) -> u64 {
        self.mib << 20
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    Write,
    Read,
    Store,
    Cold,
    Create,
    List,
    Rename,
    Unlink,
    Mkdir,
}

impl Row {
    pub(super) const ALL: [Self; 9] = [
        Self::Write,
        Self::Read,
        Self::Store,
        Self::Cold,
        Self::Create,
        Self::List,
        Self::Rename,
        Self::Unlink,
        Self::Mkdir,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Store => "store",
            Self::Cold => "cold",
            Self::Create => "create",
            Self::List => "list",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Mkdir => "mkdir",
        }
    }

    pub(super) fn title(self) -> String {
        match self {
            Self::Write => "sequential write, until all is in the store".to_owned(),
            Self::Read => "sequential read, cold".to_owned(),
            Self::Store => format!("{FILES} files of 4 KiB, until all are in the store"),
            Self::Cold => "the same files, listed and read, cold".to_owned(),
            Self::Create => "create a file of 4 KiB, syncfs at the end".to_owned(),
            Self::List => "readdir with stat".to_owned(),
            Self::Rename => "rename".to_owned(),
            Self::Unlink => "unlink".to_owned(),
            Self::Mkdir => "mkdir".to_owned(),
        }
    }

    /// Returns whether its figure is that of one call.
    pub(super) fn is_per_call(self) -> bool {
        !matches!(self, Self::Write | Self::Read | Self::Store | Self::Cold)
    }

    /// Returns whether it moves the large file.
    pub(super) fn is_large(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Large,
    Small,
    Names,
}

impl Step {
    pub(super) const ALL: [Self; 3] = [Self::Large, Self::Small, Self::Names];

    pub(super) fn rows(self) -> &'static [Row] {
        match self {
            Self::Large => &Row::ALL[..2],
            Self::Small => &Row::ALL[2..4],
            Self::Names => &Row::ALL[4..],
        }
    }

    /// Returns whether the contender has these rows.
    pub(super) fn has(self, contender: Contender) -> bool {
        self == Self::Large || contender != Contender::Plain
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// Calls in that time.
    pub(super) calls: usize,
    /// Seconds of processor time of the contender's processes from the mount to their end, and of the server.
    pub(super) processor: Option<[f64; 2]>,
    pub(super) traffic: Option<Traffic>,
}

/// A measurement that goes on.
struct Clock<'a, 'b> {
    place: &'a Place<'b>,
    processor: [Duration; 2],
    traffic: Option<Traffic>,
    begun: Instant,
}

impl<'a, 'b> Clock<'a, 'b> {
    /// Begins before the mount.
    fn new(place: &'a Place<'b>) -> Self {
        let processor = [processor::of_ended(), place.target.processor()];
        Self { place, processor, traffic: None, begun: Instant::now() }
    }

    /// Begins to measure the time, once it is mounted.
    fn begin(&mut self) -> Result<()> {
        self.traffic = self.place.target.traffic()?;
        self.begun = Instant::now();
        Ok(())
    }

    /// Returns the time, and what has passed.
    fn time(&self, calls: usize) -> Result<Sample> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let after = self.place.target.traffic()?;
        let traffic = after.zip(self.traffic).map(|(after, before)| Traffic {
            requests: after.requests - before.requests,
            received: after.received - before.received,
            sent: after.sent - before.sent,
        });
        Ok(Sample { seconds, calls, processor: None, traffic })
    }

    /// Adds the processor time, once the processes have ended.
    fn ended(&self, sample: Sample) -> Sample {
        let now = [processor::of_ended(), self.place.target.processor()];
        let used = [0, 1].map(|at| (now[at] - self.processor[at]).as_secs_f64());
        Sample { processor: Some(used), ..sample }
    }
}

/// Does a step once.
pub(super) fn measure(place: &Place<'_>, step: Step, scale: Scale) -> Result<Vec<(Row, Sample)>> {
    place.make()?;
    let samples = match step {
        Step::Large if place.contender == Contender::Plain => plain(place, scale)?,
        Step::Large => large(place, scale)?,
        Step::Small => small(place)?,
        Step::Names => names(place)?,
    };
    place.target.clear(&place.prefix())?;
    Ok(samples)
}

fn plain(place: &Place<'_>, scale: Scale) -> Result<Vec<(Row, Sample)>> {
    let part = place.dir.join("part");
    let mut content = vec![0; PLAIN];
    fill(&mut content, 0);
    fs::write(&part, content)?;
    let count = scale.bytes() / PLAIN as u64;
    let mut samples = Vec::new();
    let digest = Cmd::new("sha256sum").arg(&part).read()?;
    let digest = digest.split(' ').next().unwrap_or_default();
    for (row, part) in [(Row::Write, Some((part.as_path(), digest))), (Row::Read, None)] {
        let mut clock = Clock::new(place);
        clock.begin()?;
        place.transfer(part, count)?;
        let sample = clock.time(count as usize)?;
        samples.push((row, clock.ended(sample)));
        let stored = place.target.stored(&place.prefix())?;
        ensure!(stored == (count, scale.bytes()), "the store has {stored:?}");
        for no in 0..count {
            let got = place.dir.join(format!("got-{no}"));
            if row == Row::Read {
                fs::remove_file(got)?;
            }
        }
    }
    Ok(samples)
}

fn large(place: &Place<'_>, scale: Scale) -> Result<Vec<(Row, Sample)>> {
    let mut samples = Vec::new();
    let mut clock = Clock::new(place);
    let mounted = place.mount()?;
    let path = mounted.files.join("large");
    clock.begin()?;
    let mut file = File::create(&path)?;
    let mut content = vec![0; MIB];
    for no in 0..scale.mib {
        fill(&mut content, no);
        file.write_all(&content)?;
    }
    file.sync_all()?;
    drop(file);
    if place.contender.is_sfs() {
        mounted.end()?;
        samples.push((Row::Write, clock.ended(clock.time(1)?)));
    } else {
        wait_for_store(place, 1, scale.bytes())?;
        let sample = clock.time(1)?;
        mounted.end()?;
        samples.push((Row::Write, clock.ended(sample)));
    }
    place.forget_cache()?;
    let mut clock = Clock::new(place);
    let mounted = place.mount()?;
    let path = mounted.files.join("large");
    clock.begin()?;
    let mut file = File::open(path)?;
    let mut expected = vec![0; MIB];
    for no in 0..scale.mib {
        file.read_exact(&mut content)?;
        fill(&mut expected, no);
        ensure!(content == expected, "MiB {no} differs");
    }
    let sample = clock.time(1)?;
    drop(file);
    mounted.end()?;
    samples.push((Row::Read, clock.ended(sample)));
    Ok(samples)
}

fn small(place: &Place<'_>) -> Result<Vec<(Row, Sample)>> {
    let mut samples = Vec::new();
    let mut clock = Clock::new(place);
    let mounted = place.mount()?;
    let before = place.target.stored(&place.prefix())?;
    clock.begin()?;
    create(&mounted.files, FILES)?;
    if place.contender.is_sfs() {
        mounted.end()?;
        samples.push((Row::Store, clock.ended(clock.time(FILES)?)));
    } else {
        let (objects, bytes) = (before.0 + FILES as u64, before.1 + (FILES * BLOCK) as u64);
        wait_for_store(place, objects, bytes)?;
        let sample = clock.time(FILES)?;
        mounted.end()?;
        samples.push((Row::Store, clock.ended(sample)));
    }
    place.forget_cache()?;
    let mut clock = Clock::new(place);
    let mounted = place.mount()?;
    clock.begin()?;
    ensure!(list(&mounted.files)? == FILES, "files are missing");
    let mut expected = vec![0; BLOCK];
    for no in 0..FILES {
        fill(&mut expected, no as u64);
        ensure!(fs::read(mounted.files.join(format!("file-{no}")))? == expected, "file {no}");
    }
    let sample = clock.time(FILES)?;
    mounted.end()?;
    samples.push((Row::Cold, clock.ended(sample)));
    Ok(samples)
}

fn names(place: &Place<'_>) -> Result<Vec<(Row, Sample)>> {
    let calls = CALLS[usize::from(!place.contender.is_sfs())];
    let mounted = place.mount()?;
    let dir = &mounted.files;
    let mut samples = Vec::new();
    let mut clock = Clock::new(place);
    for row in Step::Names.rows() {
        clock.begin()?;
        match row {
            Row::Create => {
                create(dir, calls)?;
                rustix::fs::syncfs(File::open(dir)?)?;
            }
            Row::List => ensure!(list(dir)? == calls, "files are missing"),
            Row::Rename => each(calls, |no| {
                fs::rename(dir.join(format!("file-{no}")), dir.join(format!("renamed-{no}")))
            })?,
            Row::Unlink => each(calls, |no| fs::remove_file(dir.join(format!("renamed-{no}"))))?,
            Row::Mkdir => each(calls, |no| fs::create_dir(dir.join(format!("dir-{no}"))))?,
            _ => {}
        }
        samples.push((*row, clock.time(calls)?));
    }
    mounted.end()?;
    Ok(samples)
}

fn each(calls: usize, call: impl Fn(usize) -> std::io::Result<()>) -> Result<()> {
    Ok((0..calls).try_for_each(call)?)
}

fn create(dir: &Path, files: usize) -> Result<()> {
    let mut content = vec![0; BLOCK];
    for no in 0..files {
        fill(&mut content, no as u64);
        fs::write(dir.join(format!("file-{no}")), &content)?;
    }
    Ok(())
}

/// Returns the number of files of this size.
fn list(dir: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        files += usize::from(entry?.metadata()?.len() == BLOCK as u64);
    }
    Ok(files)
}

fn wait_for_store(place: &Place<'_>, objects: u64, bytes: u64) -> Result<()> {
    let end = Instant::now() + WAIT;
    loop {
        let stored = place.target.stored(&place.prefix())?;
        if stored.0 >= objects && stored.1 >= bytes {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the store has {stored:?} after {WAIT:?}");
        thread::sleep(PAUSE);
    }
}

/// Fills a buffer with bytes that are different for each number, and that no store compresses.
fn fill(content: &mut [u8], no: u64) {
    let mut state = no.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in content.chunks_exact_mut(64) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // One word of eight is enough to find a block that is misplaced, and takes little time.
        chunk[..8].copy_from_slice(&state.to_le_bytes());
    }
}

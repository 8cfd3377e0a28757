//! Programs that run beside a foreground load, each a process in a session of its own.
//!
//! The kernel shares processors by session, so the foreground gets the same share as beside a
//! program in another terminal. A background program answers each line on its standard input with
//! the work that it has done so far, and ends with its input.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write as _},
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use sfs_testkit::SeededRng;

use super::{Amounts, Playground};

/// Size of a write of the stream, in bytes.
const STREAM_WRITE_LEN: usize = 1 << 20;

/// Number of the stream's files.
const STREAM_FILES: u64 = 4;

/// A background program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Background {
    /// Writes 1 MiB at a time without a pause: files that are truncated and rewritten in turn.
    Stream,
    /// Writes 1 MiB at a time without a pause: files that are overwritten in place in turn.
    StreamInPlace,
    /// Copies a tree of small files again and again, as `cp -r` does, and removes each copy.
    Copy,
}

/// Work that a background program has done: bytes of the stream, or copied files.
static DONE: AtomicU64 = AtomicU64::new(0);

impl Background {
    /// Returns the name of the rate in an outcome.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Stream | Self::StreamInPlace => "stream_mb_per_s",
            Self::Copy => "copied_files_per_s",
        }
    }

    /// Returns the rate of `done` in `secs` seconds, in the unit of the reports.
    fn rate(self, done: u64, secs: f64) -> f64 {
        let scale = if self == Self::Copy { 1.0 } else { 1e6 };
        done as f64 / scale / secs
    }

    /// Runs the program in this process until standard input ends.
    ///
    /// # Errors
    ///
    /// If the filesystem refuses a request.
    pub fn run(self, place: &Playground, amounts: &Amounts, seed: u64) -> Result<()> {
        // A failure means that the process leads a session already.
        let _ = rustix::process::setsid();
        thread::spawn(answer);
        match self {
            Self::Stream => stream(place, amounts, seed, true),
            Self::StreamInPlace => stream(place, amounts, seed, false),
            Self::Copy => copy(place),
        }
    }
}

/// Answers every line with the work so far, and ends the process with the input.
fn answer() {
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let mut output = std::io::stdout().lock();
        let answered = writeln!(output, "{}", DONE.load(Ordering::Relaxed));
        if answered.and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    exit(0);
}

fn stream(place: &Playground, amounts: &Amounts, seed: u64, truncate: bool) -> Result<()> {
    let bytes = SeededRng::new(seed).bytes(STREAM_WRITE_LEN);
    let file_mib = (amounts.stream_mib / STREAM_FILES).max(1);
    for no in (0..STREAM_FILES).cycle() {
        let open = || {
            let path = place.stream_file(no);
            File::options().write(true).create(true).truncate(truncate).open(path)
        };
        let file = open().context("the stream")?;
        for mib in 0..file_mib {
            file.write_all_at(&bytes, mib << 20).context("the stream")?;
            DONE.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn copy(place: &Playground) -> Result<()> {
    for no in 0.. {
        // Copies of an earlier process may be left.
        let to = place.copy(&format!("{}-{no}", std::process::id()));
        copy_tree(&place.tree(), &to).context("copying the tree")?;
        fs::remove_dir_all(&to).context("removing the copy")?;
    }
    Ok(())
}

/// Copies a directory as `cp -r` does, but in this process, so that the copying ends with the
/// process.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            DONE.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A running background program, which ends when the value is dropped.
pub struct RunningBackground {
    background: Background,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    began: (Instant, u64),
}

impl RunningBackground {
    /// Starts `command`, which runs `background`.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn start(background: Background, mut command: Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("starting the background program")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("the child has no output pipe")?);
        Ok(Self { background, child, input, output, began: (Instant::now(), 0) })
    }

    /// Begins the time over which the rate is measured.
    ///
    /// # Errors
    ///
    /// If the program has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.began = (Instant::now(), self.done()?);
        Ok(())
    }

    /// Returns the unit and the rate since [`Self::begin`].
    ///
    /// # Errors
    ///
    /// If the program has ended.
    pub fn rate(&mut self) -> Result<(&'static str, f64)> {
        let done = self.done()? - self.began.1;
        let secs = self.began.0.elapsed().as_secs_f64();
        Ok((self.background.unit(), self.background.rate(done, secs)))
    }

    fn done(&mut self) -> Result<u64> {
        let input = self.input.as_mut().context("the child has no input pipe")?;
        let mut line = String::new();
        // A program that has ended reports its reason on standard error.
        let asked = input.write_all(b"\n").and_then(|()| input.flush());
        asked.and_then(|()| self.output.read_line(&mut line)).context("the background program")?;
        line.trim().parse().context("the background program ended")
    }
}

impl Drop for RunningBackground {
    fn drop(&mut self) {
        drop(self.input.take());
        // The process ends after its current request.
        let _ = self.child.wait();
    }
}

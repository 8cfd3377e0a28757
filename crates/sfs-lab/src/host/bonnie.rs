//! The installed Bonnie++ on a mounted filesystem.
//!
//! Bonnie++ waits for a line before each of its phases, so that the caller can sync, drop what is cached and read a
//! model's clock between two of them. Its own figures are of real time.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::command::{program, written_bytes};

/// Interval at which the process is polled.
const PAUSE: Duration = Duration::from_millis(2);

/// A phase of Bonnie++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BonniePhase {
    /// The file is written in chunks, and synced.
    Write,
    /// Each chunk is read, changed and written back in its place, and the file is synced.
    Rewrite,
    /// The file is read in chunks.
    Read,
    /// Files are created in the order of their names.
    Create,
    /// A phase that is not measured.
    Other,
}

impl BonniePhase {
    /// Returns the phase before which Bonnie++ prints this number.
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Write,
            2 => Self::Rewrite,
            4 => Self::Read,
            6 => Self::Create,
            _ => Self::Other,
        }
    }
}

/// The parameters of Bonnie++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bonnie {
    /// Size of the file in MiB, at least 2; 0 for no file.
    pub size_mib: u32,
    /// Size of the chunks, and of the created files, in bytes.
    pub chunk: u32,
    /// Number of created files in multiples of 1024; 0 for none.
    pub kilofiles: u32,
    /// `true` if Bonnie++ syncs after each write and each creation (`-b`).
    pub is_synchronous: bool,
    /// Number of bytes that Bonnie++ writes between two syncs of the filesystem, which stands for the dirty memory of a
    /// machine with little of it.
    pub sync_bytes: u64,
}

/// Bonnie++'s own figures, in real time. What took less than half a second has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BonnieFigures {
    /// KiB a second of the sequential write.
    pub write_kib_s: Option<f64>,
    /// KiB a second of the sequential rewrite.
    pub rewrite_kib_s: Option<f64>,
    /// KiB a second of the sequential read.
    pub read_kib_s: Option<f64>,
    /// Creations a second in the order of the names.
    pub creates_s: Option<f64>,
}

impl BonnieFigures {
    /// Parses the line of CSV that Bonnie++ prints at its end, of format 1.98.
    ///
    /// # Errors
    ///
    /// If the line is of another format.
    pub fn parse(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.trim().split(',').collect();
        ensure!(fields[0] == "1.98", "bonnie++ has printed no CSV of format 1.98: {line:?}");
        let field = |no: usize| -> Result<Option<f64>> {
            match *fields.get(no).with_context(|| format!("bonnie++: no field {no}: {line:?}"))? {
                "" => Ok(None),
                text if text.starts_with('+') => Ok(None),
                text => text.parse().map(Some).with_context(|| format!("bonnie++: {text:?}")),
            }
        };
        Ok(Self {
            write_kib_s: field(11)?,
            rewrite_kib_s: field(13)?,
            read_kib_s: field(17)?,
            creates_s: field(26)?,
        })
    }
}

/// A process that is killed when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl Bonnie {
    /// Returns an error if Bonnie++ is not installed.
    pub fn need() -> Result<()> {
        program("bonnie++").context("bonnie++ is not installed").map(drop)
    }

    /// Runs Bonnie++ in `dir`. Calls `before` before each phase and, with `None`, after the last; and `check` at short intervals.
    ///
    /// # Errors
    ///
    /// If Bonnie++ does not run to its end, or `before` or `check` returns an error.
    pub fn run(
        &self,
        dir: &Path,
        check: &dyn Fn() -> Result<()>,
        before: &mut dyn FnMut(Option<BonniePhase>) -> Result<()>,
    ) -> Result<BonnieFigures> {
        let root = File::open(dir)?;
        let child = Command::new(program("bonnie++").context("bonnie++ is not installed")?)
            .args(self.arguments())
            .arg("-d")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut running = Running(child);
        let id = running.0.id();
        let mut input = running.0.stdin.take().context("standard input")?;
        let output = BufReader::new(running.0.stdout.take().context("standard output")?);
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let (mut last, mut synced) = (String::new(), 0);
        loop {
            match lines.recv_timeout(PAUSE) {
                Ok(line) => match prompt(&line) {
                    Some(number) => {
                        before(Some(BonniePhase::of(number)))?;
                        input.write_all(b"\n")?;
                    }
                    None if line.is_empty() => (),
                    None => last = line,
                },
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    check()?;
                    let written = written_bytes(id).unwrap_or(synced);
                    if written >= synced + self.sync_bytes {
                        rustix::fs::syncfs(&root)?;
                        synced = written;
                    }
                }
            }
        }
        check()?;
        let status = running.0.wait()?;
        if !status.success() {
            let mut printed = String::new();
            running.0.stderr.take().context("standard error")?.read_to_string(&mut printed)?;
            bail!("bonnie++: {status}: {}", printed.trim().lines().next().unwrap_or_default());
        }
        before(None)?;
        BonnieFigures::parse(&last)
    }

    fn arguments(&self) -> Vec<String> {
        let Self { size_mib, chunk, kilofiles, .. } = self;
        let size = match size_mib {
            0 => "0".to_owned(),
            _ => format!("{size_mib}:{chunk}:0:0"),
        };
        let files = match kilofiles {
            0 => "0".to_owned(),
            // Without the size of their chunks: Bonnie++ 2.00a aborts above 8 KiB.
            _ => format!("{kilofiles}:{chunk}:{chunk}:1"),
        };
        // Root may run it, and one mebibyte of memory lets the file be small.
        let mut arguments =
            ["-u", "root", "-q", "-f", "-y", "p", "-z", "1", "-m", "sfs", "-r", "1"]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(["-s".to_owned(), size, "-n".to_owned(), files]);
        arguments.extend(self.is_synchronous.then(|| "-b".to_owned()));
        arguments
    }
}

/// Returns the number of the phase before which Bonnie++ waits, if this line says so.
fn prompt(line: &str) -> Option<u32> {
    line.strip_suffix(':')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_and_what_was_too_fast_has_none() {
        let line = "1.98,2.00a,sfs,1,1,128M,,0,0,,,41200,12,38011.5,9,,,+++++,+++,,,1,1024,1024,,,103,3,+++++,+++,134,2,\
                    190,6,+++++,+++,810,6,,8110us,12098us,,15us,,37810us,8070us,24012us,29488us,788us,20015us";
        let figures = BonnieFigures::parse(line).expect("figures");
        let expected = BonnieFigures {
            write_kib_s: Some(41_200.0),
            rewrite_kib_s: Some(38_011.5),
            read_kib_s: None,
            creates_s: Some(103.0),
        };
        assert_eq!(figures, expected);
        let creates = "1.98,2.00a,sfs,1,1,,,,,,,,,,,,,,,,,1,1024,1024,,,199,8,+++++,+++,331,3";
        let only = BonnieFigures { creates_s: Some(199.0), ..BonnieFigures::default() };
        assert_eq!(BonnieFigures::parse(creates).expect("figures"), only);
        for wrong in ["", "1.97,2.00", "1.98,2.00a,sfs,1", &line.replace("41200", "fast")] {
            BonnieFigures::parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_prompt_is_a_number_with_a_colon() {
        assert_eq!(
            [prompt("6:"), prompt(""), prompt("6:7"), prompt("1.98,2:")],
            [Some(6), None, None, None]
        );
    }

    #[test]
    fn a_job_without_a_file_only_creates() {
        let job =
            Bonnie { size_mib: 0, chunk: 4096, kilofiles: 1, is_synchronous: true, sync_bytes: 1 };
        let arguments = job.arguments().join(" ");
        assert!(arguments.ends_with("-s 0 -n 1:4096:4096:1 -b"), "{arguments}");
        let arguments =
            Bonnie { size_mib: 8, kilofiles: 0, is_synchronous: false, ..job }.arguments();
        assert!(arguments.join(" ").ends_with("-s 8:4096:0:0 -n 0"), "{arguments:?}");
    }

    #[test]
    fn bonnie_waits_before_each_phase() {
        if let Err(error) = Bonnie::need() {
            eprintln!("skipped: {error:#}");
            return;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let job = Bonnie {
            size_mib: 2,
            chunk: 16 << 10,
            kilofiles: 0,
            is_synchronous: false,
            sync_bytes: u64::MAX / 2,
        };
        let mut phases = Vec::new();
        job.run(folder.path(), &|| Ok(()), &mut |phase| {
            phases.push(phase);
            Ok(())
        })
        .expect("it runs");
        use BonniePhase::{Read, Rewrite, Write};
        let measured = phases.iter().flatten().filter(|phase| **phase != BonniePhase::Other);
        assert_eq!(measured.copied().collect::<Vec<_>>(), [Write, Rewrite, Read]);
        assert_eq!(phases.last(), Some(&None));
        let stop = &mut |_| anyhow::bail!("enough");
        let error = job.run(folder.path(), &|| Ok(()), stop).expect_err("it is ended");
        assert_eq!(error.to_string(), "enough");
    }
}

//! The installed Postmark (Katcher, 1997) on a mounted filesystem, which is synced at intervals.
//!
//! Files and transactions follow from the parameters, because Postmark's seed is fixed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::command::{program, written_bytes};
use super::disk::Disk;

/// Interval at which the process is polled.
const PAUSE: Duration = Duration::from_millis(2);

/// The parameters of Postmark; all others have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmark {
    /// Number of files at the beginning.
    pub files: u32,
    /// Sizes of the smallest and the largest file, in bytes.
    pub sizes: (u64, u64),
    /// Number of transactions.
    pub transactions: u32,
    /// Number of directories for the files; 0 for none.
    pub folders: u32,
    /// Number of bytes that Postmark writes between two syncs of the filesystem. Without syncs, all
    /// data of a scaled-down run would stay in memory.
    pub sync_bytes: u64,
}

impl Postmark {
    /// Returns an error if Postmark is not installed.
    pub fn need() -> Result<()> {
        program("postmark").context("postmark is not installed").map(drop)
    }

    /// Runs Postmark in `dir`, which is on `disk`, and syncs at the end.
    ///
    /// # Errors
    ///
    /// If Postmark does not run to its end, or reports an error.
    pub fn run(&self, dir: &Path, disk: &Disk) -> Result<()> {
        let root = File::open(dir)?;
        let mut child = Command::new(program("postmark").context("postmark is not installed")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("standard input")?.write_all(self.commands(dir).as_bytes())?;
        let mut synced = 0;
        while child.try_wait()?.is_none() {
            std::thread::sleep(PAUSE);
            let written = written_bytes(child.id()).unwrap_or(synced);
            if written >= synced + self.sync_bytes {
                rustix::fs::syncfs(&root)?;
                synced = written;
            }
        }
        disk.check()?;
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success()
            || printed.contains("Error")
            || !printed.contains("transactions")
        {
            let line = printed.lines().find(|line| line.contains("Error"));
            bail!("postmark: {}", line.unwrap_or("ended early"));
        }
        Ok(rustix::fs::syncfs(&root)?)
    }

    /// Returns the commands for standard input.
    fn commands(&self, dir: &Path) -> String {
        format!(
            "set size {} {}\nset number {}\nset transactions {}\nset subdirectories {}\nset read 4096\nset write 4096\n\
             set buffering false\nset location {}\nrun\nquit\n",
            self.sizes.0,
            self.sizes.1,
            self.files,
            self.transactions,
            self.folders,
            dir.display()
        )
    }
}

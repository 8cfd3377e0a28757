//! Postmark (Katcher, 1997), as it is installed, on a mounted filesystem.
//!
//! Owns: its parameters, and when the filesystem is synced while it runs.
//! Promises: the same files and transactions for the same parameters (its seed is fixed).
//! Never: measures: the disk's record does.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Disk, program};

/// Between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// What Postmark is told; what is not here has its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmark {
    /// Files to begin with.
    pub files: u32,
    /// Bytes of the smallest file, and of the largest.
    pub sizes: (u64, u64),
    /// Transactions.
    pub transactions: u32,
    /// Directories that the files are spread over; 0 for none.
    pub folders: u32,
    /// Bytes that it writes between two syncs of the filesystem: memory would keep all of a run that
    /// is scaled down.
    pub sync_bytes: u64,
}

impl Postmark {
    /// Says why it cannot be run; `Ok` if it can.
    pub fn need() -> Result<()> {
        program("postmark").context("postmark is not installed").map(drop)
    }

    /// Runs it in `dir`, and syncs at the end.
    ///
    /// # Errors
    ///
    /// If it does not run, or says that it could not do something.
    pub fn run(&self, dir: &Path, disk: &Disk) -> Result<()> {
        let root = File::open(dir)?;
        let mut child = Command::new(program("postmark").context("postmark is not installed")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("its input")?.write_all(self.commands(dir).as_bytes())?;
        let mut synced = 0;
        while child.try_wait()?.is_none() {
            std::thread::sleep(PAUSE);
            let written = written(child.id()).unwrap_or(synced);
            if written >= synced + self.sync_bytes {
                rustix::fs::syncfs(&root)?;
                synced = written;
            }
        }
        disk.check()?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || said.contains("Error") || !said.contains("transactions") {
            let line = said.lines().find(|line| line.contains("Error"));
            bail!("postmark: {}", line.unwrap_or("it did not come to its end"));
        }
        Ok(rustix::fs::syncfs(&root)?)
    }

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

/// Bytes that a process has written, whatever became of them; `None` if it has ended.
fn written(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

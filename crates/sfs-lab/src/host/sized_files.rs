//! Many files of one size that are created, written, rewritten and read, in order or at random.
//!
//! Random files lie in directories of their own below random ones, like the mailboxes of the N-hybrid paper's program
//! (section II), and are used in random order. Sequential files lie in one directory, in the order of their names.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::random::WorkloadRng;

/// Number of letters from which the names of a random directory are chosen.
const LETTERS: u32 = 8;

/// Number of files between two looks for a signal.
const TURN_FILES: usize = 16;

/// The order in which files are used, and the directories in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrder {
    /// In the order of the names, in one directory.
    Sequential,
    /// At random, in random directories.
    Random,
}

/// An operation on all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Creates the empty files, and their directories.
    Create,
    /// Writes the content.
    Write,
    /// Writes another content over the content.
    Rewrite,
    /// Reads the content.
    Read,
}

impl FileOperation {
    /// All operations, in an order in which they can be carried out.
    pub const ALL: [FileOperation; 4] = [Self::Create, Self::Write, Self::Rewrite, Self::Read];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Rewrite => "rewrite",
            Self::Read => "read",
        }
    }
}

/// The files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedFiles {
    /// Number of files.
    pub count: u32,
    /// Size of each file in bytes.
    pub len: usize,
    /// Order and directories.
    pub order: FileOrder,
}

impl SizedFiles {
    /// Carries out an operation on all files, below `dir`. Calls `check` at short intervals. Nothing is synced.
    pub fn run(
        &self,
        operation: FileOperation,
        dir: &Path,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut content = vec![operation as u8 + 1; self.len];
        for (turn, path) in self.paths(operation).into_iter().enumerate() {
            if turn % TURN_FILES == 0 {
                check()?;
            }
            let path = dir.join(path);
            serve(operation, &path, &mut content).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Returns the paths in the order in which an operation uses them.
    fn paths(&self, operation: FileOperation) -> Vec<PathBuf> {
        if self.order == FileOrder::Sequential {
            return (0..self.count).map(|no| format!("files/{no:06}").into()).collect();
        }
        let mut random = WorkloadRng::new(1);
        let mut letter = || char::from(b'a' + random.below(LETTERS) as u8);
        let names: Vec<PathBuf> = (0..self.count)
            .map(|no| {
                let (a, b, c) = (letter(), letter(), letter());
                format!("{a}/{b}/{c}/{a}{b}-{no}-{c}/mbox.dat").into()
            })
            .collect();
        let order = WorkloadRng::new(operation as u64 + 2).permutation(self.count);
        order.into_iter().map(|no| names[no as usize].clone()).collect()
    }
}

fn serve(operation: FileOperation, path: &Path, content: &mut [u8]) -> Result<()> {
    match operation {
        FileOperation::Create => {
            fs::create_dir_all(path.parent().context("a directory")?)?;
            File::create_new(path)?;
        }
        FileOperation::Write | FileOperation::Rewrite => {
            OpenOptions::new().write(true).open(path)?.write_all(content)?;
        }
        FileOperation::Read => {
            File::open(path)?.read_exact(content)?;
            let expected = FileOperation::Rewrite as u8 + 1;
            ensure!(content.iter().all(|byte| *byte == expected), "other content");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_written_rewritten_and_read_in_either_order() {
        for order in [FileOrder::Sequential, FileOrder::Random] {
            let folder = tempfile::tempdir().expect("a directory");
            let files = SizedFiles { count: 40, len: 5000, order };
            for operation in FileOperation::ALL {
                files.run(operation, folder.path(), &|| Ok(())).expect("done");
            }
            let again = files.run(FileOperation::Create, folder.path(), &|| Ok(()));
            again.expect_err("the files exist");
        }
    }

    #[test]
    fn the_order_of_random_files_is_another_in_each_operation() {
        let files = SizedFiles { count: 40, len: 1, order: FileOrder::Random };
        let (mut written, mut read) =
            (files.paths(FileOperation::Write), files.paths(FileOperation::Read));
        assert_ne!(written, read);
        written.sort();
        read.sort();
        assert_eq!(written, read);
    }
}

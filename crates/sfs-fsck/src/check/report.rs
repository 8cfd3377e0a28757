//! Report of a check: findings, counts, and paths for the inodes in findings.

use std::collections::BTreeMap;
use std::fmt;

use sfs_core::format::Remembered;

use crate::finding::{Finding, Severity};
use crate::findings::Findings;

/// Maximum number of findings that are printed.
const SHOWN_MAX: usize = 10_000;

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Findings, in the order of the structures.
    pub findings: Findings,
    /// Number of inodes that are not directories.
    pub files: u64,
    /// Number of directories, with the root.
    pub directories: u64,
    /// Number of bytes of data and tree that the volume refers to.
    pub used_bytes: u64,
    /// `true` if all data was read and compared with its checksums.
    pub data_read: bool,
    /// Number of chunks past the checkpoint that took effect.
    pub rolled_chunks: u64,
    /// `true` if the checkpoint is that of an unmount.
    pub unmounted: bool,
    /// Errors of earlier mounts that the volume records.
    pub remembered: Remembered,
    pub(crate) paths: BTreeMap<u64, Vec<u8>>,
}

impl CheckReport {
    /// Returns the number of errors: findings that are not notes.
    pub fn errors(&self) -> u64 {
        self.findings.errors()
    }

    /// Returns the findings that are printed: the first 10,000.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings.kept().iter().take(SHOWN_MAX)
    }

    /// Returns a path of inode `ino`, if a finding names it and a path is known.
    pub fn path(&self, ino: u64) -> Option<&[u8]> {
        self.paths.get(&ino).map(Vec::as_slice)
    }

    /// Returns the line for `finding`: severity, path if one is known, message.
    pub fn line(&self, finding: &Finding) -> String {
        let severity = match finding.severity() {
            Severity::Note => "note",
            Severity::Error => "error",
        };
        match finding.ino().and_then(|ino| self.path(ino)) {
            Some(path) => format!("{severity}: {}: {finding}", path.escape_ascii()),
            None => format!("{severity}: {finding}"),
        }
    }
}

/// The closing line of the report.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors() {
            0 => f.write_str("clean")?,
            1 => f.write_str("1 error")?,
            errors => write!(f, "{errors} errors")?,
        }
        let Self { files, directories, used_bytes, .. } = self;
        write!(f, ", {files} files, {directories} directories, {used_bytes} bytes used")?;
        match self.data_read {
            true => Ok(()),
            false => f.write_str("; data was not read (--data reads it)"),
        }
    }
}

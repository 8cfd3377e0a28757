//! What a check says in the end.
//!
//! Owns: the counts, the findings, and their form for people and programs.
//! Promises: a line for each finding.
//! Never: decides on an exit code.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use sfs_core::format::Remembered;

use crate::{Finding, Findings, Loss, Severity, remembered};

/// Findings that anybody reads.
const SHOWN_MAX: usize = 10_000;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is not as it should be.
    pub findings: Findings,
    /// Files that are no directories, each once.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Bytes that the volume refers to: data and tree.
    pub used_bytes: u64,
    /// Chunks past the checkpoint that took effect.
    pub rolled_chunks: u64,
    /// Nothing was written after the checkpoint.
    pub unmounted: bool,
    /// The errors that were met on the volume.
    pub remembered: Remembered,
    pub(crate) paths: BTreeMap<u64, Vec<u8>>,
}

impl Report {
    /// Number of errors: findings other than notes.
    pub fn errors(&self) -> u64 {
        self.findings.errors()
    }

    /// The findings that are printed: the first 10,000.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings.kept().iter().take(SHOWN_MAX)
    }

    /// A path of an inode that a finding names.
    pub fn path(&self, ino: u64) -> Option<&[u8]> {
        self.paths.get(&ino).map(Vec::as_slice)
    }

    /// The line for `finding`: with the path, where one is known.
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

    /// The line for `loss`: with the path, where one is known.
    pub fn loss_line(&self, loss: &Loss) -> String {
        match loss.ino().and_then(|ino| self.path(ino)) {
            Some(path) => format!("lost: {}: {loss}", path.escape_ascii()),
            None => format!("lost: {loss}"),
        }
    }

    /// `loss` as a JSON object, with the path, where one is known.
    pub fn loss_to_json(&self, loss: &Loss) -> Value {
        let mut value = json!(loss);
        value["message"] = json!(loss.to_string());
        if let Some(path) = loss.ino().and_then(|ino| self.path(ino)) {
            value["path"] = json!(path.escape_ascii().to_string());
        }
        value
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> =
            self.shown().map(|finding| self.finding_to_json(finding)).collect();
        json!({
            "clean": self.errors() == 0,
            "errors": self.errors(),
            "notes": self.findings.notes(),
            "files": self.files,
            "directories": self.directories,
            "used_bytes": self.used_bytes,
            "rolled_chunks": self.rolled_chunks,
            "unmounted": self.unmounted,
            "remembered": remembered::to_json(&self.remembered),
            "findings": findings,
        })
    }

    fn finding_to_json(&self, finding: &Finding) -> Value {
        let mut value = json!(finding);
        value["severity"] = json!(finding.severity());
        value["message"] = json!(finding.to_string());
        if let Some(path) = finding.ino().and_then(|ino| self.path(ino)) {
            value["path"] = json!(path.escape_ascii().to_string());
        }
        value
    }
}

/// The closing line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors() {
            0 => f.write_str("clean")?,
            1 => f.write_str("1 error")?,
            errors => write!(f, "{errors} errors")?,
        }
        let Self { files, directories, used_bytes, .. } = self;
        write!(f, ", {files} files, {directories} directories, {used_bytes} bytes used")
    }
}

//! List of findings with a bound on its memory.

use crate::finding::{Finding, Severity};

/// Maximum number of findings that are kept; further findings are only counted.
const FINDINGS_MAX: usize = 1 << 20;

/// The first findings of a check, and the number of all findings.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    errors: u64,
    notes: u64,
}

impl Findings {
    /// Counts `finding`, and keeps it unless the list is full.
    pub(crate) fn push(&mut self, finding: Finding) {
        match finding.severity() {
            Severity::Error => self.errors += 1,
            Severity::Note => self.notes += 1,
        }
        if self.kept.len() < FINDINGS_MAX {
            self.kept.push(finding);
        }
    }

    /// Appends all of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        let room = FINDINGS_MAX.saturating_sub(self.kept.len());
        self.kept.extend(others.kept.iter().take(room).cloned());
        self.errors += others.errors;
        self.notes += others.notes;
    }

    /// Kept findings in the order of their discovery; at most 1,048,576.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// Number of errors, kept or not.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Number of notes, kept or not.
    pub fn notes(&self) -> u64 {
        self.notes
    }
}

//! What the laboratory writes into `docs/lab.md`, `docs/lab/flash.md` and `docs/lab/`.
//!
//! Owns: the markers, and the files between and beside them.
//! Promises: touches only what is between its own markers.
//! Never: makes up a marker that is not there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A document, and the folder of all.
pub struct Document {
    docs: PathBuf,
    page: &'static str,
}

impl Document {
    /// `lab.md` in this folder `docs`.
    pub fn new(docs: &Path) -> Self {
        Self { docs: docs.to_owned(), page: "lab.md" }
    }

    /// `lab/flash.md`, what is measured on models of flash.
    pub fn flash(docs: &Path) -> Self {
        Self { page: "lab/flash.md", ..Self::new(docs) }
    }

    /// Writes `docs/lab/NAME`.
    pub fn file(&self, name: &str, content: &str) -> Result<()> {
        let folder = self.docs.join("lab");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())
    }

    /// Puts `content` between the markers of `section` in the document.
    pub fn section(&self, section: &str, content: &str) -> Result<()> {
        let path = self.docs.join(self.page);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = replaced(&text, section, content)
            .with_context(|| format!("{}: no markers of {section}", path.display()))?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

fn replaced(text: &str, section: &str, content: &str) -> Option<String> {
    let (begin, end) =
        (format!("<!-- sfs-lab {section}: begin -->"), format!("<!-- sfs-lab {section}: end -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", content.trim()))
}

/// A Markdown table; numbers to the right.
pub fn table(heading: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|---{}|\n", "|---:".repeat(heading.len().saturating_sub(1)));
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{body}", line(heading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let text = "a <!-- sfs-lab x: begin -->old<!-- sfs-lab x: end --> b";
        let new = replaced(text, "x", "new").expect("markers");
        assert_eq!(new, "a <!-- sfs-lab x: begin -->\n\nnew\n\n<!-- sfs-lab x: end --> b");
        assert_eq!(replaced(text, "y", "new"), None);
    }
}

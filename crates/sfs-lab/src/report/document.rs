//! The documents that experiments write: sections between markers, and files in `docs/lab/`.
//!
//! Text outside the markers of a section does not change. Missing markers are an error.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::figure::{FigureStyle, Series};
use super::figures;

/// A document with sections, and the folder of all documents.
pub struct Document {
    docs: PathBuf,
    page: &'static str,
}

impl Document {
    /// Returns `lab.md` in the folder `docs`.
    pub fn new(docs: &Path) -> Self {
        Self { docs: docs.to_owned(), page: "lab.md" }
    }

    /// Returns `lab/flash.md` in the folder `docs`, for results on models of flash.
    pub fn flash(docs: &Path) -> Self {
        Self { page: "lab/flash.md", ..Self::new(docs) }
    }

    /// Writes the figure `name` as `docs/lab/NAME.svg`, and its data as `docs/lab/NAME.csv`.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, or the figure has no data.
    ///
    /// # Panics
    ///
    /// If [`super::FIGURES`] has no figure of this name.
    pub fn figure(&self, name: &str, series: &[Series]) -> Result<()> {
        let figure = figures::by_name(name);
        self.file(&format!("{name}.csv"), &Series::to_csv(series))?;
        self.file(&format!("{name}.svg"), &figure.draw(series)?)
    }

    /// Draws a figure again from its data in `docs/lab/NAME.csv`.
    pub fn redraw(&self, figure: &FigureStyle) -> Result<()> {
        let path = self.docs.join("lab").join(format!("{}.csv", figure.name));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let series = Series::from_csv(&text).with_context(|| path.display().to_string())?;
        self.file(&format!("{}.svg", figure.name), &figure.draw(&series)?)
    }

    /// Writes `docs/lab/NAME`.
    pub fn file(&self, name: &str, content: &str) -> Result<()> {
        let folder = self.docs.join("lab");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())
    }

    /// Replaces the text between the markers of `section` by `content`.
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

/// Returns a Markdown table. All columns but the first are aligned to the right.
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
    fn only_text_between_the_markers_changes() {
        let text = "a <!-- sfs-lab x: begin -->old<!-- sfs-lab x: end --> b";
        let new = replaced(text, "x", "new").expect("markers");
        assert_eq!(new, "a <!-- sfs-lab x: begin -->\n\nnew\n\n<!-- sfs-lab x: end --> b");
        assert_eq!(replaced(text, "y", "new"), None);
    }
}

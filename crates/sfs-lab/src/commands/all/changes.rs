//! Which documents an experiment has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The files of the documents, and what is in them: pages and figures.
#[derive(Default)]
pub(super) struct Contents(BTreeMap<PathBuf, Vec<u8>>);

impl Contents {
    /// Reads the files in the folder `docs`, and in its folder `lab`.
    pub(super) fn of(docs: Option<&Path>) -> Result<Contents> {
        let mut contents = Contents::default();
        for folder in docs.into_iter().flat_map(|docs| [docs.to_owned(), docs.join("lab")]) {
            for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
                let path = entry?.path();
                if path.is_file() {
                    let content = fs::read(&path).with_context(|| path.display().to_string())?;
                    contents.0.insert(path, content);
                }
            }
        }
        Ok(contents)
    }

    /// Returns the names of the files that differ from `before`, without their folders.
    pub(super) fn changed_since(&self, before: &Contents) -> Vec<String> {
        let changed = self.0.iter().filter(|(path, content)| before.0.get(*path) != Some(content));
        changed.filter_map(|(path, _)| Some(path.file_name()?.to_string_lossy().into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_and_a_new_figure_are_changes() {
        let docs = tempfile::tempdir().expect("a folder");
        let lab = docs.path().join("lab");
        fs::create_dir(&lab).expect("a folder");
        fs::write(docs.path().join("lab.md"), "before").expect("a page");
        fs::write(lab.join("same.csv"), "1").expect("a figure");
        let before = Contents::of(Some(docs.path())).expect("documents");
        fs::write(docs.path().join("lab.md"), "after").expect("a page");
        fs::write(lab.join("new.svg"), "<svg/>").expect("a figure");
        let after = Contents::of(Some(docs.path())).expect("documents");
        assert_eq!(after.changed_since(&before), ["new.svg", "lab.md"]);
    }
}

//! `cargo xtask imports`: import cycles, and imports of an upper layer.
//!
//! Every crate of [`layers::CRATES`] is read file by file. An *arrow*, an edge of the import graph, goes from
//! the module that names another module of its crate to the module that it names, in a `use` or in a path
//! such as `super::Type` or `child::function()`. Rules for arrows:
//!
//! - A declaration `mod child;` is no arrow, and neither is a re-export `pub use child::Type` unless the
//!   file uses the re-exported name itself.
//! - A name that an enclosing module re-exports counts as an import of the module that declares it. Any
//!   other re-export counts as an import of the module that the path names, and of no other module.
//! - Code under `#[cfg(test)]`, and modules called `tests`, are not read.
//!
//! Arrows are lifted to *rooms*, the nodes of the graph: the modules beside each other below the nearest
//! module that encloses both ends. The file of that enclosing module is a room beside its children. So a
//! parent that calls its child and declares a type that the child uses forms a cycle with this child. The
//! layers order the outermost rooms of a crate.

mod arrows;
mod circles;
mod layers;
mod modules;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use self::{layers::CRATES, modules::Modules};
use crate::{report::StepOutcome, workspace::Workspace};

/// Reads all crates of the table, prints each cycle and each upward import, and counts them as failures.
pub(crate) fn run(workspace: &Workspace) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    for layered in &CRATES {
        for root in roots(&workspace.root.join(layered.sources))? {
            let shown = root.strip_prefix(&workspace.root).unwrap_or(&root).to_owned();
            let modules =
                Modules::read(&shown, |path| fs::read_to_string(workspace.root.join(path)).ok())
                    .with_context(|| format!("{}", shown.display()))?;
            let findings = arrows::findings(&modules, layered);
            outcome.passed += u64::from(findings.is_empty());
            outcome.failed += findings.len() as u64;
            findings.iter().for_each(|finding| println!("{}: {finding}\n", shown.display()));
        }
    }
    if outcome.failed > 0 {
        outcome.notes.push("cargo xtask imports lists the cycles and upward imports".into());
    }
    Ok(outcome)
}

/// Returns the files in which a crate's module trees begin: `lib.rs`, `main.rs` and those in `bin/`.
fn roots(sources: &Path) -> Result<Vec<PathBuf>> {
    let mut roots = vec![sources.join("lib.rs"), sources.join("main.rs")];
    if let Ok(entries) = fs::read_dir(sources.join("bin")) {
        for entry in entries {
            roots.push(entry?.path());
        }
    }
    roots.retain(|root| root.is_file() && root.extension().is_some_and(|is| is == "rs"));
    roots.sort();
    Ok(roots)
}

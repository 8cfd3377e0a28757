//! `cargo xtask words`: sentences in the sources that the rules of language forbid.
//!
//! The check covers only a few patterns: comments that begin with a pronoun or a relative clause,
//! and phrases of the project's former private language. Every finding is one line, with file and
//! line number.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{report::StepOutcome, workspace::Workspace};

/// Folders whose sources are read, from the root of the repository.
const FOLDERS: [&str; 6] = ["crates", "src", "tests", "benches", "examples", "xtask"];

/// Words that may not begin a line of documentation.
const OPENINGS: [&str; 7] = ["They", "He", "Who", "What", "Those who", "Whoever", "Anyone"];

/// Phrases that may stand nowhere. The phrases are put together so that this file has none of them.
const PHRASES: [&str; 3] =
    [concat!(" is", " had"), concat!("let", " go"), concat!("what is", " said")];

/// Reads all sources, prints each line that breaks a rule, and counts it as a failure.
pub(crate) fn run(workspace: &Workspace) -> Result<StepOutcome> {
    let mut outcome = StepOutcome::default();
    for folder in FOLDERS {
        for file in sources_below(&workspace.root.join(folder))? {
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            let shown = file.strip_prefix(&workspace.root).unwrap_or(&file).display();
            let lines = violations(&text);
            outcome.passed += u64::from(lines.is_empty());
            outcome.failed += lines.len() as u64;
            lines.iter().for_each(|(number, line)| println!("{shown}:{number}: {line}"));
        }
    }
    if outcome.failed > 0 {
        outcome.notes.push("cargo xtask words lists the lines".into());
    }
    Ok(outcome)
}

/// Returns the files of Rust below `dir`, in order.
pub(crate) fn sources_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("{}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut sources_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the lines that break a rule, each with its number.
fn violations(text: &str) -> Vec<(usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| has_bad_opening(line) || has_phrase(line)).collect()
}

/// Returns whether `line` is documentation that begins with one of [`OPENINGS`].
fn has_bad_opening(line: &str) -> bool {
    let Some(doc) = line.strip_prefix("//! ").or_else(|| line.strip_prefix("/// ")) else {
        return false;
    };
    OPENINGS
        .iter()
        .any(|opening| doc.strip_prefix(opening).is_some_and(|rest| rest.starts_with(' ')))
}

/// Returns whether `line` has one of [`PHRASES`], not merely the beginning of a longer word.
fn has_phrase(line: &str) -> bool {
    let ends_there = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    PHRASES.iter().any(|phrase| line.split(phrase).skip(1).any(ends_there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pronouns_and_relative_clauses_at_the_beginning_are_found() {
        let text =
            "/// Whatever is valid.\n    /// What waits.\nfn f() {}\n//! They wait.\n// What else?";
        assert_eq!(violations(text), [(2, "/// What waits."), (4, "//! They wait.")]);
    }

    #[test]
    fn phrases_are_found_in_comments_and_messages() {
        for phrase in PHRASES {
            let text = format!("let x = 1;\nprintln!(\"the lock{phrase} here\");");
            assert_eq!(violations(&text).len(), 1, "{phrase}");
        }
        assert!(violations("let is_had = let_go(); // the lock is hard to get").is_empty());
    }
}

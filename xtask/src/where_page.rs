//! `cargo xtask where`: checks the references of `docs/WHERE.md`.
//!
//! Each row of a table in that page names one or more `path::function`: a source file and a function, type,
//! constant or macro that it declares. A path begins at the root of the repository or in [`CORE`], or is the end of
//! the path of exactly one source file below `crates/` or `src/`. Methods may be written `path::Type::method`.
//!
//! The third cell of a row may have patterns: a row with the pattern `Error::NoSpace` names every function whose
//! body has these tokens.
//!
//! The same command checks that the table of locks in the core names every lock.

mod locks;
mod sites;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use sites::Function;

use crate::{report::StepOutcome, words, workspace::Workspace};

const PAGE: &str = "docs/WHERE.md";

/// Folder in which most paths of the page begin.
const CORE: &str = "crates/sfs-core/src";

/// The file of the core with the table of all locks.
const LOCK_TABLE: &str = "lock_rank.rs";

/// Keywords before the name of a declaration.
const DECLARING: [&str; 10] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro_rules!"];

/// A name in the page, `path::Type::function`.
#[derive(Debug, PartialEq, Eq)]
struct PageReference<'a> {
    path: &'a str,
    names: Vec<&'a str>,
}

/// Looks up every reference, and prints and counts each failure.
pub(crate) fn run(workspace: &Workspace) -> Result<StepOutcome> {
    let page = workspace.root.join(PAGE);
    if !page.exists() {
        println!("{PAGE} is absent: nothing to look up");
        return Ok(StepOutcome::passed().note(format!("{PAGE} is absent")));
    }
    let text = fs::read_to_string(&page).with_context(|| format!("{}", page.display()))?;
    let sources = Sources::read(&workspace.root)?;
    let mut outcome = StepOutcome::default();
    for (number, row) in rows(&text) {
        for result in check_row(row, &sources) {
            match result {
                Ok(()) => outcome.passed += 1,
                Err(error) => {
                    println!("{PAGE}:{number}: {error:#}");
                    outcome.failed += 1;
                }
            }
        }
    }
    let table = fs::read_to_string(workspace.root.join(CORE).join(LOCK_TABLE))?;
    for (path, _) in sources.functions.iter().filter(|(path, _)| is_of_core(path, workspace)) {
        match locks::check(&table, &fs::read_to_string(path)?) {
            Ok(()) => outcome.passed += 1,
            Err(error) => {
                println!("{}: {error:#}", path.display());
                outcome.failed += 1;
            }
        }
    }
    if outcome.failed > 0 {
        outcome.notes.push("cargo xtask where lists the rows".into());
    }
    Ok(outcome)
}

fn is_of_core(path: &Path, workspace: &Workspace) -> bool {
    path.starts_with(workspace.root.join(CORE))
}

/// Looks up the references of a row, and the functions that its patterns find.
fn check_row(row: &str, sources: &Sources) -> Vec<Result<()>> {
    let mut cells = row.trim_matches('|').split('|').skip(1);
    let (deciders, patterns) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
    let named: Vec<PageReference<'_>> = references(deciders).collect();
    if named.is_empty() {
        return vec![Err(anyhow!("the row names no `path.rs::function`"))];
    }
    let looked_up = named.iter().map(|reference| sources.look_up(reference));
    let complete = spans(patterns).map(|pattern| sources.check_complete(pattern, &named));
    looked_up.chain(complete).collect()
}

/// Returns the rows of the page's tables, without their heads, each with its line number.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_table = false;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(move |(_, line)| {
        let is_row = line.starts_with('|');
        let is_rule = is_row && line.chars().all(|c| "|-: ".contains(c));
        let is_body = is_row && in_table && !is_rule;
        in_table = is_row && (in_table || is_rule);
        is_body
    })
}

/// Returns the texts between backticks.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the references between backticks in a cell.
fn references(cell: &str) -> impl Iterator<Item = PageReference<'_>> {
    spans(cell).filter_map(|span| {
        let (path, names) = span.split_once(".rs::")?;
        let names = names.split("::").map(|name| name.trim_end_matches("()")).collect();
        Some(PageReference { path: &span[..path.len() + ".rs".len()], names })
    })
}

/// The source files that a reference may name.
struct Sources {
    root: PathBuf,
    files: Vec<PathBuf>,
    /// Functions of the files of the product.
    functions: Vec<(PathBuf, Vec<Function>)>,
}

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let mut files = words::sources_below(&root.join("crates"))?;
        files.append(&mut words::sources_below(&root.join("src"))?);
        let mut functions = Vec::new();
        for file in files.iter().filter(|file| !is_for_tests(file, root)) {
            let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
            functions.push((file.clone(), sites::functions(file, &text)?));
        }
        Ok(Self { root: root.to_owned(), files, functions })
    }

    /// Succeeds if the file declares every name of the reference.
    fn look_up(&self, reference: &PageReference<'_>) -> Result<()> {
        let file = self.file(reference.path)?;
        let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        for name in &reference.names {
            ensure!(declares(&text, name), "{} declares no {name}", reference.path);
        }
        Ok(())
    }

    /// Succeeds if at least one function body contains `pattern`, and `named` has every such
    /// function.
    fn check_complete(&self, pattern: &str, named: &[PageReference<'_>]) -> Result<()> {
        let wanted = sites::pattern(pattern)?;
        let named: Vec<(PathBuf, &str)> = named
            .iter()
            .filter_map(|reference| {
                Some((self.file(reference.path).ok()?, *reference.names.last()?))
            })
            .collect();
        let (mut found, mut missing) = (false, Vec::new());
        for (file, functions) in &self.functions {
            for function in functions.iter().filter(|function| function.contains(&wanted)) {
                found = true;
                if !named.iter().any(|(path, name)| path == file && *name == function.name) {
                    let path = file.strip_prefix(&self.root).unwrap_or(file);
                    missing.push(format!("{}::{}", path.display(), function.name));
                }
            }
        }
        ensure!(found, "no function contains `{pattern}`");
        ensure!(missing.is_empty(), "`{pattern}` occurs in {} too", missing.join(", "));
        Ok(())
    }

    fn file(&self, path: &str) -> Result<PathBuf> {
        for from in [self.root.join(path), self.root.join(CORE).join(path)] {
            if from.is_file() {
                return Ok(from);
            }
        }
        let ending: Vec<&PathBuf> = self.files.iter().filter(|file| file.ends_with(path)).collect();
        match ending[..] {
            [file] => Ok(file.clone()),
            [] => bail!("there is no {path}"),
            _ => bail!("{path} is the end of {} paths: name the crate too", ending.len()),
        }
    }
}

/// Returns whether the file has only tests, benchmarks, or the simulation and laboratory beside the product.
fn is_for_tests(file: &Path, root: &Path) -> bool {
    const FOLDERS: [&str; 5] = ["benches", "fuzz", "sfs-testkit", "sfs-sim", "sfs-lab"];
    let path = file.strip_prefix(root).unwrap_or(file).with_extension("");
    path.iter()
        .filter_map(|part| part.to_str())
        .any(|part| FOLDERS.contains(&part) || part == "tests" || part.ends_with("_tests"))
}

/// Returns whether `text` declares `name`, or implements methods for a type of this name.
fn declares(text: &str, name: &str) -> bool {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).any(|line| {
        let words: Vec<&str> =
            line.split(|c: char| !(c.is_alphanumeric() || "_!".contains(c))).collect();
        let is_declared =
            words.windows(2).any(|pair| DECLARING.contains(&pair[0]) && pair[1] == name);
        is_declared || (line.starts_with("impl") && words.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Where\n\n| question | deciders |\n|---|---|\n\
                        | When? | `space.rs::Space::is_due()`, never `later` |\n| How? | nowhere |\n\nEnd.";

    #[test]
    fn rows_are_those_below_the_rule_of_a_table() {
        assert_eq!(rows(PAGE).map(|(number, _)| number).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn references_are_paths_with_names() {
        let rows: Vec<&str> = rows(PAGE).map(|(_, row)| row).collect();
        let expected = PageReference { path: "space.rs", names: vec!["Space", "is_due"] };
        assert_eq!(references(rows[0]).collect::<Vec<_>>(), [expected]);
        assert_eq!(references(rows[1]).count(), 0);
    }

    #[test]
    fn a_call_and_a_comment_declare_nothing() {
        let text = "impl Space<'_> {\n    // fn gone()\n    pub(crate) const fn is_due(&self) {}\n}\n\
                    const MAX: u8 = due();";
        for name in ["Space", "is_due", "MAX"] {
            assert!(declares(text, name), "{name}");
        }
        for name in ["gone", "due", "is_du"] {
            assert!(!declares(text, name), "{name}");
        }
    }

    #[test]
    fn a_reference_to_a_file_or_name_that_is_gone_fails() {
        let sources = Sources::read(&Workspace::find().unwrap().root).unwrap();
        let look_up = |path, name| sources.look_up(&PageReference { path, names: vec![name] });
        look_up("xtask/src/where_page.rs", "look_up").unwrap();
        look_up("sfs-mkfs/src/main.rs", "main").unwrap();
        assert!(look_up("sfs-mkfs/src/main.rs", "gone").is_err());
        assert!(look_up("sfs-mkfs/src/gone.rs", "main").is_err());
        assert!(look_up("main.rs", "main").is_err());
    }

    #[test]
    fn a_row_that_leaves_a_function_out_fails() {
        let sources = Sources::read(&Workspace::find().unwrap().root).unwrap();
        let complete = |row| check_row(row, &sources).into_iter().all(|result| result.is_ok());
        assert!(complete("| Who? | `error.rs::Error` |"));
        assert!(!complete("| Who? | `error.rs::Error` | `Error::NoSpace` |"));
        assert!(!complete("| Who? | `error.rs::Error` | `NoSuchName` |"));
    }
}

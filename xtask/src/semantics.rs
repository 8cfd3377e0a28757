//! The test that every sentence of the durability contract in `docs/SEMANTICS.md` names existing
//! tests.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::workspace::Workspace;

/// Returns the names of the tests in each file of Rust below `dir`.
fn tests_below(dir: &Path) -> BTreeMap<PathBuf, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.append(&mut tests_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            found.insert(path, tests_in(&text));
        }
    }
    found
}

fn tests_in(text: &str) -> Vec<String> {
    let after_mark = text.split("#[test]").skip(1);
    let named = after_mark.filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
    named.map(|(name, _)| name.to_owned()).collect()
}

/// Returns whether `named` is a test of the package in `dir`: by its name, by a path below its
/// module, or a module that has tests.
fn is_proof(dir: &Path, named: &str) -> bool {
    let (module, name) = named.rsplit_once("::").unwrap_or(("", named));
    let is_of = |path: &Path, module: &str| {
        let path = path.with_extension("");
        module.is_empty() || path.components().any(|part| part.as_os_str() == module)
    };
    tests_below(&dir.join("tests")).iter().any(|(path, tests)| {
        let is_module = path.file_stem().is_some_and(|stem| stem == name) && !tests.is_empty();
        is_of(path, module) && (tests.iter().any(|test| test == name) || is_module)
    })
}

/// Returns the numbers of the contract's sentences.
fn sentences(text: &str) -> Vec<String> {
    let mut section = text.split("## After a crash").nth(1).expect("the section").lines();
    let mut numbers = Vec::new();
    for line in section.by_ref().take_while(|line| !line.starts_with("| sentence")) {
        if let Some((number, _)) = line.split_once(". ")
            && number.parse::<u32>().is_ok()
        {
            numbers.push(number.to_owned());
        }
    }
    numbers
}

/// Returns the sentences' numbers and the packages and tests that their rows name.
fn rows(text: &str) -> BTreeMap<String, Vec<(String, String)>> {
    let table = text.lines().skip_while(|line| !line.starts_with("| sentence")).skip(2);
    let mut rows = BTreeMap::new();
    for line in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let mut package = String::new();
        let named = rows.entry(cells[0].to_owned()).or_insert_with(Vec::new);
        for span in cells[1].split('`').skip(1).step_by(2) {
            match span.starts_with("sfs-") {
                true => package = span.to_owned(),
                false => named.push((package.clone(), span.to_owned())),
            }
        }
    }
    rows
}

#[test]
fn every_sentence_of_the_contract_names_tests_that_exist() {
    let root = Workspace::find().expect("the repository").root;
    let text = fs::read_to_string(root.join("docs/SEMANTICS.md")).expect("the contract");
    let rows = rows(&text);
    assert_eq!(rows.keys().cloned().collect::<Vec<_>>(), sentences(&text));
    for (sentence, named) in rows {
        assert!(!named.is_empty(), "sentence {sentence} names no test");
        for (package, test) in named {
            let exists = match test.ends_with(".rs") {
                true => fs::read_to_string(root.join(&test))
                    .is_ok_and(|source| !tests_in(&source).is_empty()),
                false => is_proof(&root.join("crates").join(&package), &test),
            };
            assert!(exists, "sentence {sentence}: {package} has no test {test}");
        }
    }
}

#[test]
fn a_test_that_is_not_there_is_no_proof() {
    let dir = Workspace::find().expect("the repository").root.join("crates/sfs-core");
    assert!(is_proof(&dir, "contract::fsync_covers_every_name_before_it"));
    assert!(is_proof(&dir, "counterexamples::cleaning"));
    for named in ["contract::fsync_covers", "limits::fsync_covers_every_name_before_it", "fsync"] {
        assert!(!is_proof(&dir, named), "{named}");
    }
}

//! Comparison of two trees.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{TreeEntry, walk, xattr, xattr_names};
use crate::machine;

/// A name at which two trees differ, and the difference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Returns every difference between the trees, in the order of names.
pub(crate) fn compare(left: &Path, right: &Path) -> Result<Vec<Difference>> {
    let (entries, others) = (walk(left)?, walk(right)?);
    let mut others_by_path: HashMap<&Path, &TreeEntry> =
        others.iter().map(|entry| (entry.path.as_path(), entry)).collect();
    let mut differences = Vec::new();
    let mut differs = |path: &Path, what: String| {
        differences.push(Difference { path: path.to_owned(), what });
    };
    let mut pairs = Pairs::default();
    for entry in &entries {
        let path = entry.path.as_path();
        let Some(other) = others_by_path.remove(path) else {
            differs(path, "is missing on the right".into());
            continue;
        };
        for what in attributes(entry, other) {
            differs(path, what);
        }
        if !pairs.add(entry, other) {
            differs(path, "is not linked to the same names".into());
        }
        let paths = (left.join(path), right.join(path));
        if let Some(what) = contents(entry, &paths.0, &paths.1)? {
            differs(path, what);
        }
    }
    for path in others_by_path.keys() {
        differs(path, "is missing on the left".into());
    }
    differences.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(differences)
}

/// Compares hard links: each file with several names has one partner in the other tree, the same at
/// each of its names.
#[derive(Default)]
struct Pairs {
    right_of: HashMap<(u64, u64), (u64, u64)>,
    left_of: HashMap<(u64, u64), (u64, u64)>,
}

impl Pairs {
    fn add(&mut self, left: &TreeEntry, right: &TreeEntry) -> bool {
        let (Some(l), Some(r)) = (left.shared(), right.shared()) else {
            return left.shared().is_none() && right.shared().is_none();
        };
        *self.right_of.entry(l).or_insert(r) == r && *self.left_of.entry(r).or_insert(l) == l
    }
}

fn attributes(left: &TreeEntry, right: &TreeEntry) -> Vec<String> {
    let numbers = |entry: &TreeEntry| {
        let meta = &entry.meta;
        let nlink = if meta.is_dir() { 0 } else { meta.nlink() };
        // The mode of a link and the length of a directory depend on the filesystem.
        let mode = if meta.is_symlink() { meta.mode() & !0o7777 } else { meta.mode() };
        let len = if meta.is_dir() { 0 } else { meta.len() };
        let owner = if machine::is_root() { (meta.uid(), meta.gid()) } else { (0, 0) };
        [
            ("mode", i64::from(mode)),
            ("length", len as i64),
            ("links", nlink as i64),
            ("owner", i64::from(owner.0)),
            ("group", i64::from(owner.1)),
            ("modification time, seconds", meta.mtime()),
            ("modification time, nanoseconds", meta.mtime_nsec()),
        ]
    };
    let pairs = numbers(left).into_iter().zip(numbers(right));
    let unlike = pairs.filter(|((_, l), (_, r))| l != r);
    unlike.map(|((name, l), (_, r))| format!("{name}: {l} and {r}")).collect()
}

fn contents(entry: &TreeEntry, left: &Path, right: &Path) -> Result<Option<String>> {
    if entry.meta.is_symlink() {
        let (l, r) = (fs::read_link(left)?, fs::read_link(right)?);
        return Ok((l != r).then(|| format!("links to {l:?} and {r:?}")));
    }
    let names = xattr_names(left)?;
    if names != xattr_names(right)? {
        return Ok(Some("has other extended attributes".into()));
    }
    for name in names {
        if xattr(left, &name)? != xattr(right, &name)? {
            return Ok(Some(format!("has another value of {name}")));
        }
    }
    if !entry.meta.is_file() {
        return Ok(None);
    }
    let at = first_unlike(left, right).with_context(|| format!("reading {:?}", entry.path))?;
    Ok(at.map(|at| format!("has other bytes from {at}")))
}

/// Returns the first position at which two files differ, by bytes or by their length.
fn first_unlike(left: &Path, right: &Path) -> Result<Option<u64>> {
    const LEN: u64 = 1 << 20;
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut l, mut r) = (Vec::new(), Vec::new());
    let mut offset = 0;
    loop {
        l.clear();
        r.clear();
        left.by_ref().take(LEN).read_to_end(&mut l)?;
        right.by_ref().take(LEN).read_to_end(&mut r)?;
        if l != r {
            let same = l.iter().zip(&r).take_while(|(l, r)| l == r).count();
            return Ok(Some(offset + same as u64));
        }
        if l.is_empty() {
            return Ok(None);
        }
        offset += LEN;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{scratch::Scratch, tree};

    fn two_trees() -> (Scratch, PathBuf, PathBuf) {
        let scratch = Scratch::new().unwrap();
        let left = scratch.directory("left").unwrap();
        fs::create_dir(left.join("dir")).unwrap();
        fs::write(left.join("dir/a"), b"first").unwrap();
        fs::hard_link(left.join("dir/a"), left.join("b")).unwrap();
        symlink("dir/a", left.join("link")).unwrap();
        let right = scratch.dir.join("right");
        tree::copy(&left, &right).unwrap();
        (scratch, left, right)
    }

    fn only(left: &Path, right: &Path) -> String {
        let differences = compare(left, right).unwrap();
        assert_eq!(differences.len(), 1, "{differences:?}");
        differences[0].to_string()
    }

    #[test]
    fn a_copy_is_the_same() {
        let (_scratch, left, right) = two_trees();
        assert_eq!(compare(&left, &right).unwrap(), []);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let (_scratch, left, right) = two_trees();
        let time = fs::metadata(left.join("b")).unwrap().modified().unwrap();
        for name in ["b", "dir/a"] {
            let file = File::options().write(true).open(right.join(name)).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", 3).unwrap();
            file.set_modified(time).unwrap();
        }
        let differences = compare(&left, &right).unwrap();
        let shown: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["b: has other bytes from 3", "dir/a: has other bytes from 3"]);
    }

    #[test]
    fn a_changed_time_is_found_to_the_nanosecond() {
        let (_scratch, left, right) = two_trees();
        let time = fs::metadata(left.join("dir")).unwrap().modified().unwrap();
        let later = time + std::time::Duration::from_nanos(1);
        File::open(right.join("dir")).unwrap().set_modified(later).unwrap();
        assert!(only(&left, &right).starts_with("dir: modification time, "));
    }

    #[test]
    fn a_changed_link_target_is_found() {
        let (_scratch, left, right) = two_trees();
        fs::remove_file(right.join("link")).unwrap();
        symlink("dir/b", right.join("link")).unwrap();
        let shown: Vec<String> =
            compare(&left, &right).unwrap().iter().map(ToString::to_string).collect();
        let expected = r#"link: links to "dir/a" and "dir/b""#;
        assert!(shown.iter().any(|what| what == expected), "{shown:?}");
    }

    #[test]
    fn a_missing_name_and_a_lost_link_are_found() {
        let (_scratch, left, right) = two_trees();
        fs::remove_file(right.join("b")).unwrap();
        let shown: Vec<String> =
            compare(&left, &right).unwrap().iter().map(ToString::to_string).collect();
        assert!(shown.contains(&"b: is missing on the right".to_owned()), "{shown:?}");
        assert!(shown.contains(&"dir/a: links: 2 and 1".to_owned()), "{shown:?}");
    }
}

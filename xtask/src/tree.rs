//! Trees of files: walking, copying and comparing them.
//!
//! Two trees are equal if their names, types, contents, modes, owners, modification times to the
//! nanosecond, link targets, extended attributes and hard links are. Symbolic links are never
//! followed.

mod compare;
mod copy;
mod plant;

use std::{
    collections::HashSet,
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

pub(crate) use compare::compare;
pub(crate) use copy::copy;
pub(crate) use plant::{COPY, plant};

/// One name in a tree.
pub(crate) struct TreeEntry {
    /// Path relative to the tree's root; empty for the root itself.
    pub(crate) path: PathBuf,
    pub(crate) meta: fs::Metadata,
}

impl TreeEntry {
    /// Returns the identity of the file, if it has other names.
    fn shared(&self) -> Option<(u64, u64)> {
        let shared = !self.meta.is_dir() && self.meta.nlink() > 1;
        shared.then(|| (self.meta.dev(), self.meta.ino()))
    }
}

/// Size of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    /// Number of names of files beyond the first name.
    pub(crate) hard_links: u64,
    pub(crate) bytes: u64,
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, directories, symlinks, hard_links, bytes } = self;
        let mb = *bytes as f64 / 1e6;
        write!(f, "{files} files of {mb:.1} MB, {directories} directories, ")?;
        write!(f, "{symlinks} symbolic links, {hard_links} hard links")
    }
}

/// Returns every name below `root`, the root first, each directory before its content, in the order
/// of names.
pub(crate) fn walk(root: &Path) -> Result<Vec<TreeEntry>> {
    let meta = fs::symlink_metadata(root).with_context(|| format!("{}", root.display()))?;
    let mut entries = vec![TreeEntry { path: PathBuf::new(), meta }];
    let mut at = 0;
    while at < entries.len() {
        if entries[at].meta.is_dir() {
            let dir = entries[at].path.clone();
            for entry in fs::read_dir(root.join(&dir)).with_context(|| format!("{dir:?}"))? {
                let path = dir.join(entry?.file_name());
                let meta = fs::symlink_metadata(root.join(&path))?;
                entries.push(TreeEntry { path, meta });
            }
        }
        at += 1;
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Counts the result of [`walk`].
pub(crate) fn census(entries: &[TreeEntry]) -> Census {
    let mut census = Census::default();
    let mut seen = HashSet::new();
    for entry in entries {
        let meta = &entry.meta;
        if entry.shared().is_some_and(|file| !seen.insert(file)) {
            census.hard_links += 1;
        } else if meta.is_dir() {
            census.directories += 1;
        } else if meta.is_symlink() {
            census.symlinks += 1;
        } else {
            census.files += 1;
            census.bytes += meta.len();
        }
    }
    census
}

/// Returns the names of the extended attributes that a copy carries: those in the user namespace.
fn xattr_names(path: &Path) -> Result<Vec<String>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).with_context(|| format!("{path:?}"))?;
    let names = String::from_utf8_lossy(&names[..len]);
    let mut names: Vec<String> =
        names.split('\0').filter(|name| name.starts_with("user.")).map(Into::into).collect();
    names.sort();
    Ok(names)
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])
        .with_context(|| format!("{name} of {path:?}"))?;
    value.truncate(len);
    Ok(value)
}

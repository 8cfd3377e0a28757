//! Copying of a tree.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};

use super::{Census, TreeEntry, census, walk, xattr, xattr_names};
use crate::machine;

/// Copies the tree at `from` to `to`, which is made if it does not exist.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<Census> {
    let entries = walk(from)?;
    let mut first_names: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for entry in &entries {
        let target = to.join(&entry.path);
        if let Some(file) = entry.shared() {
            if let Some(first) = first_names.get(&file) {
                fs::hard_link(first, &target).with_context(|| format!("linking {target:?}"))?;
                continue;
            }
            first_names.insert(file, target.clone());
        }
        put(entry, &from.join(&entry.path), &target)
            .with_context(|| format!("copying {:?}", entry.path))?;
    }
    // A new entry changes the time of its directory, and a mode may forbid it. So attributes of
    // directories come last, the deepest first.
    for entry in entries.iter().rev().filter(|entry| entry.meta.is_dir()) {
        dress(entry, &from.join(&entry.path), &to.join(&entry.path))
            .with_context(|| format!("attributes of {:?}", entry.path))?;
    }
    Ok(census(&entries))
}

fn put(entry: &TreeEntry, from: &Path, to: &Path) -> Result<()> {
    let kind = entry.meta.file_type();
    if kind.is_dir() {
        return Ok(fs::create_dir_all(to)?);
    }
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_file() {
        fs::copy(from, to)?;
    } else {
        bail!("{kind:?} is not copied");
    }
    dress(entry, from, to)
}

/// Copies owner, mode, extended attributes and times, in an order in which none resets another.
fn dress(entry: &TreeEntry, from: &Path, to: &Path) -> Result<()> {
    let meta = &entry.meta;
    if machine::is_root() {
        lchown(to, Some(meta.uid()), Some(meta.gid()))?;
    }
    if !meta.is_symlink() {
        for name in xattr_names(from)? {
            lsetxattr(to, &name, &xattr(from, &name)?, XattrFlags::empty()).context(name)?;
        }
        fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    }
    let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW).context("setting times")
}

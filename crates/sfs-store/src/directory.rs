//! The directory of a `file:` URL, which must stay the same one.
//!
//! The filesystem that it is on may be unmounted while the program runs. The path then means an empty directory below, where objects must
//! not be made.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that was there when the program began.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    identity: (u64, u64),
}

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(&fs::metadata(path)?) })
    }

    /// Returns whether the path still means this directory.
    pub(crate) fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity)
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_of_the_same_name_is_not_taken_for_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [path, aside] = ["dir", "aside"].map(|name| scratch.path().join(name));
        fs::create_dir(&path).expect("room");
        let directory = Directory::open(&path).expect("a directory");
        assert!(directory.is_there());
        fs::rename(&path, &aside).expect("a directory");
        assert!(!directory.is_there());
        fs::create_dir(&path).expect("room");
        assert!(!directory.is_there());
        fs::remove_dir(&path).expect("an empty directory");
        fs::rename(&aside, &path).expect("a directory");
        assert!(directory.is_there());
    }
}

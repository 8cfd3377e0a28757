//! Files that only this user may read, and that take the place of an older file only once they are there.
//!
//! A file is made new beside its target, under a name that nobody else has, and renamed. So a symbolic link, a pipe or a file of
//! another user at the target's path never receives what is written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Permissions of the files.
const MODE: u32 = 0o600;

/// A new file that is not at its path yet. Unless it is moved there, it is removed when the value is dropped.
pub struct PrivateFile {
    /// The file, open for writing.
    pub file: File,
    made: Option<PathBuf>,
    path: PathBuf,
}

impl PrivateFile {
    /// Makes a file that shall come to `path`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if there is a file at `path` and not `force`; [`io::ErrorKind::InvalidInput`] if it is
    /// no regular file, such as a symbolic link.
    pub fn create(path: &Path, force: bool) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(_) if !force => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(found) if !found.is_file() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no regular file"));
            }
            _ => {}
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(MODE);
        for attempt in 0..u32::MAX {
            let mut own = std::ffi::OsString::from(".");
            own.push(name);
            own.push(format!(".{}.{attempt}", std::process::id()));
            let made = path.with_file_name(own);
            match options.open(&made) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return Ok(Self { file: file?, made: Some(made), path: path.to_owned() }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Moves the file to its path. It stays open.
    pub fn take_place(&mut self) -> io::Result<()> {
        if let Some(made) = &self.made {
            fs::rename(made, &self.path)?;
            self.made = None;
        }
        Ok(())
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            let _ = fs::remove_file(made);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_replaces_a_file_and_never_writes_through_a_link() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (victim, path) = (scratch.path().join("victim"), scratch.path().join("target"));
        fs::write(&victim, "kept").expect("room");
        symlink(&victim, &path).expect("room");
        for (force, kind) in
            [(false, io::ErrorKind::AlreadyExists), (true, io::ErrorKind::InvalidInput)]
        {
            let refused = PrivateFile::create(&path, force).err().expect("there is a link");
            assert_eq!(refused.kind(), kind);
        }
        fs::remove_file(&path).expect("a link");
        fs::write(&path, "old").expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("a file");
        let mut new = PrivateFile::create(&path, true).expect("room");
        new.file.write_all(b"new").expect("room");
        drop(PrivateFile::create(&path, true).expect("room"));
        new.take_place().expect("the directory is writable");
        assert_eq!(fs::read_to_string(&victim).expect("readable"), "kept");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "new");
        let mode = fs::symlink_metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(fs::read_dir(scratch.path()).expect("readable").count(), 2);
        assert!(PrivateFile::create(scratch.path(), true).is_err(), "a directory");
    }
}

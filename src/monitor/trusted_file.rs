//! Opening a program that root is to run: a file that nobody but root can change or replace.
//!
//! Each directory of the path is opened in the one before, without following links, and looked at by its descriptor, so nothing can be
//! replaced between the look and the use.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::unistd::geteuid;
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Permission bits with which others could change a file, or the names in a directory.
const OTHERS_WRITE: u32 = 0o022;

/// Permission bit of a directory in which users can remove or rename only their own files.
const STICKY: u32 = 0o1000;

/// End of the name that the kernel gives for a program whose file has been removed.
const DELETED: &[u8] = b" (deleted)";

/// Opens the program at `path` for reading. As root, only one that nobody else can change or replace.
///
/// # Errors
///
/// `PermissionDenied` with a sentence for a program of others; `InvalidInput` for a path that is no place of a program; errors of the
/// system.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if !path.is_absolute() || path.as_os_str().as_bytes().ends_with(DELETED) {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "the place of the program was not known at the mount; unmount it and mount it again",
        ));
    }
    if geteuid().is_root() { open_checked(path) } else { open_in(CWD, path, OFlags::empty()) }
}

/// Opens `name` in a directory for reading. A FIFO or a terminal holds nobody up.
fn open_in(
    dir: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> io::Result<File> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(openat(dir, name, flags, Mode::empty())?))
}

fn open_checked(path: &Path) -> io::Result<File> {
    let mut at = open_in(CWD, "/", OFlags::DIRECTORY)?;
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let name = match name {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(ErrorKind::InvalidInput.into()),
        };
        check(&at, path)?;
        let kind = if names.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = open_in(&at, name, OFlags::NOFOLLOW | kind)?;
    }
    check(&at, path)?;
    Ok(at)
}

/// Checks that nobody but root can change `file`. In a directory like `/tmp` nobody can replace the file of root.
fn check(file: &File, path: &Path) -> io::Result<()> {
    let metadata = file.metadata()?;
    let is_sticky = metadata.is_dir() && metadata.mode() & STICKY != 0;
    let is_shared = metadata.mode() & OTHERS_WRITE != 0 && !is_sticky;
    if metadata.uid() == 0 && !is_shared {
        return Ok(());
    }
    let text = format!(
        "{}: users other than root can change this file or a directory above it; unmount it and mount it again",
        path.display()
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn only_files_of_root_alone_are_opened_for_root() {
        if !geteuid().is_root() {
            return;
        }
        let scratch = tempfile::tempdir().expect("a directory");
        let scratch = scratch.path().canonicalize().expect("a directory");
        let (dir, mode) = (scratch.join("dir"), Permissions::from_mode);
        fs::create_dir(&dir).expect("a directory");
        let path = dir.join("program");
        fs::write(&path, "program").expect("a file");
        let refusal = |path: &Path| open(path).map(drop).expect_err("refused").kind();
        open(&path).expect("the file of root");
        for (place, own) in [(&path, 0o755), (&dir, 0o755)] {
            fs::set_permissions(place, mode(0o775)).expect("a mode");
            assert_eq!(refusal(&path), ErrorKind::PermissionDenied);
            fs::set_permissions(place, mode(own)).expect("a mode");
            chown(place, Some(1000), None).expect("root may");
            assert_eq!(refusal(&path), ErrorKind::PermissionDenied);
            chown(place, Some(0), None).expect("root may");
        }
        open(&path).expect("the file of root");
        symlink(&dir, scratch.join("link")).expect("a link");
        refusal(&scratch.join("link/program"));
        symlink(&path, dir.join("link")).expect("a link");
        refusal(&dir.join("link"));
        assert_eq!(refusal(&dir.join("program (deleted)")), ErrorKind::InvalidInput);
        assert_eq!(refusal(Path::new("")), ErrorKind::InvalidInput);
    }
}

//! Files without which the daemon of a mount is not started again after its death. None of them may be on the mount, where nobody
//! would answer; those of an initramfs, which are deleted, are copied.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Cache of the loader.
const CACHE: &str = "/etc/ld.so.cache";

/// Directories of the loader, by the name that programs have for it.
const LOADERS: [&str; 2] = ["/lib", "/lib64"];

/// Files that are looked up when a program starts and logs, beside the program and its libraries.
const LOOKED_UP: [&str; 5] =
    [CACHE, "/dev/null", "/dev/log", "/proc/self/fd", "/lib64/ld-linux-x86-64.so.2"];

/// Returns a file that is needed, and would be below a mount on `dir`, an absolute path without links.
pub(super) fn one_below(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut needed = mapped_here()?;
    needed.push(env::current_exe()?);
    needed.extend(LOOKED_UP.map(PathBuf::from));
    Ok(needed.into_iter().find(|path| is_below(dir, path)))
}

/// Returns the libraries of this program, by all names by which a program looks for them.
pub(super) fn libraries() -> io::Result<Vec<PathBuf>> {
    let (mut found, exe) = (mapped_here()?, env::current_exe()?);
    found.retain(|path| *path != exe && path.is_file());
    found.sort_unstable();
    found.dedup();
    let names = found.iter().flat_map(|path| names(path)).chain([CACHE.into()]);
    let mut names: Vec<_> = names.filter(|path| path.is_file()).collect();
    for path in &found {
        names.extend(links_to(path)?);
    }
    Ok(names)
}

/// Returns the links beside the library at `path` that lead to it, such as `libx.so.1` to `libx-1.2.so`.
fn links_to(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path.parent().unwrap_or(Path::new("/")))?.flatten();
    let links = entries.map(|entry| entry.path()).filter(|entry| entry.is_symlink());
    Ok(links.filter(|link| link.canonicalize().is_ok_and(|target| target == path)).collect())
}

/// Returns the names by which a program may look for the library at `path`, which is one without links: where `/lib` is a link to
/// `/usr/lib` the loader's cache has the former, and the loader itself has a name that each kind of processor gives it.
fn names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let short = path.strip_prefix("/usr").map(|rest| Path::new("/").join(rest));
    let loader = path.file_name().filter(|name| name.to_string_lossy().starts_with("ld-"));
    let loaders = loader.into_iter().flat_map(|name| LOADERS.map(|dir| Path::new(dir).join(name)));
    [path.to_owned()].into_iter().chain(short).chain(loaders)
}

/// Returns the paths of the files that this process has mapped.
fn mapped_here() -> io::Result<Vec<PathBuf>> {
    Ok(mapped(&String::from_utf8_lossy(&fs::read("/proc/self/maps")?)))
}

/// Returns the paths in the content of `/proc/self/maps`.
fn mapped(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.find('/').map(|at| PathBuf::from(&line[at..]));
    maps.lines().filter_map(path).collect()
}

/// Returns whether the way to `path`, as it is or without links, leads through `dir`.
fn is_below(dir: &Path, path: &Path) -> bool {
    path.starts_with(dir) || path.canonicalize().is_ok_and(|path| path.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_refused_that_would_hide_the_program() {
        let scratch = tempfile::tempdir().expect("a directory");
        assert_eq!(one_below(scratch.path()).expect("maps"), None);
        let exe = env::current_exe().expect("a path");
        let folder = exe.parent().expect("a folder");
        for dir in [Path::new("/"), folder, Path::new("/dev")] {
            assert!(one_below(dir).expect("maps").is_some(), "{}", dir.display());
        }
        let line = "7f0000-7f1000 r-xp 00000000 08:01 5 /usr/lib/lib c.so\n7f2-7f3 rw-p 0 0:0 0 \n";
        assert_eq!(mapped(line), [Path::new("/usr/lib/lib c.so")]);
        assert!(is_below(Path::new("/usr"), Path::new("/usr/lib/libc.so")));
        assert!(!is_below(Path::new("/us"), Path::new("/usr/lib/libc.so")), "another name");
    }

    #[test]
    fn a_library_is_found_by_each_of_its_names() {
        let all = |path: &str| names(Path::new(path)).collect::<Vec<_>>();
        assert_eq!(
            all("/usr/lib/x/libc.so.6"),
            ["/usr/lib/x/libc.so.6", "/lib/x/libc.so.6"].map(PathBuf::from)
        );
        let loader = all("/usr/lib/x/ld-linux-aarch64.so.1");
        assert!(loader.contains(&PathBuf::from("/lib/ld-linux-aarch64.so.1")), "{loader:?}");
        let libraries = libraries().expect("maps");
        assert!(!libraries.contains(&env::current_exe().expect("a path")));
        let is_libc = |path: &PathBuf| path.to_string_lossy().contains("libc.so");
        assert!(cfg!(not(target_env = "gnu")) || libraries.iter().any(is_libc), "{libraries:?}");
    }
}

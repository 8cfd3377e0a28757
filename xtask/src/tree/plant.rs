//! A source tree for copying: cargo's downloads, with rare kinds of files added.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{XattrFlags, lsetxattr};

use super::{Census, census, copy, walk};

/// Name of a copy of the registry, before its number.
pub(crate) const COPY: &str = "registry-";

/// Interval, in files, at which a file gets another name, an attribute or another mode.
const ODD_EVERY: usize = 37;

/// Copies crates of cargo's registry to `to`, repeatedly under other names if necessary, until
/// there are `files_min` files and `bytes_min` bytes. Some of the files are made unusual.
pub(crate) fn plant(to: &Path, files_min: u64, bytes_min: u64) -> Result<Census> {
    let crates = crates(&registry()?)?;
    let (mut files, mut bytes) = (0, 0);
    let enough = |files, bytes| files >= files_min && bytes >= bytes_min;
    let mut times = 0;
    while !enough(files, bytes) {
        let copies = to.join(format!("{COPY}{times}"));
        fs::create_dir_all(&copies)?;
        times += 1;
        for from in &crates {
            let copied = copy(from, &copies.join(from.file_name().context("a crate has a name")?))?;
            files += copied.files;
            bytes += copied.bytes;
            if enough(files, bytes) {
                break;
            }
        }
    }
    println!("{} crates, in up to {times} copies", crates.len());
    make_odd(to)?;
    Ok(census(&walk(to)?))
}

/// Returns the crates that cargo has unpacked, of all its indexes.
fn crates(registry: &Path) -> Result<Vec<PathBuf>> {
    let mut crates = Vec::new();
    for index in fs::read_dir(registry).with_context(|| format!("{}", registry.display()))? {
        for unpacked in fs::read_dir(index?.path())? {
            crates.push(unpacked?.path());
        }
    }
    crates.sort();
    if crates.is_empty() {
        bail!("{} is empty: run cargo fetch", registry.display());
    }
    Ok(crates)
}

fn registry() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    Ok(home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src"))
}

fn make_odd(root: &Path) -> Result<()> {
    let files: Vec<PathBuf> = walk(root)?
        .into_iter()
        .filter(|entry| entry.meta.is_file())
        .map(|entry| root.join(entry.path))
        .collect();
    let odd = fs::canonicalize(root)?.join("odd");
    fs::create_dir(&odd)?;
    for (no, file) in files.iter().step_by(ODD_EVERY).enumerate() {
        fs::hard_link(file, odd.join(format!("hard-link-{no}")))?;
        symlink(file, odd.join(format!("symlink-{no}")))?;
        lsetxattr(file, "user.sfs.number", no.to_string().as_bytes(), XattrFlags::empty())
            .with_context(|| format!("an extended attribute on {}", file.display()))?;
        let mode = [0o600, 0o755, 0o444, 0o640, 0o4755][no % 5];
        fs::set_permissions(file, fs::Permissions::from_mode(mode))?;
    }
    let long = "n".repeat(255);
    fs::write(odd.join(&long), b"a name of 255 bytes")?;
    fs::write(odd.join("empty"), b"")?;
    fs::write(odd.join("name with \u{e9}, blanks and\nlines"), b"odd")?;
    let sparse = fs::File::create(odd.join("sparse"))?;
    sparse.set_len(64 << 20)?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"far out", 48 << 20)?;
    let mut deep = odd;
    for level in 0..60 {
        deep = deep.join(format!("level-{level}"));
    }
    fs::create_dir_all(&deep)?;
    Ok(fs::write(deep.join("bottom"), b"here")?)
}

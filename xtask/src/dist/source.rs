//! The source archive: the files of the last commit, and all crates, so that a build needs no network.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{cargo::cargo, dist::environment, run::Cmd, workspace::Workspace};

/// Makes cargo take crates from the archive.
const CONFIG: &str = "
[source.crates-io]
replace-with = \"vendored\"

[source.vendored]
directory = \"vendor\"
";

/// Returns the name of the archive.
pub(crate) fn archive_name() -> String {
    format!("{}.tar.xz", directory_name())
}

/// Returns the name of the directory in the archive.
pub(crate) fn directory_name() -> String {
    format!("sfs-{}", env!("CARGO_PKG_VERSION"))
}

/// Writes the archive to `out`, and returns its path.
pub(crate) fn write(workspace: &Workspace, out: &Path) -> Result<PathBuf> {
    let dir = out.join(directory_name());
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let commit = out.join("commit.tar");
    let git = Cmd::new("git").arg("-C").arg(&workspace.root);
    git.args(["archive", "--format=tar", "-o"]).arg(&commit).arg("HEAD").read()?;
    Cmd::new("tar").arg("-C").arg(&dir).arg("-xf").arg(&commit).read()?;
    fs::remove_file(&commit)?;
    let vendor = ["vendor", "--quiet", "--locked", "--versioned-dirs"];
    cargo(workspace).args(vendor).arg(dir.join("vendor")).read()?;
    let config = dir.join(".cargo/config.toml");
    let text = fs::read_to_string(&config).with_context(|| config.display().to_string())?;
    fs::write(&config, text + CONFIG)?;
    let date = environment::source_date(workspace)?;
    fs::write(dir.join(environment::DATE_FILE), format!("{date}\n"))?;
    let archive = out.join(archive_name());
    Cmd::new("tar")
        .env("XZ_OPT", "-6 -T1")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"])
        .args([
            "--format=posix",
            "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        ])
        .arg(format!("--mtime=@{date}"))
        .arg("-C")
        .arg(out)
        .arg("-cJf")
        .arg(&archive)
        .arg(directory_name())
        .read()?;
    fs::remove_dir_all(&dir)?;
    Ok(archive)
}

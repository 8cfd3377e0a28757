//! Builds of programs for distribution: without paths of this machine, and with a time that comes from the sources.

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::{cargo::cargo, dist::sbom::PACKAGES, run::Cmd, workspace::Workspace};

/// File in a source archive with the date of its commit.
pub(crate) const DATE_FILE: &str = "packaging/source-date";

/// Returns the time of the sources, in seconds since 1970: `SOURCE_DATE_EPOCH`, or the date that a source archive has, or that of
/// the last commit.
pub(crate) fn source_date(workspace: &Workspace) -> Result<String> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    if let Ok(date) = fs::read_to_string(workspace.root.join(DATE_FILE)) {
        return Ok(date.trim().to_owned());
    }
    let log = Cmd::new("git").arg("-C").arg(&workspace.root).args(["log", "-1", "--format=%ct"]);
    log.read().context("no SOURCE_DATE_EPOCH, and no commit")
}

/// Settings of a build.
pub(crate) struct BuildEnvironment<'a> {
    workspace: &'a Workspace,
    /// Target directory: other flags than those of a developer would otherwise build everything again each time.
    target: PathBuf,
    /// Directories of this machine, each with what stands for it in the programs.
    renamed: Vec<(PathBuf, &'static str)>,
}

impl<'a> BuildEnvironment<'a> {
    pub(crate) fn new(workspace: &'a Workspace) -> Result<Self> {
        let target = workspace.target.join("dist-build");
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
        let mut renamed = vec![(workspace.root.clone(), "/sfs"), (target.clone(), "/build")];
        // Crates are in the registry's directory, whose name has a hash, or in the source archive.
        if let Some(sources) = home.map(|home| home.join("registry/src"))
            && let Ok(entries) = fs::read_dir(&sources)
        {
            for entry in entries {
                renamed.push((entry?.path(), "/sfs/vendor"));
            }
        }
        Ok(Self { workspace, target, renamed })
    }

    /// Returns flags of a compiler that knows these options for a directory and what stands for it.
    fn flags(&self, options: &[&str]) -> Vec<String> {
        let renamed = self.renamed.iter();
        renamed
            .flat_map(|(from, to)| {
                options.iter().map(move |option| format!("{option}={}={to}", from.display()))
            })
            .collect()
    }

    /// Builds all programs, and those of the packages `more`, for `target`. Returns their directory.
    pub(crate) fn build(&self, target: &str, more: &[&str]) -> Result<PathBuf> {
        self.build_with(target, PACKAGES.iter().chain(more), &[])
    }

    /// Builds the programs of `packages`, with further flags of the compiler. Returns their directory.
    pub(crate) fn build_with<'p>(
        &self,
        target: &str,
        packages: impl IntoIterator<Item = &'p &'p str>,
        flags: &[&str],
    ) -> Result<PathBuf> {
        let mut rust_flags = self.flags(&["--remap-path-prefix"]);
        rust_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        // The id of a program is a hash of all of it, and so of the debug information of its parts in C, which is stripped later.
        let c_flags = self.flags(&["-ffile-prefix-map", "-fdebug-prefix-map"]);
        let mut cmd = cargo(self.workspace)
            .args(["build", "--quiet", "--locked", "--release", "--bins", "--target", target])
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_ENCODED_RUSTFLAGS", rust_flags.join("\x1f"))
            .env("CFLAGS", c_flags.join(" "))
            .env("SOURCE_DATE_EPOCH", source_date(self.workspace)?);
        for package in packages {
            cmd = cmd.args(["--package", package]);
        }
        cmd.run()?;
        Ok(self.target.join(target).join("release"))
    }
}

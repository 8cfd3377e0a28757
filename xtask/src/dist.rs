//! `cargo xtask dist`: the files for users. A Debian package, a source archive with all crates, the list of crates, and
//! static programs for other processors.
//!
//! The same sources give the same bytes: times are `SOURCE_DATE_EPOCH` or the date of the last commit, paths of this machine are
//! replaced in the programs, and archives are sorted.

mod deb;
mod environment;
mod sbom;
mod source;
mod static_programs;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{
    cargo::cargo,
    machine,
    report::{StepOutcome, Tally},
    run::Cmd,
    workspace::{Profile, Programs, Workspace},
};

use environment::BuildEnvironment;

/// Target of the programs in the package.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Architecture of the package, by Debian's name.
const ARCHITECTURE: &str = "amd64";

/// Package that writes manual pages and completions.
const MANUALS: &str = "sfs-manuals";

/// Choices of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct DistOptions {
    /// Directory for the results [default: target/dist]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Make only the Debian package
    #[arg(long)]
    only_package: bool,
    /// Then build the package a second time, from the source archive, without a network and in another directory, and
    /// compare
    #[arg(long)]
    verify: bool,
}

/// Makes everything.
pub(crate) fn run(workspace: &Workspace, options: &DistOptions, tally: &mut Tally) {
    let out = options.out.clone().unwrap_or_else(|| workspace.target.join("dist"));
    tally.step("Debian package", || {
        fs::create_dir_all(&out)?;
        package(workspace, &out)
    });
    if options.only_package {
        return;
    }
    tally.step("list of crates", || {
        let path = out.join("sfs-tools.spdx.json");
        fs::write(&path, sbom_document(workspace)?)?;
        println!("{}", path.display());
        Ok(StepOutcome::passed())
    });
    tally.step("source archive", || {
        let archive = source::write(workspace, &out)?;
        println!("{}", archive.display());
        let changes =
            Cmd::new("git").arg("-C").arg(&workspace.root).args(["status", "--porcelain"]);
        Ok(match changes.read()?.is_empty() {
            true => StepOutcome::passed(),
            false => StepOutcome::passed()
                .note("the archive has the last commit, without the changes since"),
        })
    });
    static_programs::run(workspace, &out, tally);
    if options.verify {
        tally.step("a second build from the source archive", || verify(workspace, &out));
    }
}

/// Builds the programs for distribution, and the package from them.
fn package(workspace: &Workspace, out: &Path) -> Result<StepOutcome> {
    let programs = BuildEnvironment::new(workspace)?.build(TARGET, &[MANUALS])?;
    let package = deb::build(workspace, &programs, out, 6)?;
    println!("{}: {} KiB", package.display(), fs::metadata(&package)?.len() / 1024);
    lintian(&package)
}

/// Checks the package with lintian: neither an error nor a warning is left.
fn lintian(package: &Path) -> Result<StepOutcome> {
    if let Err(missing) = machine::need("lintian", "lintian") {
        return Ok(StepOutcome::passed().note(format!("not checked by lintian: {missing:#}")));
    }
    let found = Cmd::new("lintian")
        .args(["--fail-on", "error,warning", "--allow-root", "--tag-display-limit", "0"])
        .arg(package)
        .output()?;
    let text = String::from_utf8_lossy(&found.stdout);
    print!("{text}");
    match found.status.success() {
        true => Ok(StepOutcome::passed().note("lintian finds neither an error nor a warning")),
        false => Ok(StepOutcome::failed("lintian")),
    }
}

/// Builds the programs of the package as a debug build, for tests.
pub(crate) fn quick_programs(workspace: &Workspace) -> Result<Programs> {
    let packages = sbom::PACKAGES.into_iter().chain([MANUALS]).collect::<Vec<_>>();
    workspace.build(Profile::Dev, &packages)
}

/// Builds the package from the programs of a debug build, for tests: the same files, and programs that cost no build of their
/// own.
pub(crate) fn quick_package(workspace: &Workspace) -> Result<PathBuf> {
    let programs = quick_programs(workspace)?;
    let out = workspace.target.join("dist-quick");
    fs::create_dir_all(&out)?;
    deb::build(workspace, &programs.path(""), &out, 0)
}

/// Checks the contents of a package that is made from a debug build. CI runs this for each commit.
pub(crate) fn smoke(workspace: &Workspace) -> Result<StepOutcome> {
    let package = quick_package(workspace)?;
    let listed = Cmd::new("dpkg-deb").arg("--contents").arg(&package).read()?;
    let wanted = deb::contents(workspace)?;
    for entry in &wanted {
        let path = format!("./{}", entry.destination);
        let is_there = listed
            .lines()
            .any(|line| line.split(' ').any(|word| word == path) && line.contains("root/root"));
        anyhow::ensure!(is_there, "{path} is not in the package, or does not belong to root");
    }
    let again = quick_package(workspace).and_then(|package| Ok(fs::read(package)?))?;
    anyhow::ensure!(fs::read(&package)? == again, "two builds of the package differ");
    Ok(StepOutcome::passed())
}

/// Returns the list of crates.
fn sbom_document(workspace: &Workspace) -> Result<String> {
    let epoch = environment::source_date(workspace)?;
    let created = Cmd::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d", &format!("@{epoch}")]);
    sbom::document(workspace, TARGET, env!("CARGO_PKG_VERSION"), &created.read()?)
}

/// Builds the package from the source archive in another directory, offline and with an empty home of cargo, and compares it.
fn verify(workspace: &Workspace, out: &Path) -> Result<StepOutcome> {
    let again = out.join("again");
    if again.exists() {
        fs::remove_dir_all(&again)?;
    }
    let home = again.join("cargo-home");
    fs::create_dir_all(&home)?;
    let archive = out.join(source::archive_name());
    Cmd::new("tar").arg("-C").arg(&again).arg("-xf").arg(&archive).run()?;
    let dir = again.join(source::directory_name());
    cargo(workspace)
        .dir(&dir)
        .env("CARGO_HOME", &home)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", again.join("target"))
        .args(["run", "--quiet", "--package", "xtask", "--", "dist", "--only-package", "--out"])
        .arg(again.join("result"))
        .run()?;
    let name = deb::file_name();
    let [first, second] = [out.join(&name), again.join("result").join(&name)].map(fs::read);
    let is_equal = first.context("the first package")? == second.context("the second package")?;
    match is_equal {
        true => Ok(StepOutcome::passed().note("the second package has the same bytes")),
        false => Ok(StepOutcome::failed("the two packages differ")),
    }
}

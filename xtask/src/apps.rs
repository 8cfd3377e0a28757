//! Real programs on a volume: copying, git and cargo. The copies are compared before an unmount, and
//! after another mount.
//!
//! The comparison of every byte and attribute uses the walker of [`tree`], not a program that is
//! itself under test.

use std::{fs, path::Path};

use anyhow::{Result, bail};

use crate::{
    cargo::cargo,
    device::TestDevice,
    filesystem::{Blocks, Cache, FilesystemKind, Subject},
    machine,
    mount::Mount,
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    tree::{self, Census},
    workspace::{Profile, Workspace},
};

const DEVICE_LEN: u64 = 6 << 30;
const FILES_LONG: u64 = 20_000;
const BYTES_LONG: u64 = 300_000_000;
const FILES_SHORT: u64 = 3_000;
const BYTES_SHORT: u64 = 40_000_000;

/// Storage below a volume.
#[derive(Clone, Copy)]
pub(crate) enum Storage {
    Loop,
    Image,
    /// The object store of the subject.
    Store,
}

/// Runs the programs on a loop device, and on an image file.
pub(crate) fn run(workspace: &Workspace, on: Subject, long: bool, tally: &mut Tally) {
    run_on(workspace, on, Storage::Loop, long, tally);
    run_on(workspace, on, Storage::Image, long, tally);
}

pub(crate) fn run_on(
    workspace: &Workspace,
    on: Subject,
    storage: Storage,
    long: bool,
    tally: &mut Tally,
) {
    let what = match storage {
        Storage::Loop => "a loop device",
        Storage::Image => "an image file",
        Storage::Store => "a small cache",
    };
    let name = format!("programs on {}, {what}", on.name());
    match need(on.kind, storage) {
        Err(reason) => tally.skip(&name, &reason),
        Ok(()) => tally.step(&name, || try_programs(workspace, on, storage, long)),
    }
}

fn need(on: FilesystemKind, storage: Storage) -> Result<()> {
    on.need()?;
    machine::need("git", "git")?;
    match (storage, on) {
        (Storage::Loop, _) => machine::need_loop(),
        (Storage::Store, _) | (Storage::Image, FilesystemKind::Sfs | FilesystemKind::Fuse2fs) => {
            Ok(())
        }
        (Storage::Image, _) => bail!("{} is not mounted from an image file", on.name()),
    }
}

fn try_programs(
    workspace: &Workspace,
    on: Subject,
    storage: Storage,
    long: bool,
) -> Result<StepOutcome> {
    let programs = on.build(workspace, Profile::Dev)?;
    let scratch = Scratch::new()?;
    let source = scratch.dir.join("source");
    let (files, bytes) = if long { (FILES_LONG, BYTES_LONG) } else { (FILES_SHORT, BYTES_SHORT) };
    let census = tree::plant(&source, files, bytes)?;
    println!("source: {census}");
    let image = scratch.dir.join("image");
    let device = on.device(
        workspace,
        &image,
        DEVICE_LEN,
        match storage {
            Storage::Loop => TestDevice::over_loop,
            Storage::Image | Storage::Store => TestDevice::image,
        },
    )?;
    let kind = on.kind;
    kind.make(&programs, &device, Blocks::Discard)?;

    let dir = scratch.dir.join("mount");
    let mount = Mount::new(kind, &programs, &device, &dir, Cache::Writeback)?;
    let mut checks = Checks::default();
    checks.check("copied", || copy(&source, &dir.join("tree"), census))?;
    checks.check("the copy is equal", || equal(&source, &dir.join("tree")))?;
    checks.check("git", || git(&source, &dir.join("repository")))?;
    if long {
        checks.check("cargo builds this project", || build(workspace, &dir))?;
    }
    mount.unmount()?;
    checks.check("the checker finds nothing", || kind.check(&programs, &device))?;
    let mount = Mount::new(kind, &programs, &device, &dir, Cache::Writeback)?;
    checks.check("equal after mounting again", || equal(&source, &dir.join("tree")))?;
    checks.check("git after mounting again", || fsck(&dir.join("repository")))?;
    mount.unmount()?;
    let outcome = checks.outcome.note(format!("{census}"));
    Ok(match on.store {
        Some(_) => outcome.note(device.disturbances()),
        None => outcome,
    })
}

/// Results of the checks of one step. The first failure ends the step, since later checks build on
/// it.
#[derive(Default)]
struct Checks {
    outcome: StepOutcome,
}

impl Checks {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = std::time::Instant::now();
        let result = check();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name:40} {word} {:8.1} s", start.elapsed().as_secs_f64());
        self.outcome.passed += 1;
        result.map_err(|error| error.context(name.to_owned()))
    }
}

fn copy(from: &Path, to: &Path, expected: Census) -> Result<()> {
    let copied = tree::copy(from, to)?;
    if (copied.files, copied.hard_links) != (expected.files, expected.hard_links) {
        bail!("copied {copied} of {expected}");
    }
    Ok(())
}

/// Asserts that the trees are equal; the error names the first differences.
pub(crate) fn equal(left: &Path, right: &Path) -> Result<()> {
    const SHOWN: usize = 10;
    let differences = tree::compare(left, right)?;
    if differences.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    bail!("{} differences:\n{}", differences.len(), shown.join("\n"));
}

/// Prepares git in `repository`, without the user's configuration.
fn git_in(repository: &Path) -> Cmd {
    Cmd::new("git")
        .dir(repository)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args(["-c", "user.name=sfs", "-c", "user.email=sfs@example.invalid", "-c", "gc.auto=0"])
        .args(["-c", "safe.directory=*"])
}

fn git(source: &Path, repository: &Path) -> Result<()> {
    fs::create_dir(repository)?;
    tree::copy(&source.join(format!("{}0", tree::COPY)), &repository.join("sources"))?;
    git_in(repository).args(["init", "--quiet"]).read()?;
    git_in(repository).args(["add", "--all", "--force"]).read()?;
    git_in(repository).args(["commit", "--quiet", "--message", "everything"]).read()?;
    git_in(repository).args(["repack", "-a", "-d", "--quiet"]).read()?;
    fsck(repository)
}

fn fsck(repository: &Path) -> Result<()> {
    git_in(repository).args(["fsck", "--full", "--strict", "--no-progress"]).read()?;
    let changed = git_in(repository).args(["status", "--porcelain"]).read()?;
    if !changed.is_empty() {
        bail!("git sees changes that were not made:\n{changed}");
    }
    Ok(())
}

/// Builds this project from sources on the volume, with cargo's target directory on the volume,
/// too.
fn build(workspace: &Workspace, dir: &Path) -> Result<()> {
    let sources = dir.join("sfs");
    for entry in fs::read_dir(&workspace.root)? {
        let entry = entry?;
        let skipped = [workspace.target.as_path(), &workspace.root.join("target")]
            .contains(&entry.path().as_path());
        if skipped || entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&sources)?;
            tree::copy(&entry.path(), &sources.join(entry.file_name()))?;
        } else {
            fs::create_dir_all(&sources)?;
            fs::copy(entry.path(), sources.join(entry.file_name()))?;
        }
    }
    cargo(workspace)
        .dir(&sources)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .args(["build", "--workspace", "--quiet"])
        .run()
}

//! Real programs on a volume: copying, git, cargo; and all of it again after an unmount.
//!
//! Owns the tree that is used and the order of what is done with it. Promises to compare every byte
//! and attribute by our own walker, not by a program that was tested too.

use std::{fs, path::Path};

use anyhow::{Result, bail};

use crate::{
    cargo::cargo,
    device::Device,
    filesystem::{Blocks, Cache, Kind, Subject},
    machine,
    mount::Mount,
    report::{Outcome, Tally},
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

/// What a volume is on.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Loop,
    Image,
}

/// On a loop device, and on an image file.
pub(crate) fn run(workspace: &Workspace, on: Subject, long: bool, tally: &mut Tally) {
    run_on(workspace, on, Place::Loop, long, tally);
    run_on(workspace, on, Place::Image, long, tally);
}

pub(crate) fn run_on(
    workspace: &Workspace,
    on: Subject,
    place: Place,
    long: bool,
    tally: &mut Tally,
) {
    let what = match place {
        Place::Loop => "a loop device",
        Place::Image => "an image file",
    };
    let name = format!("programs on {}, {what}", on.name());
    match need(on.kind, place) {
        Err(reason) => tally.skip(&name, &reason),
        Ok(()) => tally.step(&name, || try_programs(workspace, on, place, long)),
    }
}

fn need(on: Kind, place: Place) -> Result<()> {
    on.need()?;
    machine::need("git", "git")?;
    match (place, on) {
        (Place::Loop, _) => machine::need_loop(),
        (Place::Image, Kind::Sfs | Kind::Fuse2fs) => Ok(()),
        (Place::Image, _) => bail!("{} is not mounted from an image file", on.name()),
    }
}

fn try_programs(workspace: &Workspace, on: Subject, place: Place, long: bool) -> Result<Outcome> {
    let programs = on.build(workspace, Profile::Dev)?;
    let scratch = Scratch::new()?;
    let source = scratch.dir.join("source");
    let (files, bytes) = if long { (FILES_LONG, BYTES_LONG) } else { (FILES_SHORT, BYTES_SHORT) };
    let census = tree::plant(&source, files, bytes)?;
    println!("source: {census}");
    let image = scratch.dir.join("image");
    let device = match place {
        Place::Loop => Device::over_loop(&image, DEVICE_LEN)?,
        Place::Image => Device::image(&image, DEVICE_LEN)?,
    };
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
    Ok(checks.outcome.note(format!("{census}")))
}

/// Each check is counted; the first that fails ends the step, as the others build on it.
#[derive(Default)]
struct Checks {
    outcome: Outcome,
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

/// Nothing differs between the trees; the error names the first places where something does.
pub(crate) fn equal(left: &Path, right: &Path) -> Result<()> {
    const SHOWN: usize = 10;
    let differences = tree::compare(left, right)?;
    if differences.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    bail!("{} differences:\n{}", differences.len(), shown.join("\n"));
}

/// git in `repository`, as nobody in particular.
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
        bail!("git sees changes that nobody made:\n{changed}");
    }
    Ok(())
}

/// The sources are on the volume, and so is everything that the compiler writes.
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

//! Static programs for several processors, each in an archive. A target that cannot be had is skipped with the reason.

use std::{env, fs, path::Path};

use anyhow::{Result, anyhow, bail, ensure};

use crate::{
    device::TestDevice,
    dist::{environment, environment::BuildEnvironment},
    filesystem::{Blocks, Cache, FilesystemKind},
    mount::Mount,
    report::{StepOutcome, Tally},
    run::Cmd,
    scratch::Scratch,
    workspace::{Programs, Workspace},
};

/// Length of the image that the programs are tried out with.
const IMAGE_LEN: u64 = 64 << 20;

/// Packages of the programs. `sfs-store` has parts in C, for which each target would need a compiler.
const PACKAGES: [&str; 4] = ["sfs", "sfs-mkfs", "sfs-fsck", "sfs-probe"];

/// Programs in an archive.
const PROGRAMS: [&str; 6] =
    ["sfs-ctl", "sfs-fsck", "sfs-mkfs", "sfs-mount", "sfs-probe", "sfs-umount"];

/// A target, with the needs of its linking.
struct StaticTarget {
    triple: &'static str,
    flags: &'static [&'static str],
}

/// The linker that comes with rustc; the libraries of musl come with the target.
const OWN_LINKER: &[&str] = &["-Clinker=rust-lld", "-Ctarget-feature=+crt-static"];

const TARGETS: [StaticTarget; 2] = [
    StaticTarget { triple: "x86_64-unknown-linux-musl", flags: OWN_LINKER },
    StaticTarget { triple: "aarch64-unknown-linux-musl", flags: OWN_LINKER },
];

pub(super) fn run(workspace: &Workspace, out: &Path, tally: &mut Tally) {
    for target in &TARGETS {
        let name = format!("static programs for {}", target.triple);
        match need(target) {
            Err(missing) => tally.skip(&name, &missing),
            Ok(()) => tally.step(&name, || build(workspace, target, out)),
        }
    }
    let reason = anyhow!("the crate io-uring has no definitions for them");
    tally.skip("static programs for 32-bit processors", &reason);
}

/// Checks that the target's library is there, or installs it.
fn need(target: &StaticTarget) -> Result<()> {
    let sysroot = Cmd::new("rustc").args(["--print", "sysroot"]).read()?;
    let library = Path::new(&sysroot).join("lib/rustlib").join(target.triple).join("lib");
    if !library.exists() {
        let added = Cmd::new("rustup").args(["target", "add", target.triple]).output();
        if !added.is_ok_and(|added| added.status.success()) {
            bail!("the library of {} is missing, and rustup cannot get it", target.triple);
        }
    }
    Ok(())
}

fn build(workspace: &Workspace, target: &StaticTarget, out: &Path) -> Result<StepOutcome> {
    let StaticTarget { triple, flags } = target;
    let flags: Vec<&str> = flags.iter().copied().chain(["-Cstrip=symbols"]).collect();
    let programs = BuildEnvironment::new(workspace)?.build_with(triple, &PACKAGES, &flags)?;
    let mut sizes = Vec::new();
    for name in PROGRAMS {
        let path = programs.join(name);
        let kind = fs::read(&path)?;
        if is_dynamic(&kind) {
            bail!("{}: is not static", path.display());
        }
        sizes.push(format!("{name} {} KiB", kind.len() / 1024));
    }
    if triple.starts_with(env::consts::ARCH) && FilesystemKind::Sfs.need().is_ok() {
        try_out(&Programs::of_build(&programs)?)?;
    }
    let archive = out.join(format!("sfs-{}-{triple}.tar.gz", env!("CARGO_PKG_VERSION")));
    let date = environment::source_date(workspace)?;
    Cmd::new("tar")
        .env("GZIP", "-n")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=755"])
        .arg(format!("--mtime=@{date}"))
        .arg("-C")
        .arg(&programs)
        .arg("-czf")
        .arg(&archive)
        .args(PROGRAMS)
        .read()?;
    println!("{}", archive.display());
    Ok(StepOutcome::passed().note(sizes.join(", ")))
}

/// Writes a file to a new volume, and reads it back after an unmount. Regression: with musl, the daemon asked itself for its mount point
/// before it answered.
fn try_out(programs: &Programs) -> Result<()> {
    let scratch = Scratch::new()?;
    let device = TestDevice::image(&scratch.dir.join("image"), IMAGE_LEN)?;
    FilesystemKind::Sfs.make(programs, &device, Blocks::Discard)?;
    let dir = scratch.dir.join("mount");
    let mount = || Mount::new(FilesystemKind::Sfs, programs, &device, &dir, Cache::Writeback);
    let mounted = mount()?;
    fs::write(dir.join("file"), "content")?;
    mounted.unmount()?;
    let mounted = mount()?;
    ensure!(fs::read(dir.join("file"))? == b"content", "the file has other content");
    mounted.unmount()?;
    FilesystemKind::Sfs.check(programs, &device)
}

/// Returns whether an ELF file names a dynamic linker, by a program header of the type PT_INTERP.
fn is_dynamic(file: &[u8]) -> bool {
    let number = |at: usize, len: usize| {
        file[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let is_64 = file[4] == 2;
    let (start, size, count) = match is_64 {
        true => (number(32, 8), number(54, 2), number(56, 2)),
        false => (number(28, 4), number(42, 2), number(44, 2)),
    };
    (0..count).any(|header| number(start + header * size, 4) == 3)
}

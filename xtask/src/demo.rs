//! `cargo xtask demo`: SFS at work in a minute, for someone who has just cloned the repository.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result};

use crate::{
    apps, cleanup,
    device::TestDevice,
    filesystem::{Blocks, Cache, FilesystemKind},
    machine,
    mount::Mount,
    tree::{self, Census},
    workspace::{Profile, Programs, Workspace},
};

const IMAGE_LEN: u64 = 1 << 30;
/// Largest source tree, so that the copy leaves space in the image.
const SOURCE_LEN_MAX: u64 = IMAGE_LEN / 2;

/// Runs the demonstration. An error names the failure, or a missing program or device and the
/// remedy.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    machine::need_fuse().context("SFS needs FUSE")?;
    println!("building SFS (release)");
    let programs = FilesystemKind::Sfs.build(workspace, Profile::Release)?;
    let home = workspace.target.join("demo");
    fs::create_dir_all(&home)?;
    let image = home.join("volume.img");
    let dir = home.join("mount");
    if cleanup::is_mounted(&dir) {
        FilesystemKind::Sfs.unmount(&programs, &dir)?;
    }
    let device = TestDevice::image(&image, IMAGE_LEN)?;

    println!("\nsfs-mkfs {}", image.display());
    FilesystemKind::Sfs.make(&programs, &device, Blocks::Discard)?;
    println!("sfs-mount {} {}", image.display(), dir.display());
    let mount = Mount::new(FilesystemKind::Sfs, &programs, &device, &dir, Cache::Writeback)?;
    let (source, name) = source(workspace)?;
    let copy = dir.join(name);
    copy_and_compare(&source, &copy)?;
    show(&dir)?;

    println!("\nsfs-umount {}", dir.display());
    let start = Instant::now();
    mount.unmount()?;
    println!("  everything was on the device after {:.2} s", start.elapsed().as_secs_f64());
    println!("sfs-fsck -n --data {}", image.display());
    FilesystemKind::Sfs.check(&programs, &device)?;
    println!("  nothing is wrong: every block was read, and every checksum is right");
    again(&programs, &device, &dir, &source, &copy)?;
    closing(&programs);
    Ok(())
}

/// Returns a source tree to copy: cargo's downloads, or else this repository's sources.
fn source(workspace: &Workspace) -> Result<(PathBuf, &'static str)> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    if let Some(registry) = home.map(|home| home.join("registry/src"))
        && let Ok(entries) = tree::walk(&registry)
        && (1..SOURCE_LEN_MAX).contains(&tree::census(&entries).bytes)
    {
        return Ok((registry, "registry"));
    }
    Ok((workspace.root.join("crates"), "crates"))
}

fn copy_and_compare(source: &Path, copy: &Path) -> Result<()> {
    println!("\ncopying {}", source.display());
    let start = Instant::now();
    let census = tree::copy(source, copy)?;
    speak(&census, start);
    println!("comparing: bytes, modes, times, links");
    let start = Instant::now();
    apps::equal(source, copy)?;
    println!("  all equal, {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn speak(census: &Census, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let mb = census.bytes as f64 / 1e6;
    println!("  {census}");
    println!(
        "  {seconds:.2} s, {:.0} MB/s, {:.0} files/s",
        mb / seconds,
        census.files as f64 / seconds
    );
}

fn show(dir: &Path) -> Result<()> {
    let space = rustix::fs::statvfs(dir)?;
    let mib = |blocks: u64| (blocks * space.f_frsize) >> 20;
    println!("\nthe volume");
    println!(
        "  {} MiB, {} MiB free, blocks of {}",
        mib(space.f_blocks),
        mib(space.f_bavail),
        space.f_frsize
    );
    println!("  {} inodes in use", space.f_files.saturating_sub(space.f_ffree));
    Ok(())
}

fn again(
    programs: &Programs,
    device: &TestDevice,
    dir: &Path,
    source: &Path,
    copy: &Path,
) -> Result<()> {
    println!("mounting the volume again and comparing");
    let start = Instant::now();
    let mount = Mount::new(FilesystemKind::Sfs, programs, device, dir, Cache::Writeback)?;
    println!("  mounted after {:.2} s", start.elapsed().as_secs_f64());
    apps::equal(source, copy)?;
    println!("  all equal");
    mount.unmount()
}

fn closing(programs: &Programs) {
    println!("\nThat was SFS. Your own volume, on a USB stick, an SD card or an image file:\n");
    for (program, rest) in
        [("sfs-mkfs", "DEVICE"), ("sfs-mount", "DEVICE DIR"), ("sfs-umount", "DIR")]
    {
        println!("    {} {rest}", programs.path(program).display());
    }
    println!("\nThe README describes the uses of SFS.");
}

//! `cargo xtask bench pairs`: what a build or a mount option costs a call for a name or a direct read, more exactly than the rows of
//! `bench compare`.
//!
//! Two volumes are mounted at once, and take turns in short bursts, each first as often as the other. Other activity of the machine affects both
//! bursts of a pair alike, so that the ratio of their times is exact where the times are not.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use rustix::fs::OFlags;

use super::{DEVICE_LEN, Target, spread::Spread};
use crate::{
    filesystem::FilesystemKind,
    machine::{self, Rings},
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

/// Number of calls of a thread in a burst.
const CALLS: u32 = 300;

/// Number of threads that read at once.
const READERS: u32 = 16;

/// Length of the file that is read, in blocks.
const FILE_BLOCKS: u64 = 16_384;

/// A block, in memory for direct reads.
#[repr(align(4096))]
struct Block([u8; 4096]);

#[derive(Args)]
pub(crate) struct PairsOptions {
    /// Directory with the programs of the earlier build (`target/release` of another checkout).
    #[arg(long, required_unless_present = "with")]
    before: Option<PathBuf>,
    /// Mount option of the later build: without `--before` the same build is compared with and without it.
    #[arg(long, value_name = "OPTION")]
    with: Option<String>,
    /// Transport of both.
    #[arg(long, default_value = "dev")]
    transport: String,
    /// Number of pairs of bursts.
    #[arg(long, default_value_t = 400)]
    pairs: u32,
}

/// A burst of calls in the directory of a pair.
type Burst = fn(&Path) -> io::Result<()>;

/// The bursts of a pair with the number of their calls, in their order: each uses the files of the one before.
const BURSTS: [(&str, u32, Burst); 5] = [
    ("create", CALLS, create),
    ("rename", CALLS, rename),
    ("unlink", CALLS, unlink),
    ("direct read, 4 KiB, one thread", CALLS, read),
    ("direct read, 4 KiB, sixteen threads", CALLS * READERS, read_at_once),
];

fn name(prefix: &str, no: u32) -> String {
    format!("{prefix}{no:06}")
}

fn create(dir: &Path) -> io::Result<()> {
    (0..CALLS).try_for_each(|no| File::create_new(dir.join(name("new", no))).map(drop))
}

fn rename(dir: &Path) -> io::Result<()> {
    (0..CALLS).try_for_each(|no| fs::rename(dir.join(name("new", no)), dir.join(name("old", no))))
}

fn unlink(dir: &Path) -> io::Result<()> {
    (0..CALLS).try_for_each(|no| fs::remove_file(dir.join(name("old", no))))
}

/// Returns the path of the file that is read in all pairs, beside their directories.
fn read_file(dir: &Path) -> PathBuf {
    dir.with_file_name("data")
}

/// Writes the file that is read.
fn write_file(dir: &Path) -> io::Result<()> {
    let file = File::create(read_file(dir))?;
    (0..FILE_BLOCKS).try_for_each(|at| file.write_all_at(&[at as u8; 4096], at * 4096))?;
    file.sync_all()
}

fn open_direct(dir: &Path) -> io::Result<File> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).custom_flags(direct).open(read_file(dir))
}

fn read(dir: &Path) -> io::Result<()> {
    read_blocks(&open_direct(dir)?, 0)
}

fn read_at_once(dir: &Path) -> io::Result<()> {
    let file = open_direct(dir)?;
    thread::scope(|scope| {
        let read = |no| {
            let file = &file;
            scope.spawn(move || read_blocks(file, no))
        };
        let readers: Vec<_> = (0..READERS).map(read).collect();
        readers.into_iter().try_for_each(|reader| {
            reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
        })
    })
}

/// Reads random blocks, which depend on the number of the reader.
fn read_blocks(file: &File, reader: u32) -> io::Result<()> {
    let mut block = Block([0; 4096]);
    (0..CALLS).try_for_each(|no| {
        let at = u64::from(reader * CALLS + no + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        file.read_exact_at(&mut block.0, at % FILE_BLOCKS * 4096)
    })
}

pub(crate) fn run(workspace: &Workspace, options: &PairsOptions) -> Result<()> {
    ensure!(options.pairs > 0, "--pairs has to be 1 or more");
    let after = FilesystemKind::Sfs.build(workspace, Profile::Release)?;
    let before = match &options.before {
        Some(dir) => Programs::of_build(dir)?,
        None => after.clone(),
    };
    FilesystemKind::Sfs.need()?;
    let _rings = Rings::enable()?;
    let scratch = Scratch::in_ram(DEVICE_LEN * 2)?;
    let target = |programs: Programs, name: &str| {
        Target::new(FilesystemKind::Sfs, &programs.over(&options.transport), name, &scratch)
    };
    let after = after.with(options.with.clone().map(Into::into));
    let targets = [target(before, "before")?, target(after, "after")?];
    targets.iter().try_for_each(|target| write_file(&target.mount.dir.join("0")))?;
    let mut pairs: [Vec<[Duration; 2]>; BURSTS.len()] = Default::default();
    for no in 0..options.pairs {
        let dirs = targets.each_ref().map(|target| target.mount.dir.join(no.to_string()));
        dirs.iter().try_for_each(fs::create_dir)?;
        for ((_, _, burst), pairs) in BURSTS.iter().zip(&mut pairs) {
            let mut pair = [Duration::ZERO; 2];
            let first = no as usize % 2;
            for turn in [first, 1 - first] {
                let begun = Instant::now();
                burst(&dirs[turn])?;
                pair[turn] = begun.elapsed();
            }
            pairs.push(pair);
        }
        dirs.iter().try_for_each(fs::remove_dir)?;
    }
    println!("{}\n", machine::description());
    println!("| {} | us before | us after | speed by pair: median (95 %) |", options.transport);
    println!("|---|---:|---:|---:|");
    for ((name, calls, _), pairs) in BURSTS.iter().zip(&pairs) {
        let micros = |of: usize| {
            let times = pairs.iter().map(|pair| pair[of].as_secs_f64() * 1e6 / f64::from(*calls));
            Spread::of(times).unwrap_or_default().median
        };
        let ratios = pairs.iter().map(|[before, after]| before.div_duration_f64(*after));
        let speed = interval(ratios.collect());
        println!("| {name} | {:.1} | {:.1} | {speed:.3} |", micros(0), micros(1));
    }
    targets.into_iter().try_for_each(Target::unmount)
}

/// Returns the median of samples, and the samples between which the median of their source lies with 95 % (sign test).
fn interval(mut samples: Vec<f64>) -> Spread {
    samples.sort_by(f64::total_cmp);
    let (middle, half) = (samples.len() as f64 / 2.0, 0.98 * (samples.len() as f64).sqrt());
    let last = samples.len() - 1;
    Spread {
        low: samples[(middle - half).max(0.0) as usize],
        median: Spread::of(samples.iter().copied()).unwrap_or_default().median,
        high: samples[last.min((middle + half) as usize)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_narrows_with_samples() {
        let ramp =
            |count: u32| interval((0..count).map(|no| f64::from(no) / f64::from(count)).collect());
        let (few, many) = (ramp(16), ramp(1600));
        assert!((few.low..=few.high).contains(&few.median) && few.low < 0.3 && few.high > 0.6);
        assert!(many.low > 0.47 && many.high < 0.53, "{many:.3}");
        assert_eq!(interval(vec![2.0]), Spread::one(2.0));
    }
}

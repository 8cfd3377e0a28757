//! `cargo xtask`: the commands for developers and CI.
//!
//! Every mount and loop device that a command makes is undone. A step that cannot run is listed as
//! skipped, with the reason. The sources are never changed; only `bench` writes into `docs/`.
#![forbid(unsafe_code)]

mod age;
mod ahead;
mod apps;
mod bench;
mod cargo;
mod cleanup;
mod crash;
mod demo;
mod device;
mod dist;
mod filesystem;
mod fio;
mod fsx;
mod guest;
mod imports;
mod installed;
mod kernels;
mod machine;
mod model;
mod mount;
mod object_store;
mod pjdfstest;
mod report;
mod rooted;
mod run;
mod scratch;
#[cfg(test)]
mod semantics;
mod test;
mod test_store;
mod tokens;
mod tree;
mod volume_stat;
mod where_page;
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{filesystem::FilesystemKind, guest::Suite, report::Tally, workspace::Workspace};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Commands for developers and CI of SFS")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look for import cycles and for imports of an upper layer.
    Imports,
    /// Look for comments and messages whose subject is a pronoun or a relative clause.
    Words,
    /// Look up every `path::function` that docs/WHERE.md names.
    Where,
    /// Run everything that CI runs: format, lints, docs, tests, and the suites on a mounted volume.
    Test {
        /// Run longer: more operations, files and kills, for a night.
        #[arg(long)]
        long: bool,
    },
    /// Make the files for users: a Debian package, a source archive with all crates, the list of crates, static
    /// programs.
    Dist(dist::DistOptions),
    /// Install the Debian package in a fresh Debian system in QEMU: fstab, boot, fsck, a power cut, removal.
    TestInstalled(GuestOptions),
    /// Boot a Debian system in QEMU whose root filesystem and /home are SFS: restart, power cut and end while it writes.
    TestRoot(GuestOptions),
    /// Boot Debian 12 with its Linux 6.1 in QEMU: mkfs, mount, fsck, and deaths of the daemon with -o survive.
    TestKernels,
    /// Run mount tests and suites on volumes in object stores, while real servers are killed.
    TestStore(test_store::TestStoreOptions),
    /// Make a volume, copy a source tree onto it, compare and check it.
    Demo,
    /// Copy a source tree and run git and cargo on a volume; compare again after an unmount.
    Apps {
        /// Use at least 20,000 files, and build this project on the volume.
        #[arg(long)]
        long: bool,
        /// Filesystem to test.
        #[arg(long, default_value = "sfs")]
        on: FilesystemKind,
    },
    /// Run the POSIX suite pjdfstest.
    Pjdfstest {
        /// Filesystem to test.
        #[arg(long, default_value = "sfs")]
        on: FilesystemKind,
        /// Run only the cases whose names contain this text.
        pattern: Option<String>,
    },
    /// Run the file system exerciser fsx, with and without the kernel's write-back cache.
    Fsx {
        /// Filesystem to test.
        #[arg(long, default_value = "sfs")]
        on: FilesystemKind,
        /// Number of operations of each run.
        #[arg(long, default_value_t = fsx::OPS_SHORT)]
        ops: u64,
        /// Seed of the run to replay.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kill the daemon with SIGKILL again and again, and check the volume.
    Kill {
        /// Number of kills.
        #[arg(long, default_value_t = 100)]
        count: u32,
    },
    /// Run 64 threads with all operations at once, with mounts, unmounts and signals in between.
    Stress {
        /// Duration, in seconds.
        #[arg(long, default_value_t = 600)]
        secs: u32,
    },
    /// Cut the power under fio, sqlite and postmark, and check the volume.
    Cut {
        /// Number of cuts for each of two devices and two caches.
        #[arg(long, default_value_t = 25)]
        count: u32,
    },
    /// Mount after a crash, and print the time and the memory that recovery takes.
    Recovery {
        /// MiB of log since the checkpoint.
        #[arg(long, default_value_t = test::RECOVERY_LOG_MIB)]
        log: u64,
    },
    /// Check a volume with many files, and mount one with many blocks in place; print time and memory.
    Scale {
        /// Number of small files; a million take 270 MB in the directory for temporary files.
        #[arg(long, default_value_t = 10_000_000)]
        files: u64,
        /// Number of blocks in place; a million take 18 MB.
        #[arg(long, default_value_t = 1 << 27)]
        mapped: u64,
        /// GiB of the volumes, whose images are sparse.
        #[arg(long, default_value_t = 1024)]
        gib: u64,
    },
    /// Check crash states in deterministic simulations: `--states N --seed S`, or `--replay CASE
    /// --state N`; `-- --help` lists everything.
    Crash {
        /// Arguments of the simulator.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Overwrite a full volume at random, several times: every byte is verified, no write is too
    /// long, and the counters are as the simulator predicts.
    Age(age::AgeOptions),
    /// Measure speed, latency and processor time.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(clap::Args)]
struct GuestOptions {
    /// Release of Debian in the guest.
    #[arg(long, value_enum, default_value_t = Suite::Trixie)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Bench {
    /// Compare SFS with the null filesystem, ext4, XFS, btrfs, fuse2fs and ntfs-3g; writes
    /// `docs/benchmarks.md`.
    Fuse(bench::FuseBenchOptions),
    /// Run the rows of `fuse` for two builds of SFS that take turns, with the spread of each.
    Compare(bench::compare::CompareOptions),
    /// Measure what a build or a mount option costs calls for names, in bursts that take turns.
    Pairs(bench::pairs::PairsOptions),
    /// Count the instructions and system calls of the daemon per call, by perf(1); writes
    /// `docs/benchmarks.md`.
    Counts(bench::counts::CountsOptions),
    /// Attribute the processor time of a call to parts, by perf(1); writes `docs/benchmarks.md`.
    Profile(bench::profile::ProfileOptions),
    /// Measure the bytes that reach the device, by policy, beside the bound.
    Bytes(bench::bytes::BytesOptions),
    /// Measure the latency of requests during cleaning, with and without yielding.
    Pacing(bench::pacing::PacingOptions),
    /// Measure real programs on models of cards, or on a card of your own.
    Card(Box<bench::card::CardOptions>),
    /// Measure the longest waits: beside streams and copies, and on full volumes.
    Tail(bench::tail::TailOptions),
    /// Measure how a fresh and an aged volume are read, with the requests to the device.
    Aged(bench::aged::AgedOptions),
    /// Compare volumes in object stores with plain transfers, a local volume, rclone and s3fs.
    Store(bench::store::StoreBenchOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = cleanup::on_signal() {
        eprintln!("Ctrl-C will leave mounts behind: {error}");
    }
    let result = run(arguments.command);
    cleanup::wait_if_stopping();
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns `false` if one of its steps failed.
fn run(command: Command) -> anyhow::Result<bool> {
    let workspace = Workspace::find()?;
    let mut tally = Tally::default();
    match command {
        Command::Test { long } => test::run(&workspace, long, &mut tally),
        Command::Imports => tally.step("imports", || imports::run(&workspace)),
        Command::Words => tally.step("words", || words::run(&workspace)),
        Command::Where => tally.step("docs/WHERE.md", || where_page::run(&workspace)),
        Command::Dist(options) => dist::run(&workspace, &options, &mut tally),
        Command::TestInstalled(options) => {
            installed::run(&workspace, options.suite, &mut tally);
        }
        Command::TestRoot(options) => rooted::run(&workspace, options.suite, &mut tally),
        Command::TestKernels => kernels::run(&workspace, &mut tally),
        Command::TestStore(options) => test_store::run(&workspace, &options, &mut tally)?,
        Command::Demo => return demo::run(&workspace).map(|()| true),
        Command::Apps { long, on } => apps::run(&workspace, on.into(), long, &mut tally),
        Command::Pjdfstest { on, pattern } => {
            pjdfstest::run(&workspace, on.into(), pattern.as_deref(), &mut tally);
        }
        Command::Fsx { on, ops, seed } => fsx::run(&workspace, on.into(), ops, seed, &mut tally),
        Command::Crash { arguments } => {
            tally.step("crash states", || crash::run(&workspace, &arguments));
        }
        Command::Age(options) => tally.step("age", || age::run(&workspace, &options)),
        Command::Kill { count } => test::kill(&workspace, count, &mut tally),
        Command::Stress { secs } => test::stress(&workspace, secs, &mut tally),
        Command::Cut { count } => test::cut(&workspace, count, &mut tally),
        Command::Recovery { log } => test::recovery(&workspace, log, &mut tally),
        Command::Scale { files, mapped, gib } => {
            test::scale(&workspace, [files, mapped, gib], &mut tally);
        }
        Command::Bench(Bench::Fuse(options)) => {
            return bench::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Compare(options)) => {
            return bench::compare::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Pairs(options)) => {
            return bench::pairs::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Counts(options)) => {
            return bench::counts::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Profile(options)) => {
            return bench::profile::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Bytes(options)) => {
            return bench::bytes::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Pacing(options)) => {
            return bench::pacing::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Card(options)) => {
            return bench::card::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Tail(options)) => {
            return bench::tail::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Aged(options)) => {
            return bench::aged::run(&workspace, &options).map(|()| true);
        }
        Command::Bench(Bench::Store(options)) => {
            return bench::store::run(&workspace, &options).map(|()| true);
        }
    }
    Ok(tally.close())
}

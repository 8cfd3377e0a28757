//! The load: one row of the benchmark on one mounted filesystem, with the same calls for each
//! filesystem.
//!
//! The row and the seed determine every call. A slow filesystem gets a prefix of the calls
//! ([`Scale::time_max`]). Wall and CPU time of a row do not include its preparation.

mod asynchronous;
mod buffer;
mod counts;
mod cpu;
mod data;
mod load_directory;
mod names;
mod perf;

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use asynchronous::{
    Direction::{Read, Write},
    Engine::{Libaio, Uring},
};
use clap::ValueEnum;

pub use counts::Counts;
pub use cpu::{Cpu, Watch};
pub use load_directory::LoadDirectory;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// Sequential write, 1 MiB requests, fsync at the end.
    SeqWrite1m,
    /// Sequential read, 1 MiB requests, page cache dropped before.
    SeqRead1m,
    /// Sequential write, 4 KiB requests, fsync at the end.
    SeqWrite4k,
    /// Sequential read, 4 KiB requests, page cache dropped before.
    SeqRead4k,
    /// Random 4 KiB overwrites through the page cache, fsync at the end.
    RandWrite,
    /// Random 4 KiB overwrites, each with its fsync.
    RandWriteFsync,
    /// Random 4 KiB O_DIRECT reads, one at a time.
    RandRead1,
    /// Random 4 KiB O_DIRECT reads, sixteen threads.
    RandRead16,
    /// Random 4 KiB O_DIRECT reads by libaio, one at a time.
    LibaioRead1,
    /// Random 4 KiB O_DIRECT reads by libaio, sixteen at a time.
    LibaioRead16,
    /// Random 4 KiB O_DIRECT overwrites by libaio, one at a time.
    LibaioWrite1,
    /// Random 4 KiB O_DIRECT overwrites by libaio, sixteen at a time.
    LibaioWrite16,
    /// Random 4 KiB O_DIRECT reads by io_uring, one at a time.
    UringRead1,
    /// Random 4 KiB O_DIRECT reads by io_uring, sixteen at a time.
    UringRead16,
    /// Random 4 KiB O_DIRECT overwrites by io_uring, one at a time.
    UringWrite1,
    /// Random 4 KiB O_DIRECT overwrites by io_uring, sixteen at a time.
    UringWrite16,
    /// Create empty files.
    Create,
    /// stat(2) of each file, whose inode the kernel has cached.
    StatCached,
    /// readdir with a stat of each file, with nothing cached in the kernel.
    ReaddirCold,
    /// Rename each file within its directory.
    Rename,
    /// Unlink each file.
    Unlink,
    /// Create a file, write 4 KiB, close.
    Create4k,
    /// Create empty files, four threads, each in a directory of its own.
    CreateParallel,
    /// Unlink the files of [`Row::CreateParallel`], in the same way.
    UnlinkParallel,
}

/// Amount of work of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Length of the file that is read and written, in bytes.
    pub file_len: u64,
    /// Number of random writes through the page cache.
    pub rand_writes: u64,
    /// Number of random writes with fsync.
    pub rand_syncs: u64,
    /// Number of random reads, over all threads.
    pub rand_reads: u64,
    /// Number of random reads, or writes, by an asynchronous interface.
    pub async_requests: u64,
    /// Number of files in the directory of the metadata rows.
    pub files: u64,
    /// Time after which a row stops, complete or not.
    pub time_max: Duration,
}

impl Scale {
    /// Scale of published numbers.
    pub const FULL: Self = Self {
        file_len: 256 << 20,
        rand_writes: 32_768,
        rand_syncs: 4_000,
        rand_reads: 40_000,
        async_requests: 20_000,
        files: 8_000,
        time_max: Duration::from_secs(12),
    };
    /// Scale of a quick look.
    pub const QUICK: Self = Self {
        file_len: 64 << 20,
        rand_writes: 8_192,
        rand_syncs: 1_000,
        rand_reads: 10_000,
        async_requests: 10_000,
        files: 2_000,
        time_max: Duration::from_secs(6),
    };
}

/// Work of a row: calls, and the bytes that they carried (0 for metadata).
#[derive(Clone, Copy, Debug, Default)]
pub struct RowWork {
    /// Number of calls of the row's kind.
    pub ops: u64,
    /// Payload of the calls, in bytes.
    pub bytes: u64,
    /// Time of another process that made the calls; `None` if this process made them.
    pub client: Option<Client>,
}

/// Time of a process that ran a row, without its start.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Wall time.
    pub wall: Duration,
    /// CPU time.
    pub cpu: Duration,
}

/// Cost of a row.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Calls and bytes.
    pub done: RowWork,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the client, the daemon and the kernel workers.
    pub cpu: Cpu,
    /// Instructions and system calls of the daemon, if they were counted. Counting takes time
    /// itself.
    pub counts: Option<Counts>,
}

/// Prepares `row` in `place` and measures it.
pub fn measure(row: Row, place: &LoadDirectory, scale: &Scale, watch: &Watch) -> Result<Sample> {
    prepare(row, place, scale)?;
    place.sync()?;
    bring_memory_back(2 * scale.file_len);
    let counter = watch.counts.then(|| counts::Counter::begin(&watch.pids)).transpose()?;
    let profile = watch.profile.as_deref().map(profile).transpose()?;
    let before = watch.read()?;
    let start = Instant::now();
    let done = run(row, place, scale, start + scale.time_max)?;
    let mut wall = start.elapsed();
    let mut cpu = watch.read()?.since(&before);
    if let Some(client) = done.client {
        (wall, cpu.client) = (client.wall, client.cpu);
    }
    let counts = counter.map(counts::Counter::end).transpose()?;
    profile.map(|mut profile| profile.end()).transpose()?;
    Ok(Sample { done, wall, cpu, counts })
}

/// Uses `len` bytes of free memory once. The host of a virtual machine may have taken memory away
/// that was free for seconds; its return would be charged to the row.
fn bring_memory_back(len: u64) {
    const PAGE: usize = 4096;
    let mut memory = vec![0_u8; usize::try_from(len).unwrap_or(0)];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// Starts sampling of all processes into `file`.
fn profile(file: &Path) -> Result<perf::Perf> {
    const RECORD: [&str; 5] = ["record", "--all-cpus", "--freq", "4000", "--output"];
    perf::Perf::begin(|_| RECORD.iter().map(OsStr::new).chain([file.as_os_str()]).collect())
}

fn prepare(row: Row, place: &LoadDirectory, scale: &Scale) -> Result<()> {
    match row {
        Row::SeqWrite1m | Row::SeqWrite4k => place.remove_file(),
        Row::SeqRead1m | Row::SeqRead4k => {
            place.sync()?;
            place.forget_data()
        }
        Row::RandWrite | Row::RandWriteFsync | Row::RandRead1 | Row::RandRead16 => {
            data::fill(place, scale)
        }
        Row::LibaioRead1 | Row::LibaioRead16 | Row::LibaioWrite1 | Row::LibaioWrite16 => {
            data::fill(place, scale)
        }
        Row::UringRead1 | Row::UringRead16 | Row::UringWrite1 | Row::UringWrite16 => {
            data::fill(place, scale)
        }
        Row::Create | Row::Create4k => place.empty_directory(),
        Row::StatCached => names::stat(place, scale, Instant::now() + scale.time_max).map(drop),
        Row::ReaddirCold => {
            place.sync()?;
            place.forget_names()
        }
        Row::CreateParallel => {
            place.empty_directory()?;
            names::make_directories(place)
        }
        Row::Rename | Row::Unlink | Row::UnlinkParallel => Ok(()),
    }
}

fn run(row: Row, place: &LoadDirectory, scale: &Scale, end: Instant) -> Result<RowWork> {
    match row {
        Row::SeqWrite1m => data::write(place, scale, 1 << 20, end),
        Row::SeqRead1m => data::read(place, scale, 1 << 20, end),
        Row::SeqWrite4k => data::write(place, scale, 4096, end),
        Row::SeqRead4k => data::read(place, scale, 4096, end),
        Row::RandWrite => data::overwrite(place, scale, scale.rand_writes, false, end),
        Row::RandWriteFsync => data::overwrite(place, scale, scale.rand_syncs, true, end),
        Row::RandRead1 => data::read_direct(place, scale, 1, end),
        Row::RandRead16 => data::read_direct(place, scale, 16, end),
        Row::LibaioRead1 => asynchronous::run(place, scale, (Libaio, Read), 1),
        Row::LibaioRead16 => asynchronous::run(place, scale, (Libaio, Read), 16),
        Row::LibaioWrite1 => asynchronous::run(place, scale, (Libaio, Write), 1),
        Row::LibaioWrite16 => asynchronous::run(place, scale, (Libaio, Write), 16),
        Row::UringRead1 => asynchronous::run(place, scale, (Uring, Read), 1),
        Row::UringRead16 => asynchronous::run(place, scale, (Uring, Read), 16),
        Row::UringWrite1 => asynchronous::run(place, scale, (Uring, Write), 1),
        Row::UringWrite16 => asynchronous::run(place, scale, (Uring, Write), 16),
        Row::Create => names::create(place, scale, 0, end),
        Row::StatCached => names::stat(place, scale, end),
        Row::ReaddirCold => names::list(place, end),
        Row::Rename => names::rename(place, scale, end),
        Row::Unlink => names::unlink(place, end),
        Row::Create4k => names::create(place, scale, 4096, end),
        Row::CreateParallel => names::create_parallel(place, scale, end),
        Row::UnlinkParallel => names::unlink_parallel(place, end),
    }
}

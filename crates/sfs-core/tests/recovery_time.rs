//! Cost of a mount after a crash: time in proportion to the log since the checkpoint, and memory within the budgets.
//!
//! `SFS_LOG_MIB` sets the size of the log. The documented limit is two seconds for 1024 MiB in an optimized build, which
//! `cargo xtask recovery` runs.

use std::env;
use std::fs;
use std::io::{Read, Write, stdin};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, FileEntry, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Size in MiB of the log that the test rolls forward without `SFS_LOG_MIB`.
const LOG_MIB: u64 = 16;

/// Size in MiB of the log for which [`TIME_MAX`] holds.
const LOG_MIB_LIMIT: u64 = 1024;
/// Maximum processor time for [`LOG_MIB_LIMIT`].
const TIME_MAX: Duration = Duration::from_secs(2);

/// Number of bytes allowed besides the budgets: for the usage table, the batch that is being read,
/// and the test itself.
const MEMORY_BESIDE_BUDGETS: u64 = 32 << 20;

/// Number of blocks that one message carries from process to process.
const MESSAGE_BLOCKS: u64 = 256;

/// Environment variable with the name of the load, set for the process that mounts.
const LOAD: &str = "SFS_RECOVERED_LOAD";

/// Name of the file that is synced last.
const LAST_NAME: &[u8] = b"the last";

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW, umask: None }
}

fn log_mib() -> u64 {
    match env::var("SFS_LOG_MIB") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SFS_LOG_MIB={text} is not a number")),
        Err(_) => LOG_MIB,
    }
}

fn open(device: &Arc<RamDevice>) -> Volume {
    Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("the volume opens")
}

/// Returns the number of blocks of a device that holds the log three times, so that no segment is
/// cleaned.
fn device_blocks() -> u64 {
    (3 * log_mib() + 512) << 20 >> 12
}

/// Volume in memory on which a load runs.
struct LoadedVolume {
    device: Arc<RamDevice>,
    volume: Volume,
    /// State of splitmix64.
    random: u64,
}

impl LoadedVolume {
    fn new() -> Self {
        let device = Arc::new(RamDevice::new(device_blocks()));
        let superblock = Superblock {
            uuid: *b"0123456789abcdef",
            label: Label::NONE,
            layout: Layout::new(device_blocks(), 2048, 0).expect("the layout fits"),
            hash_key: [1, 2],
            data_layout: Default::default(),
            created: NOW,
            ..Superblock::new(Layout::new(device_blocks(), 2048, 0).expect("the layout fits"))
        };
        make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("the volume is made");
        let volume = open(&device);
        Self { device, volume, random: 1 }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn create(&self, name: &[u8]) -> FileEntry {
        self.volume.make_node(ROOT_INO, name, 0o100_644, 0, &caller()).expect("a file")
    }

    fn write(&self, ino: u64, at: u64, bytes: &[u8]) {
        self.volume
            .write(ino, at, bytes, WriteMode::default(), &caller())
            .expect("the write succeeds");
    }

    fn sync(&self, ino: u64) {
        self.volume.sync_file(ino).expect("the sync succeeds");
    }

    /// Creates a file of `mib` MiB and writes a checkpoint, after which the log begins.
    fn settled_file(&mut self, mib: u64) -> u64 {
        let ino = self.create(b"file").ino;
        let bytes = vec![3; 1 << 20];
        (0..mib).for_each(|mib| self.write(ino, mib << 20, &bytes));
        self.volume.close().expect("the volume closes");
        self.volume = open(&self.device);
        ino
    }

    /// Repeats `step` until the log is long enough, and crashes. No checkpoint may cut the log short.
    fn fill(mut self, load: &str, mut step: impl FnMut(&mut Self, u64)) {
        let before = self.volume.counters();
        let log = |now: u64| (now - before.device_bytes_written) >> 20;
        for number in 0.. {
            step(&mut self, number);
            if log(self.volume.counters().device_bytes_written) >= log_mib() {
                break;
            }
        }
        self.sync(self.create(LAST_NAME).ino);
        let now = self.volume.counters();
        assert_eq!(now.checkpoints, before.checkpoints, "{load}: a checkpoint cuts the log short");
        self.crash(load);
    }

    /// Drops the volume, and mounts its device in a process of its own, so that memory of the load is not counted.
    fn crash(self, load: &str) {
        drop(self.volume);
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.args(["--exact", "a_log_is_rolled_forward_in_time_and_within_the_budgets"]);
        command.arg("--nocapture").env(LOAD, load).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the child process starts");
        let mut pipe = child.stdin.take().expect("a pipe");
        let mut message = Block::zeroed(MESSAGE_BLOCKS as usize);
        for address in (0..device_blocks()).step_by(MESSAGE_BLOCKS as usize) {
            let count = MESSAGE_BLOCKS.min(device_blocks() - address) as usize;
            self.device.read(address, &mut message[..count]).expect("a RAM device does not fail");
            let bytes = Block::bytes_of(&message[..count]);
            if bytes.iter().any(|byte| *byte != 0) {
                pipe.write_all(&address.to_le_bytes()).expect("the child process reads");
                pipe.write_all(bytes).expect("the child process reads");
            }
        }
        drop(pipe);
        let output = child.wait_with_output().expect("the child process ends");
        let output_text = String::from_utf8_lossy(&output.stdout);
        output_text
            .lines()
            .filter(|line| line.starts_with(load))
            .for_each(|line| println!("{line}"));
        assert!(output.status.success(), "{load}: {output_text}");
    }
}

/// Returns a copy of the device of the parent process, read from the standard input.
fn received() -> RamDevice {
    let device = RamDevice::new(device_blocks());
    let mut message = Block::zeroed(MESSAGE_BLOCKS as usize);
    let (mut pipe, mut address) = (stdin().lock(), [0; 8]);
    while pipe.read_exact(&mut address).is_ok() {
        let address = u64::from_le_bytes(address);
        let blocks = &mut message[..MESSAGE_BLOCKS.min(device_blocks() - address) as usize];
        pipe.read_exact(Block::bytes_of_mut(blocks)).expect("a whole message");
        device.write(address, &[blocks], Stream::default()).expect("a RAM device does not fail");
    }
    device
}

/// Mounts the device after the crash of `load`, and asserts that time and memory are within their limits.
fn recover(load: &str) {
    let device = Arc::new(received());
    let VolumeOptions { cache, write_buffer, .. } = VolumeOptions::default();
    let memory_before = memory("VmRSS:");
    let (since, before) = (Instant::now(), time_on_processor());
    let volume = open(&device);
    let elapsed = since.elapsed();
    let on_processor = time_on_processor().zip(before).map(|(now, before)| now - before);
    let memory = memory("VmHWM:").zip(memory_before).map(|(most, before)| most - before);
    let (took, log_mib) = (on_processor.unwrap_or(elapsed), log_mib());
    println!(
        "{load}: {log_mib} MiB of log, {:.2} s of processor in {:.2} s, {} MiB of memory",
        took.as_secs_f64(),
        elapsed.as_secs_f64(),
        memory.unwrap_or(0) >> 20,
    );
    let budget = (cache + write_buffer) as u64 + MEMORY_BESIDE_BUDGETS;
    assert!(memory.is_none_or(|memory| memory <= budget), "{memory:?} bytes of memory");
    if log_mib >= LOG_MIB_LIMIT && !cfg!(debug_assertions) {
        let allowed = TIME_MAX * log_mib as u32 / LOG_MIB_LIMIT as u32;
        assert!(took < allowed, "{took:?} for {log_mib} MiB of log");
    }
    volume.lookup(ROOT_INO, LAST_NAME).expect("the file exists");
}

/// Returns the processor time of this thread, from Linux. A device in memory never makes the mount wait, so this is the
/// time of the mount on an idle machine.
fn time_on_processor() -> Option<Duration> {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Returns a `field` of `/proc/self/status` in bytes: `VmRSS:` is the present memory of this process, `VmHWM:` the peak.
fn memory(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Overwrites blocks of a file at random, with a sync after every `synced` of them.
fn overwrite(load: &str, synced: u64) {
    let mut loaded = LoadedVolume::new();
    let mib = log_mib() / 2;
    let ino = loaded.settled_file(mib);
    loaded.fill(load, |loaded, number| {
        let block = loaded.below(mib << 20 >> 12);
        loaded.write(ino, block * BLOCK_SIZE as u64, &vec![number as u8; BLOCK_SIZE]);
        if number % synced == 0 {
            loaded.sync(ino);
        }
    });
}

/// Creates files of `len` bytes, with a sync after every `synced` of them.
fn create(load: &str, len: usize, synced: u64) {
    let bytes = vec![5; len];
    LoadedVolume::new().fill(load, |loaded, number| {
        let ino = loaded.create(format!("file-{number:08}").as_bytes()).ino;
        loaded.write(ino, 0, &bytes);
        if number % synced == 0 {
            loaded.sync(ino);
        }
        loaded.volume.forget(ino, 1);
    });
}

// One test runs all loads in turn: a machine may not have the memory for two at once.
#[test]
fn a_log_is_rolled_forward_in_time_and_within_the_budgets() {
    if let Ok(load) = env::var(LOAD) {
        return recover(&load);
    }
    overwrite("overwriting at random, a sync after each block", 1);
    overwrite("overwriting at random, a sync after 64 blocks", 64);
    create("creating empty files, a sync after each", 0, 1);
    create("creating files of 4 KiB, a sync after each", 4 << 10, 1);
    create("creating files of 16 KiB, a sync after 64", 16 << 10, 64);
}

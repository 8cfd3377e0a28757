//! `sfs-lab reproduce n-hybrid`: an SSD as a cache before a hard drive (N-hybrid), in virtual time.
//!
//! Hit ratios of the eviction policies over reads of traces and generators; a volume on the disk alone, on the SSD alone, and
//! on the disk with the SSD as its cache, by the library; and mounted filesystems on the exported models: the paper's figures 5
//! to 8 with Bonnie++, random reads, and figures 1 and 2. All times are of the models' clock.

mod bonnie;
mod file_sizes;
mod random_reads;
mod subjects;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustc_hash::FxHashSet;
use sfs_cache::{
    Cache, CachedDevice, ExtentKey, Identity as CacheIdentity, MakeOptions, PolicyName,
};
use sfs_core::Volume;
use sfs_core::format::{DataLayout, Label, ROOT_INO, Timestamp};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_device::{BLOCK_SIZE, Device};
use sfs_hdd::{DriveProfile, HardDrive, HddDevice};
use sfs_lab::block_trace::{BlockTrace, TraceFolder};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, table};
use sfs_lab::workload::{Workload, Zipf};
use sfs_mkfs::{Identity, VolumePlan, make_on, output};
use sfs_ssd::{ModelClock, RequestKind, Ssd, SsdDevice, SsdProfile, TimeMode};

/// Traces with reads; most of the others have nearly none.
const TRACES: [&str; 2] = ["cloudphysics-vm", "disksim-postmark"];

/// Sizes of caches, as divisors of the working set: the number of different blocks that are read.
const DIVISORS: [usize; 4] = [20, 10, 5, 2];

const MIB: u64 = 1 << 20;

/// Bytes of the file, of its part that is read at random, and of the devices.
const FILE_LEN: u64 = 256 * MIB;
const HOT_LEN: u64 = 32 * MIB;
const SSD_LEN: u64 = 512 * MIB;
const CACHE_LEN: u64 = 64 * MIB;

/// Random reads of a block that are timed.
const READS: u32 = 8_000;

/// Time of every request.
const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Parts to run.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "policies,volumes,bonnie,reads,sizes"
    )]
    parts: Vec<Part>,
    /// Folder of lab.md, whose sections are replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// A part of the experiment, with a section of its own in the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Hit ratios of the eviction policies.
    Policies,
    /// A volume on the models, by the library.
    Volumes,
    /// Figures 5 to 8 on mounted filesystems, with Bonnie++.
    Bonnie,
    /// Random reads from mounted filesystems.
    Reads,
    /// Figures 1 and 2: ext2 on the SSD over ext2 on the disk by the size of files.
    Sizes,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let document = arguments.docs.as_deref().map(Document::new);
    let document = document.as_ref();
    for part in &arguments.parts {
        let (section, text) = match part {
            Part::Policies => ("cache-policies", Some(hit_ratios(&arguments.traces)?)),
            Part::Volumes => ("n-hybrid", Some(volumes()?)),
            Part::Bonnie => ("n-hybrid-bonnie", bonnie::text(document)?),
            Part::Reads => ("n-hybrid-reads", random_reads::text()?),
            Part::Sizes => ("n-hybrid-sizes", file_sizes::text(document)?),
        };
        // A part that this machine cannot run keeps its section.
        let Some(text) = text else { continue };
        output::print(format_args!("{text}\n"))?;
        if let Some(document) = document {
            document.section(section, &text)?;
        }
    }
    Ok(())
}

/// A use of the cache.
#[derive(Clone, Copy)]
enum Use {
    Read(u64),
    Write(u64),
}

/// Returns the table of hit ratios.
fn hit_ratios(traces: &TraceFolder) -> Result<String> {
    let mut loads =
        vec![("zipf 0.9".to_owned(), zipf(0)), ("zipf 0.9, a quarter scans".to_owned(), zipf(4))];
    for name in TRACES {
        let Some(path) = traces.find(format!("{name}.csv.zst")) else { continue };
        loads.push((name.to_owned(), uses_of(&BlockTrace::open(&path)?, name)));
    }
    let names = PolicyName::ALL.map(|policy| policy.name().to_owned());
    let heading = [vec!["load".to_owned(), "working set".into(), "cache".into()], names.to_vec()];
    let mut rows = Vec::new();
    for (name, uses) in &loads {
        let read = uses.iter().filter_map(|used| match used {
            Use::Read(block) => Some(*block),
            Use::Write(_) => None,
        });
        let set = read.collect::<FxHashSet<_>>().len();
        for divisor in DIVISORS {
            let ratios =
                PolicyName::ALL.map(|policy| hit_ratio(policy, (set / divisor).max(1), uses));
            let mut row = vec![name.clone(), format!("{set}"), format!("1/{divisor}")];
            row.extend(ratios.map(|ratio| format!("{:.1}%", 100.0 * ratio)));
            rows.push(row);
        }
    }
    Ok(table(&heading.concat(), &rows))
}

/// Returns the requests of a trace by block of 4 KiB.
fn uses_of(trace: &BlockTrace, name: &str) -> Vec<Use> {
    // The partition of this machine began at sector 63: its blocks are seven sectors off.
    let shift = if name == TRACES[0] { 7 * 512 } else { 0 };
    let mut uses = Vec::new();
    for record in &trace.records {
        let start = record.offset.saturating_sub(shift);
        let blocks = start / BLOCK_SIZE as u64..(start + record.len).div_ceil(BLOCK_SIZE as u64);
        match record.kind {
            RequestKind::Read => uses.extend(blocks.map(Use::Read)),
            RequestKind::Write | RequestKind::Trim => uses.extend(blocks.map(Use::Write)),
            RequestKind::Flush => {}
        }
    }
    uses
}

/// Returns a million reads of 100,000 blocks by Zipf's law; with `scans`, one in so many belongs to a scan over a million others.
fn zipf(scans: u64) -> Vec<Use> {
    let mut reads = Zipf::new(0.9, 100_000, WorkloadRng::new(1));
    (0..1_000_000_u64)
        .map(|no| match scans {
            0 => Use::Read(u64::from(reads.next().block())),
            _ if no % scans == 0 => Use::Read(1_000_000 + no),
            _ => Use::Read(u64::from(reads.next().block())),
        })
        .collect()
}

/// Returns the share of reads that a cache of `capacity` blocks answers. A miss is cached, and a write forgets the block.
fn hit_ratio(policy: PolicyName, capacity: usize, uses: &[Use]) -> f64 {
    let (mut policy, mut cached) = (policy.policy(capacity), FxHashSet::default());
    let (mut hits, mut reads) = (0_u64, 0_u64);
    for used in uses {
        match used {
            Use::Write(block) => {
                if cached.remove(block) {
                    policy.remove(ExtentKey { object: 0, no: *block });
                }
            }
            Use::Read(block) => {
                let key = ExtentKey { object: 0, no: *block };
                reads += 1;
                if cached.contains(block) {
                    hits += 1;
                    policy.touch(key);
                    continue;
                }
                if policy.len() >= capacity
                    && let Some(evicted) = policy.evict(key)
                {
                    cached.remove(&evicted.no);
                }
                policy.insert(key);
                cached.insert(*block);
            }
        }
    }
    hits as f64 / reads.max(1) as f64
}

/// A volume on models of devices.
struct Rig {
    clock: ModelClock,
    volume: Volume,
    cache: Option<Arc<Cache>>,
    ssd: Option<Arc<SsdDevice>>,
}

/// Speeds of a volume in virtual time.
struct Figures {
    write_mb_s: f64,
    rewrite_mb_s: f64,
    sequential_read_mb_s: f64,
    cold_reads_s: f64,
    warm_reads_s: f64,
    ssd_written_mb: f64,
}

/// Returns the table of the volumes.
fn volumes() -> Result<String> {
    let [disk, ssd, both] = [
        measure(&mut Rig::on_disk()?)?,
        measure(&mut Rig::on_ssd()?)?,
        measure(&mut Rig::on_both()?)?,
    ];
    let heading = ["", "disk", "SSD", "disk and cache", "to the disk", "to the SSD"];
    let row = |name: &str, of: &dyn Fn(&Figures) -> f64| {
        let [disk, ssd, both] = [of(&disk), of(&ssd), of(&both)];
        let mut row = vec![name.to_owned()];
        row.extend([disk, ssd, both].map(|figure| format!("{figure:.1}")));
        row.extend([both / disk, both / ssd].map(|ratio| format!("{ratio:.2}")));
        row
    };
    let mut rows = vec![
        row("sequential write, MB/s", &|figures| figures.write_mb_s),
        row("sequential rewrite, MB/s", &|figures| figures.rewrite_mb_s),
        row("sequential read, MB/s", &|figures| figures.sequential_read_mb_s),
        row("random reads of 4 KiB a second, cold", &|figures| figures.cold_reads_s),
        row("random reads of 4 KiB a second, warm", &|figures| figures.warm_reads_s),
    ];
    let written = format!("{:.1}", both.ssd_written_mb);
    rows.push(["written to the cache, MB", "", "", &written, "", ""].map(str::to_owned).to_vec());
    Ok(table(&heading.map(str::to_owned), &rows))
}

fn disk_on(clock: &ModelClock) -> Result<Arc<HddDevice>> {
    let profile = DriveProfile::by_name("deskstar").context("a profile")?.with_capacity(1 << 30);
    Ok(Arc::new(HddDevice::with_clock(HardDrive::new(profile), clock.clone())))
}

fn ssd_on(clock: &ModelClock, len: u64) -> Result<Arc<SsdDevice>> {
    let profile = SsdProfile::by_name("ssd-m").context("a profile")?.with_cluster_size(MIB);
    let ssd = Ssd::new(&profile.with_capacity(len).config()).context("spare blocks")?;
    Ok(Arc::new(SsdDevice::with_clock(ssd, clock.clone())))
}

/// Makes a volume, with a cache if `cache_uuid` is one.
fn made(device: &Arc<dyn Device>, cache_uuid: Option<[u8; 16]>) -> Result<()> {
    let identity = Identity {
        uuid: *b"a modelled disk.",
        label: Label::NONE,
        hash_key: [1, 2],
        now: NOW,
        data_layout: DataLayout::Log,
        owner: (0, 0),
    };
    let mut plan = VolumePlan::new(device.geometry(), Some(MIB), &identity)?;
    plan.superblock.set_cache(cache_uuid);
    Ok(make_on(device.clone(), &plan, false)?)
}

/// Options with a small cache of nodes: those of the file are read from the devices, too.
fn options() -> VolumeOptions {
    VolumeOptions {
        cache: MIB as usize,
        epoch: [7; 16],
        discard: false,
        ..VolumeOptions::default()
    }
}

impl Rig {
    fn on(clock: ModelClock, device: Arc<dyn Device>) -> Result<Self> {
        made(&device, None)?;
        let volume = Volume::open(device, options(), NOW)?;
        Ok(Self { clock, volume, cache: None, ssd: None })
    }

    fn on_disk() -> Result<Self> {
        let clock = ModelClock::new(TimeMode::Virtual);
        Self::on(clock.clone(), disk_on(&clock)?)
    }

    fn on_ssd() -> Result<Self> {
        let clock = ModelClock::new(TimeMode::Virtual);
        Self::on(clock.clone(), ssd_on(&clock, SSD_LEN)?)
    }

    fn on_both() -> Result<Self> {
        let clock = ModelClock::new(TimeMode::Virtual);
        let disk: Arc<dyn Device> = disk_on(&clock)?;
        let ssd = ssd_on(&clock, CACHE_LEN)?;
        let (volume_uuid, cache_uuid) = (*b"a modelled disk.", *b"a modelled cache");
        made(&disk, Some(cache_uuid))?;
        let policy = PolicyName::default();
        let make = MakeOptions { volume_uuid, cache_uuid, sections: Vec::new(), policy };
        sfs_cache::make(&*ssd, &make)?;
        let of = CacheIdentity { volume_uuid, cache_uuid, epoch: [0; 16] };
        let cache = Arc::new(Cache::open(ssd.clone(), &of, u64::MAX)?);
        let device = Arc::new(CachedDevice::new(disk, cache.clone()));
        let volume = Volume::open(device, options(), NOW)?;
        cache.begin(options().epoch);
        Ok(Self { clock, volume, cache: Some(cache), ssd: Some(ssd) })
    }

    /// Does `work`, and returns the seconds that it took in virtual time.
    fn timed(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let began = self.clock.now_ns();
        work()?;
        Ok((self.clock.now_ns() - began) as f64 / 1e9)
    }

    /// Writes the file in order, and makes it durable.
    fn write(&self, ino: u64, byte: u8) -> Result<()> {
        for at in (0..FILE_LEN).step_by(MIB as usize) {
            let mut data = vec![byte; MIB as usize];
            data.chunks_mut(BLOCK_SIZE).enumerate().for_each(|(no, block)| {
                block[..8].copy_from_slice(&(at + no as u64).to_le_bytes());
            });
            self.volume.write(ino, at, &data, WriteMode::default(), &caller())?;
        }
        Ok(self.volume.sync_all()?)
    }

    /// Reads blocks of the hot part.
    fn read(&self, ino: u64, blocks: impl Iterator<Item = u32>) -> Result<()> {
        for block in blocks {
            let at = u64::from(block) * BLOCK_SIZE as u64;
            let content = self.volume.read(ino, at, BLOCK_SIZE)?;
            let of_block = at / MIB * MIB + at % MIB / BLOCK_SIZE as u64;
            ensure!(
                content.as_bytes()[..8] == of_block.to_le_bytes(),
                "block {block} has other content"
            );
            // The thread of the cache; here its requests take their time from the reads.
            while self.cache.as_ref().is_some_and(|cache| cache.work()) {}
        }
        Ok(())
    }
}

/// Returns who asks.
fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW, umask: None }
}

/// Writes, rewrites and reads a file.
fn measure(rig: &mut Rig) -> Result<Figures> {
    let ino = rig.volume.make_node(ROOT_INO, b"file", 0o100_644, 0, &caller())?.ino;
    let mb = FILE_LEN as f64 / 1e6;
    let write_mb_s = mb / rig.timed(|| rig.write(ino, 1))?;
    let rewrite_mb_s = mb / rig.timed(|| rig.write(ino, 2))?;
    let sequential_read_mb_s = mb
        / rig.timed(|| {
            for at in (0..FILE_LEN).step_by(MIB as usize) {
                rig.volume.read(ino, at, MIB as usize)?;
            }
            Ok(())
        })?;
    let blocks = (HOT_LEN / BLOCK_SIZE as u64) as u32;
    let mut random = WorkloadRng::new(1);
    let cold = random.permutation(blocks);
    let cold_reads_s = f64::from(blocks) / rig.timed(|| rig.read(ino, cold.into_iter()))?;
    let reads: Vec<u32> = (0..READS).map(|_| random.below(blocks)).collect();
    let warm_reads_s = f64::from(READS) / rig.timed(|| rig.read(ino, reads.into_iter()))?;
    let written =
        rig.ssd.as_ref().map_or(0, |ssd| ssd.with_model(|ssd| ssd.counters().host_bytes_written));
    Ok(Figures {
        write_mb_s,
        rewrite_mb_s,
        sequential_read_mb_s,
        cold_reads_s,
        warm_reads_s,
        ssd_written_mb: written as f64 / 1e6,
    })
}

//! Random damage to a volume that the filesystem itself has used: a repair ends, in bounded memory; what it
//! does not name is byte for byte what it was; a second run finds nothing, and the volume mounts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{FileKind, Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, Options, WriteMode, XattrMode};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};
use sfs_fsck::{FsckError, Loss, Repair, Repaired, repair};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 1, gid: 2, now: NOW };
const BLOCKS: u64 = 24_576;

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }
}

/// What every path led to: kind and inode number, and the content of files.
type Tree = BTreeMap<Vec<u8>, (u64, u32, Vec<u8>)>;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Some of everything, over several checkpoints, with part of it deleted and overwritten; and the device
/// as the last checkpoint left it.
fn used(is_closed: bool) -> (RamDevice, RamDevice) {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(BLOCKS, 128, 0).expect("it fits"),
        hash_key: [1, 2],
        created: NOW,
    };
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock, &root).expect("a volume is made");
    let mut checkpoint = device.snapshot();
    for round in 0..4 {
        let volume = Volume::open(device.clone(), Options::default(), NOW).expect("it opens");
        checkpoint = device.snapshot();
        use_volume(&volume, round).expect("the operations");
        if round < 3 || is_closed {
            volume.close().expect("it closes");
        } else {
            volume.sync_all().expect("a sync");
        }
    }
    (device.snapshot(), if is_closed { device.snapshot() } else { checkpoint })
}

fn use_volume(volume: &Volume, round: u64) -> sfs_core::Result<()> {
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    let directory = FileKind::Directory.mode_bits() | 0o755;
    let regular = FileKind::Regular.mode_bits() | 0o644;
    for at in 0..6u64 {
        let name = format!("directory {at}");
        let sub = match volume.lookup(ROOT_INO, name.as_bytes()) {
            Ok(entry) => entry.ino,
            Err(_) => volume.make_node(ROOT_INO, name.as_bytes(), directory, 0, &CALLER)?.ino,
        };
        for number in 0..60u64 {
            let name = format!("file {round} {number}");
            let ino = volume.make_node(sub, name.as_bytes(), regular, 0, &CALLER)?.ino;
            let len = (number * number * 31 + at * 1000) % 120_000;
            let byte = (number + round * 7 + at) as u8;
            volume.write(ino, (number % 3) * 5000, &vec![byte; len as usize], mode, &CALLER)?;
            if number % 9 == 0 {
                volume.set_xattr(ino, b"user.test", &vec![7; 3000], XattrMode::Any, &CALLER)?;
            }
            if number % 10 == 3 {
                let name = format!("link {round} {number}");
                volume.symlink(sub, name.as_bytes(), &vec![b'x'; 900 + at as usize], &CALLER)?;
            }
            if round > 0 && number % 4 == 1 {
                let old = format!("file {} {number}", round - 1);
                volume.unlink(sub, old.as_bytes(), &CALLER)?;
            }
            if round > 0 && number % 4 == 2 {
                let old = format!("file {} {number}", round - 1);
                let ino = volume.lookup(sub, old.as_bytes())?.ino;
                volume.write(ino, 4096, &[byte; 6000], mode, &CALLER)?;
            }
        }
    }
    Ok(())
}

/// A volume that was repaired can be used.
fn write_more(volume: &Volume) -> sfs_core::Result<()> {
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    for number in 0..100u64 {
        let name = format!("after {number}");
        let regular = FileKind::Regular.mode_bits() | 0o644;
        let ino = volume.make_node(ROOT_INO, name.as_bytes(), regular, 0, &CALLER)?.ino;
        volume.write(ino, 0, &vec![number as u8; 30_000], mode, &CALLER)?;
    }
    volume.sync_all()
}

/// Everything on a mounted volume; a file that cannot be read fails.
fn tree(device: Arc<RamDevice>) -> Tree {
    let options = Options { read_only: true, ..Options::default() };
    let volume = Volume::open(device, options, NOW).expect("it mounts");
    let mut tree = Tree::new();
    let mut rest = vec![(ROOT_INO, Vec::new())];
    while let Some((ino, path)) = rest.pop() {
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        let listed = volume.read_directory(ino, 0, false, &mut |entry| {
            entries.push((entry.ino, entry.name.to_vec()));
            true
        });
        listed.expect("a directory");
        for (ino, name) in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let path = [&path[..], b"/", &name].concat();
            let inode = volume.attributes(ino).expect("attributes");
            let content = match inode.kind() {
                FileKind::Directory => {
                    rest.push((ino, path.clone()));
                    Vec::new()
                }
                FileKind::Symlink => volume.read_link(ino).expect("a target"),
                _ => {
                    let read = volume.read(ino, 0, inode.size as usize);
                    read.expect("its content").as_bytes().to_vec()
                }
            };
            tree.insert(path, (ino, inode.mode, content));
        }
    }
    tree
}

fn block(device: &RamDevice, at: u64) -> Box<[Block]> {
    let mut block = Block::zeroed(1);
    device.read(at, &mut block).expect("RAM");
    block
}

/// Damages up to `count` blocks: noise, zeros, a flipped bit, or a block from elsewhere. Those written
/// since `checkpoint` are spared: a chunk that is not whole is where the log ends, whether it was torn
/// or has rotted.
fn damage(device: &RamDevice, checkpoint: &RamDevice, count: u64, random: &mut Random) {
    for _ in 0..count {
        // The superblocks are tried elsewhere: if both go, nothing is left to repair.
        let at = 16 + random.below(BLOCKS - 17);
        let mut block = block(device, at);
        if block != self::block(checkpoint, at) {
            continue;
        }
        match random.below(4) {
            0 => block[0].0.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            1 => block[0].0.fill(0),
            2 => {
                let bit = random.below(BLOCK_SIZE as u64 * 8) as usize;
                block[0].0[bit / 8] ^= 1 << (bit % 8);
            }
            _ => device.read(16 + random.below(BLOCKS - 17), &mut block).expect("RAM"),
        }
        device.write(at, &[&block], Stream::default()).expect("RAM");
    }
}

/// Whether `path`, which led to `ino`, is named: itself, or a directory on the way.
fn is_named(losses: &[Loss], inos: &BTreeMap<Vec<u8>, u64>, path: &[u8], ino: u64) -> bool {
    let named = |ino: u64| losses.iter().any(|loss| loss.ino() == Some(ino));
    let target = |loss: &Loss| matches!(loss, Loss::File { target, .. } if *target == ino);
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut parents = ends.filter_map(|end| inos.get(&path[..end]));
    named(ino) || named(ROOT_INO) || losses.iter().any(target) || parents.any(|ino| named(*ino))
}

fn run(device: &Arc<RamDevice>) -> Result<Repaired, FsckError> {
    let shared: Arc<dyn Device> = device.clone();
    let options = Repair { data: true, preen: false, now: NOW };
    let mut steps = 0u64;
    let result = repair(&shared, &options, &mut |_| {
        steps += 1;
        ControlFlow::Continue(())
    });
    assert!(steps < 100_000, "{steps} steps");
    result
}

fn try_damage(
    (base, checkpoint): (&RamDevice, &RamDevice),
    original: &Tree,
    count: u64,
    seed: u64,
) {
    let mut random = Random(seed);
    let device = Arc::new(base.snapshot());
    damage(&device, checkpoint, count, &mut random);
    let repaired = run(&device).expect("a repair");
    let left = repaired.after.as_ref().unwrap_or(&repaired.before);
    assert_eq!(left.errors(), 0, "left: {:?}", left.findings.kept());
    let again = run(&device).expect("a second look");
    assert_eq!(again.before.errors(), 0, "again: {:?}", again.before.findings.kept());

    let now = tree(device.clone());
    let inos = original.iter().map(|(path, (ino, ..))| (path.clone(), *ino)).collect();
    for (path, (ino, mode, content)) in original {
        if is_named(&repaired.losses, &inos, path, *ino) {
            continue;
        }
        let found = now.get(path);
        let name = path.escape_ascii();
        let (_, found_mode, found) =
            found.unwrap_or_else(|| panic!("{name} ({ino}) is gone: {:?}", repaired.losses));
        assert!(found == content && found_mode == mode, "{name}: {:?}", repaired.losses);
    }
    let volume = Volume::open(device.clone(), Options::default(), NOW).expect("it mounts");
    assert_eq!(volume.audit().expect("it counts"), []);
    write_more(&volume).expect("it can be written");
    volume.close().expect("it closes");
    let report = run(&device).expect("a last look").before;
    assert_eq!(report.errors(), 0, "used: {:?}", report.findings.kept());
}

#[test]
fn random_damage_is_repaired_and_named() {
    let runs = if std::env::var_os("SFS_SEED").is_some() { 1 } else { number("SFS_RUNS", 4) };
    let first = number("SFS_SEED", 1);
    for is_closed in [true, false] {
        let (base, checkpoint) = used(is_closed);
        let original = tree(Arc::new(base.snapshot()));
        assert!(original.len() > 1000);
        for seed in (first..).take(runs as usize) {
            for count in [1, 10, 100, 1000] {
                println!(
                    "SFS_SEED={seed} cargo test -p sfs-fsck --test damage ({count} blocks, closed {is_closed})"
                );
                try_damage((&base, &checkpoint), &original, count, seed);
            }
        }
    }
}

//! Tests with volumes made by version 1 programs (`version_1/make.sh`): reading, upgrading, and crashes at every
//! request of the upgrade.

use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{
    FileKind, LOCATOR_ADDRESS, Label, ROOT_INO, SUPERBLOCK_ADDRESS, Superblock,
};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_device::{BLOCK_SIZE, Block, Device, Event, Keep, RecordingDevice, Stream};
use sfs_sim::crash::{Crash, RequestEffect, apply, epochs, states_of};
use sfs_sim::image::CowImage;
use sfs_sim::model::digest::capture;
use sfs_sim::model::fixture::{FILE, after, tight};
use sfs_sim::model::random::SplitMix64;
use sfs_sim::model::reference::{Reference, ReferenceNode};
use sfs_sim::version_1::{self, OpenDecision};

/// Volume of version 1 with its expected content.
struct Fixture {
    name: &'static str,
    packed: &'static [u8],
    /// Packed superblock of the upgraded volume.
    superblock: &'static [u8],
    list: &'static str,
}

macro_rules! fixture {
    ($name:literal, $superblock:literal) => {
        Fixture {
            name: $name,
            packed: include_bytes!(concat!("version_1/", $name, ".image")),
            superblock: include_bytes!(concat!("version_1/", $superblock, ".superblock")),
            list: include_str!(concat!("version_1/", $name, ".list")),
        }
    };
}

const FIXTURES: [Fixture; 3] =
    [fixture!("clean", "log"), fixture!("log", "log"), fixture!("placed", "placed")];

impl Fixture {
    fn image(&self) -> CowImage {
        unpack(self.packed)
    }

    /// Returns the address of the backup superblock.
    fn backup(&self) -> u64 {
        number(&mut &*self.packed, 4) - 1
    }

    /// Returns the superblock of version 2, which `version_1/pack.py` made according to FORMAT.md.
    fn upgraded(&self) -> [u8; BLOCK_SIZE] {
        *unpack(self.superblock).block(SUPERBLOCK_ADDRESS)
    }

    /// Returns the image after `count` steps of the upgrade: the locator, the first copy, the backup.
    fn after_steps(&self, count: usize) -> CowImage {
        let image = self.image();
        for at in [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, self.backup()].into_iter().take(count) {
            image.edit(at, |block| *block = self.upgraded());
        }
        image
    }
}

/// Unpacks an image that `pack.py` packed.
fn unpack(mut packed: &[u8]) -> CowImage {
    let image = CowImage::new(number(&mut packed, 4));
    while !packed.is_empty() {
        let (address, len) = (number(&mut packed, 4), number(&mut packed, 2));
        let (mut block, rest) = packed.split_at(len as usize);
        packed = rest;
        let mut bytes = Vec::with_capacity(BLOCK_SIZE);
        while let [count, rest @ ..] = block {
            let (from, len) = match *count {
                literal @ ..128 => (usize::from(literal) + 1, 1),
                run => (1, 257 - usize::from(run)),
            };
            let (content, rest) = rest.split_at(from);
            (0..len).for_each(|_| bytes.extend_from_slice(content));
            block = rest;
        }
        image.edit(address, |block| block.copy_from_slice(&bytes));
    }
    image
}

/// Removes the first `len` bytes of `bytes`, and returns them as a little-endian number.
fn number(bytes: &mut &[u8], len: usize) -> u64 {
    let (digits, rest) = bytes.split_at(len);
    *bytes = rest;
    digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit))
}

/// Lists the content of `volume` in the form of `NAME.list`.
fn list(volume: &Volume) -> String {
    let reference = capture(volume, true);
    let mut lines = vec![line("/", &reference.nodes[&ROOT_INO])];
    list_below(&reference, ROOT_INO, "", &mut lines);
    lines.sort();
    lines.concat()
}

fn list_below(reference: &Reference, ino: u64, path: &str, lines: &mut Vec<String>) {
    for (name, child) in &reference.nodes[&ino].entries {
        let path = format!("{path}/{}", String::from_utf8_lossy(name));
        lines.push(line(&path, &reference.nodes[child]));
        list_below(reference, *child, &path, lines);
    }
}

fn line(path: &str, node: &ReferenceNode) -> String {
    let (size, mut content) = match node.kind() {
        FileKind::Directory => (0, Vec::new()),
        FileKind::Symlink => (node.target.len() as u64, node.target.clone()),
        _ => (node.size(), node.content.read(0, node.size() as usize)),
    };
    for (name, value) in &node.xattrs {
        content.extend([b"\0", &name[..], b"\0", &value[..]].concat());
    }
    let checksum = crc32c::crc32c(&content);
    let mut line = String::new();
    writeln!(line, "{path} {:o} {} {size} {checksum:08x}", node.mode, node.links).expect("a line");
    line
}

fn check(image: &CowImage) {
    let report = sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.expect("a volume");
    assert_eq!(report.errors(), 0, "{:?}", report.findings.kept());
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Volume {
    let options = VolumeOptions { read_only, ..tight() };
    Volume::open(device, options, after(0)).expect("the volume mounts")
}

fn superblock(image: &CowImage, at: u64) -> Superblock {
    Superblock::decode(&image.block(at), at).expect("a superblock")
}

/// Checks `image`, then mounts it read-only, for writing, and again for writing.
///
/// Asserts that each mount has the content of `fixture`, and that both superblocks have version 2 and
/// `generation` afterwards.
fn assert_upgrades_whole(fixture: &Fixture, image: &CowImage, generation: u64) {
    check(image);
    let device = Arc::new(RecordingDevice::new(image.clone(), Keep::Requests));
    let volume = open(device.clone(), true);
    assert_eq!(list(&volume), fixture.list);
    assert_eq!(volume.upgraded_from(), None);
    drop(volume);
    assert_eq!(device.take_events(), [], "a read-only mount writes nothing");

    let device = Arc::new(image.clone());
    let volume = open(device.clone(), false);
    assert_eq!(list(&volume), fixture.list);
    let caller = Caller { uid: 0, gid: 0, now: after(0), umask: None };
    let made = volume.make_node(ROOT_INO, b"after", FILE, 0, &caller).expect("a file");
    volume.write(made.ino, 0, &[7; 9000], WriteMode::default(), &caller).expect("a write");
    volume.unlink(ROOT_INO, b"after", &caller).expect("an unlink");
    volume.forget(made.ino, 1);
    volume.close().expect("the volume closes");
    drop(volume);
    check(&device);
    for at in [SUPERBLOCK_ADDRESS, fixture.backup()] {
        let superblock = superblock(&device, at);
        assert_eq!((superblock.version, superblock.generation), (2, generation));
    }
    let again = open(device, false);
    assert_eq!(list(&again), fixture.list);
    assert_eq!(again.upgraded_from(), None);
}

#[test]
fn version_1_is_read_as_it_is_and_upgraded_by_the_first_mount_for_writing() {
    for fixture in FIXTURES {
        println!("{}", fixture.name);
        let image = fixture.image();
        assert_eq!(superblock(&image, SUPERBLOCK_ADDRESS).version, 1);
        assert_eq!(version_1::choose(&image), OpenDecision::Volume(SUPERBLOCK_ADDRESS));
        let volume = open(Arc::new(image.clone()), false);
        assert_eq!(volume.upgraded_from(), Some(1));
        assert_eq!(volume.label().as_str(), "version 1");
        drop(volume);
        assert_upgrades_whole(&fixture, &image, 1);
    }
}

/// The bytes of each step were made according to FORMAT.md, not by the upgrade itself.
#[test]
fn each_step_of_an_upgrade_is_a_volume() {
    for fixture in FIXTURES {
        for steps in 1..=3 {
            println!("{}, {steps} steps", fixture.name);
            assert_upgrades_whole(&fixture, &fixture.after_steps(steps), 1);
        }
    }
}

/// Mounts `image` for writing, closes it, and returns the requests to the device.
fn recorded_mount(image: &CowImage) -> Vec<Event> {
    let device = Arc::new(RecordingDevice::new(image.clone(), Keep::Contents));
    let volume = open(device.clone(), false);
    volume.close().expect("the volume closes");
    drop(volume);
    device.take_events()
}

/// The superblocks are written first, in the order that makes version 1 programs refuse all later states.
#[test]
fn an_upgrade_writes_the_documented_bytes_in_the_documented_order() {
    for fixture in FIXTURES {
        let events = recorded_mount(&fixture.image());
        let mut writes = Vec::new();
        for event in &events {
            match event {
                Event::Write { range, content, .. } => {
                    let content = content.as_ref().expect("contents are recorded");
                    writes.push(Some((range.address, content[0].0)));
                }
                Event::Flush => writes.push(None),
                Event::Discard { .. } => panic!("the upgrade discards nothing"),
            }
            if writes.len() == 7 {
                break;
            }
        }
        let copy = |at| Some((at, fixture.upgraded()));
        let expected = [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, fixture.backup()]
            .map(copy)
            .map(|copy| [copy, None]);
        // A flush comes first, because an earlier mount may have left writes in the cache of the device.
        assert!(writes[0].is_none());
        assert!(writes[1..] == expected.concat(), "{}", fixture.name);
    }
}

/// Number of torn states of each request of a short epoch.
const TEARS: usize = 10;

/// Maximum number of requests in a short epoch, such as a write of a superblock. Every subset of
/// these requests is a state.
const SHORT_MAX: usize = 3;

/// Number of random states of a longer epoch.
const SAMPLE: usize = 12;

fn states(epoch: &Range<usize>, random: &mut SplitMix64) -> Vec<Crash> {
    match epoch.len() {
        ..=SHORT_MAX => states_of(epoch, 0, TEARS, random),
        _ => (0..SAMPLE).map(|_| Crash::random(epoch.clone(), random)).collect(),
    }
}

/// Crashes a mount of `image` (of `fixture`, perhaps damaged or enlarged) at every request.
///
/// Asserts that no state loses anything, and that version 1 either finds its volume unchanged or refuses it.
/// Returns the number of states.
fn crash_everywhere(fixture: &Fixture, image: &CowImage, refusals: &[OpenDecision]) -> usize {
    let events = recorded_mount(image);
    let mut random = SplitMix64::new(1);
    let mut count = 0;
    let durable = image.clone();
    let mut done = 0;
    for epoch in epochs(&events) {
        events[done..epoch.start]
            .iter()
            .for_each(|event| apply(&durable, event, RequestEffect::Done));
        done = epoch.start;
        for crash in states(&epoch, &mut random) {
            let state = crash.image(&durable, &events);
            count += 1;
            match version_1::choose(&state) {
                OpenDecision::Volume(_) => {
                    assert!(is_untouched(fixture, image, &state), "{crash:?}")
                }
                refusal => assert!(refusals.contains(&refusal), "{crash:?}: {refusal:?}"),
            }
            check(&state);
            let device = Arc::new(state);
            let volume = open(device.clone(), false);
            assert_eq!(list(&volume), fixture.list, "{crash:?}");
            volume.close().expect("the volume closes");
            drop(volume);
            check(&device);
            assert_eq!(superblock(&device, SUPERBLOCK_ADDRESS).version, 2);
            assert_eq!(superblock(&device, fixture.backup()).version, 2);
        }
    }
    count
}

/// Returns whether `state` differs from `image` only in copies of the superblock and in the locator.
fn is_untouched(fixture: &Fixture, image: &CowImage, state: &CowImage) -> bool {
    let copies = [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, fixture.backup()];
    let last = image.geometry().block_count - 1;
    (0..=last).all(|at| copies.contains(&at) || state.same_block(image, at))
}

#[test]
fn a_crash_of_an_upgrade_loses_nothing_and_version_1_refuses_a_changed_volume() {
    for fixture in FIXTURES {
        let count = crash_everywhere(&fixture, &fixture.image(), &[OpenDecision::Newer(2)]);
        println!("{}: {count} states", fixture.name);
        assert!(count > 50, "{}: {count} states", fixture.name);
    }
}

/// The upgrade writes the damaged copy first.
#[test]
fn a_crash_of_an_upgrade_with_a_damaged_superblock_loses_nothing() {
    let [_, fixture, _] = FIXTURES;
    for at in [SUPERBLOCK_ADDRESS, fixture.backup()] {
        let image = fixture.image();
        image.edit(at, |block| block[100] ^= 1);
        let count = crash_everywhere(&fixture, &image, &[OpenDecision::Newer(2)]);
        println!("{count} states with block {at} damaged");
    }
}

/// On a larger device, the backup is not the last block and is found through the locator. Version 1 considers a
/// torn first copy damaged there, and refuses the volume as well.
#[test]
fn a_crash_of_an_upgrade_on_a_larger_device_loses_nothing() {
    let [fixture, ..] = FIXTURES;
    let image = fixture.image();
    let larger = CowImage::new(image.geometry().block_count + 777);
    let mut blocks = Block::zeroed(image.geometry().block_count as usize);
    image.read(0, &mut blocks).expect("the image");
    larger.write(0, &[&blocks], Stream::default()).expect("the image");
    let refusals = [OpenDecision::Newer(2), OpenDecision::Damaged];
    println!("{} states", crash_everywhere(&fixture, &larger, &refusals));
}

/// A version 1 program refuses the volume after every change by the current version.
#[test]
fn version_1_refuses_every_volume_of_version_2() {
    for fixture in FIXTURES {
        let device = Arc::new(fixture.image());
        let volume = open(device.clone(), false);
        for no in 0..3 {
            let label = Label::new(&format!("name {no}")).expect("a label");
            volume.set_label(label).expect("a new name");
            assert_eq!(version_1::choose(&device), OpenDecision::Newer(2));
            let copy = open(Arc::new(CowImage::clone(&device)), true);
            assert_eq!(copy.label(), label);
        }
        volume.close().expect("the volume closes");
        assert_eq!(version_1::choose(&device), OpenDecision::Newer(2));
        // The backup is refused as well if the first copy is damaged.
        device.edit(SUPERBLOCK_ADDRESS, |block| block[100] ^= 1);
        assert_eq!(version_1::choose(&device), OpenDecision::Newer(2));
    }
}

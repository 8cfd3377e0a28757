//! Volumes that programs of version 1 have made (`version_1/make.sh`): read as they are, upgraded, and crashed at
//! every request of the upgrade.

use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{
    FileKind, LOCATOR_ADDRESS, Label, ROOT_INO, SUPERBLOCK_ADDRESS, Superblock,
};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_device::{BLOCK_SIZE, Block, Device, Event, Keep, RecordingDevice, Stream};
use sfs_sim::crash::{Crash, Fate, apply, epochs, states_of};
use sfs_sim::image::Image;
use sfs_sim::model::digest::capture;
use sfs_sim::model::random::Random;
use sfs_sim::model::reference::{Node, Reference};
use sfs_sim::model::rig::{FILE, after, tight};
use sfs_sim::version_1::{self, Choice};

/// A volume of version 1.
struct Fixture {
    name: &'static str,
    packed: &'static [u8],
    /// The superblock as version 2 has it.
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
    fn image(&self) -> Image {
        unpack(self.packed)
    }

    /// Block of the backup.
    fn backup(&self) -> u64 {
        number(&mut &*self.packed, 4) - 1
    }

    /// The superblock of version 2, made from the document by `version_1/pack.py`.
    fn upgraded(&self) -> [u8; BLOCK_SIZE] {
        *unpack(self.superblock).block(SUPERBLOCK_ADDRESS)
    }

    /// The image after so many steps of an upgrade: the locator, the first copy, the backup.
    fn after_steps(&self, count: usize) -> Image {
        let image = self.image();
        for at in [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, self.backup()].into_iter().take(count) {
            image.edit(at, |block| *block = self.upgraded());
        }
        image
    }
}

/// The image that `pack.py` has packed.
fn unpack(mut packed: &[u8]) -> Image {
    let image = Image::new(number(&mut packed, 4));
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

/// The little-endian number in the first `len` of `bytes`, which begin behind it afterwards.
fn number(bytes: &mut &[u8], len: usize) -> u64 {
    let (digits, rest) = bytes.split_at(len);
    *bytes = rest;
    digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit))
}

/// What is in `volume`, in the form of `NAME.list`.
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

fn line(path: &str, node: &Node) -> String {
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

fn check(image: &Image) {
    let report = sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.expect("a volume");
    assert_eq!(report.errors(), 0, "{:?}", report.findings.kept());
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Volume {
    let options = VolumeOptions { read_only, ..tight() };
    Volume::open(device, options, after(0)).expect("it mounts")
}

fn superblock(image: &Image, at: u64) -> Superblock {
    Superblock::decode(&image.block(at), at).expect("a superblock")
}

/// Checks `image`, mounts it read-only, for writing, and again: each time all of `fixture` is there, and in the
/// end the volume is one of version 2, `generation` times changed.
fn expect_whole(fixture: &Fixture, image: &Image, generation: u64) {
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
    let caller = Caller { uid: 0, gid: 0, now: after(0) };
    let made = volume.make_node(ROOT_INO, b"after", FILE, 0, &caller).expect("a file");
    volume.write(made.ino, 0, &[7; 9000], WriteMode::default(), &caller).expect("a write");
    volume.unlink(ROOT_INO, b"after", &caller).expect("it is gone");
    volume.forget(made.ino, 1);
    volume.close().expect("it closes");
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
        assert_eq!(version_1::choose(&image), Choice::Volume(SUPERBLOCK_ADDRESS));
        let volume = open(Arc::new(image.clone()), false);
        assert_eq!(volume.upgraded_from(), Some(1));
        assert_eq!(volume.label().as_str(), "version 1");
        drop(volume);
        expect_whole(&fixture, &image, 1);
    }
}

/// Every step that a crash may leave is a volume, whose bytes were made from the document.
#[test]
fn each_step_of_an_upgrade_is_a_volume() {
    for fixture in FIXTURES {
        for steps in 1..=3 {
            println!("{}, {steps} steps", fixture.name);
            expect_whole(&fixture, &fixture.after_steps(steps), 1);
        }
    }
}

/// A mount of `image` for writing, and what is asked of the device.
fn recorded_mount(image: &Image) -> Vec<Event> {
    let device = Arc::new(RecordingDevice::new(image.clone(), Keep::Contents));
    let volume = open(device.clone(), false);
    volume.close().expect("it closes");
    drop(volume);
    device.take_events()
}

/// The superblocks come first, in the order that keeps programs of version 1 away from all that follows.
#[test]
fn an_upgrade_writes_the_documented_bytes_in_the_documented_order() {
    for fixture in FIXTURES {
        let events = recorded_mount(&fixture.image());
        let mut writes = Vec::new();
        for event in &events {
            match event {
                Event::Write { extent, content, .. } => {
                    let content = content.as_ref().expect("contents are recorded");
                    writes.push(Some((extent.address, content[0].0)));
                }
                Event::Flush => writes.push(None),
                Event::Discard { .. } => panic!("nothing is let go of"),
            }
            if writes.len() == 7 {
                break;
            }
        }
        let copy = |at| Some((at, fixture.upgraded()));
        let expected = [LOCATOR_ADDRESS, SUPERBLOCK_ADDRESS, fixture.backup()]
            .map(copy)
            .map(|copy| [copy, None]);
        // What an earlier mount may have left in the device's cache comes before all.
        assert!(writes[0].is_none());
        assert!(writes[1..] == expected.concat(), "{}", fixture.name);
    }
}

/// Torn states of each request of a short epoch.
const TEARS: usize = 10;

/// Requests of a short epoch, as those of the superblocks are: every subset is a state.
const SHORT_MAX: usize = 3;

/// States of an epoch that is longer.
const SAMPLE: usize = 12;

fn states(epoch: &Range<usize>, random: &mut Random) -> Vec<Crash> {
    match epoch.len() {
        ..=SHORT_MAX => states_of(epoch, 0, TEARS, random),
        _ => (0..SAMPLE).map(|_| Crash::random(epoch.clone(), random)).collect(),
    }
}

/// Crashes a mount of `image` (of `fixture`, perhaps damaged or enlarged) at every request, in every order that
/// a device may choose, torn: nothing is lost, and version 1 sees its volume as it was, or refuses. Gives the
/// number of states.
fn crash_everywhere(fixture: &Fixture, image: &Image, refusals: &[Choice]) -> usize {
    let events = recorded_mount(image);
    let mut random = Random::new(1);
    let mut count = 0;
    let durable = image.clone();
    let mut done = 0;
    for epoch in epochs(&events) {
        events[done..epoch.start].iter().for_each(|event| apply(&durable, event, Fate::Done));
        done = epoch.start;
        for crash in states(&epoch, &mut random) {
            let state = crash.image(&durable, &events);
            count += 1;
            match version_1::choose(&state) {
                Choice::Volume(_) => assert!(is_untouched(fixture, image, &state), "{crash:?}"),
                refusal => assert!(refusals.contains(&refusal), "{crash:?}: {refusal:?}"),
            }
            check(&state);
            let device = Arc::new(state);
            let volume = open(device.clone(), false);
            assert_eq!(list(&volume), fixture.list, "{crash:?}");
            volume.close().expect("it closes");
            drop(volume);
            check(&device);
            assert_eq!(superblock(&device, SUPERBLOCK_ADDRESS).version, 2);
            assert_eq!(superblock(&device, fixture.backup()).version, 2);
        }
    }
    count
}

/// Whether all but copies of the superblock, and the locator, is in `state` as in `image`.
fn is_untouched(fixture: &Fixture, image: &Image, state: &Image) -> bool {
    let copies = [SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, fixture.backup()];
    let last = image.geometry().block_count - 1;
    (0..=last).all(|at| copies.contains(&at) || state.same_block(image, at))
}

#[test]
fn a_crash_of_an_upgrade_loses_nothing_and_version_1_refuses_what_has_changed() {
    for fixture in FIXTURES {
        let count = crash_everywhere(&fixture, &fixture.image(), &[Choice::Newer(2)]);
        println!("{}: {count} states", fixture.name);
        assert!(count > 50, "{}: {count} states", fixture.name);
    }
}

/// The copy that is damaged is written first.
#[test]
fn a_crash_of_an_upgrade_with_a_damaged_superblock_loses_nothing() {
    let [_, fixture, _] = FIXTURES;
    for at in [SUPERBLOCK_ADDRESS, fixture.backup()] {
        let image = fixture.image();
        image.edit(at, |block| block[100] ^= 1);
        let count = crash_everywhere(&fixture, &image, &[Choice::Newer(2)]);
        println!("{count} states with block {at} damaged");
    }
}

/// The last block of the device is not the backup then: the locator leads to it. Version 1 takes a first copy
/// that is torn for damage there, and refuses the volume, too.
#[test]
fn a_crash_of_an_upgrade_on_a_larger_device_loses_nothing() {
    let [fixture, ..] = FIXTURES;
    let image = fixture.image();
    let larger = Image::new(image.geometry().block_count + 777);
    let mut blocks = Block::zeroed(image.geometry().block_count as usize);
    image.read(0, &mut blocks).expect("the image");
    larger.write(0, &[&blocks], Stream::default()).expect("the image");
    let refusals = [Choice::Newer(2), Choice::Damaged];
    println!("{} states", crash_everywhere(&fixture, &larger, &refusals));
}

/// Every program of version 1 that finds the volume that this one has left refuses it.
#[test]
fn version_1_refuses_every_volume_of_version_2() {
    for fixture in FIXTURES {
        let device = Arc::new(fixture.image());
        let volume = open(device.clone(), false);
        for no in 0..3 {
            let label = Label::new(&format!("name {no}")).expect("a label");
            volume.set_label(label).expect("a new name");
            assert_eq!(version_1::choose(&device), Choice::Newer(2));
            let left = open(Arc::new(Image::clone(&device)), true);
            assert_eq!(left.label(), label);
        }
        volume.close().expect("it closes");
        assert_eq!(version_1::choose(&device), Choice::Newer(2));
        // Not even its backup, when the first copy is damaged.
        device.edit(SUPERBLOCK_ADDRESS, |block| block[100] ^= 1);
        assert_eq!(version_1::choose(&device), Choice::Newer(2));
    }
}

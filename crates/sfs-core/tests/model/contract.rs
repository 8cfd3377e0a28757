//! Sentences 1 and 4 of the durability contract (docs/SEMANTICS.md), which a few steps can prove. Random runs in
//! `sfs-sim` prove the others.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::ROOT_INO;
use sfs_core::request::{AttributeChanges, RenameMode, VolumeOptions, WriteMode};
use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

use crate::digest::{capture, of_reference};
use crate::fixture::{DIRECTORY, FILE, SEGMENT_BLOCKS, caller, open, ram, tight};
use crate::random::SplitMix64;

type Recorder = RecordingDevice<RamDevice>;

fn recorder() -> (RamDevice, Arc<Recorder>) {
    let base = ram(8 << 20, SEGMENT_BLOCKS);
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    (base, device)
}

fn make(volume: &Volume, parent: u64, name: &[u8], mode: u32) -> u64 {
    volume.make_node(parent, name, mode, 0, &caller()).expect("the file is created").ino
}

fn write(volume: &Volume, ino: u64, bytes: &[u8]) {
    volume.write(ino, 0, bytes, WriteMode::default(), &caller()).expect("a write");
}

fn content(volume: &Volume, name: &[u8]) -> Option<Vec<u8>> {
    let entry = volume.lookup(ROOT_INO, name).ok()?;
    Some(volume.read(entry.ino, 0, 8 << 20).expect("the read succeeds").as_bytes().to_vec())
}

/// Returns images of crashes after each of `events`: with all requests before, with the flushed ones only, and with
/// random subsets of the requests after the flush.
fn crashes(base: &RamDevice, events: &[Event]) -> Vec<RamDevice> {
    let mut random = SplitMix64::new(1);
    let mut images = Vec::new();
    for issued in 0..=events.len() {
        let before = &events[..issued];
        let flushed =
            before.iter().rposition(|event| *event == Event::Flush).map_or(0, |at| at + 1);
        let (durable, rest) = before.split_at(flushed);
        images.push(image_after(base, before));
        images.push(image_after(base, durable));
        for _ in 0..4 {
            let some = rest.iter().filter(|_| random.one_in(2));
            images.push(image_after(base, durable.iter().chain(some)));
        }
    }
    images
}

/// "`fsync(file)` and `fsync(dir)` return after every namespace operation issued before them, and
/// the file's own data, are on the device, past a flush."
#[test]
fn fsync_covers_every_name_before_it() {
    let (base, device) = recorder();
    let volume = open(device.clone(), tight());
    let directory = make(&volume, ROOT_INO, b"d", DIRECTORY);
    let file = make(&volume, directory, b"f", FILE);
    let bytes = SplitMix64::new(2).bytes(100_000);
    write(&volume, file, &bytes);
    volume.link(file, ROOT_INO, b"g", &caller()).expect("a link");
    for ino in [file, directory] {
        let name = format!("before-{ino}");
        make(&volume, ROOT_INO, name.as_bytes(), FILE);
        volume.rename(directory, b"f", directory, b"h", RenameMode::Replace, &caller()).ok();
        volume.sync_file(ino).expect("a sync");
        let events = device.events();
        assert_eq!(events.last(), Some(&Event::Flush), "nothing is written after the flush");
        let image = Arc::new(image_after(&base, &events));
        let recovered = open(image, tight());
        let (found, expected) = (capture(&recovered, false), capture(&volume, false));
        assert_eq!(of_reference(&found), of_reference(&expected));
        assert_eq!(content(&recovered, b"g").as_deref(), Some(&bytes[..]));
    }
}

/// "`rename` over an existing file [...] never leave[s] an empty file behind when the new data had
/// been closed before."
#[test]
fn a_file_renamed_over_another_has_its_data() {
    for (len, mode) in [500, 5000, 200_000]
        .into_iter()
        .flat_map(|len| [(len, RenameMode::Replace), (len, RenameMode::Exchange)])
    {
        let (base, device) = recorder();
        let volume = open(device.clone(), tight());
        let target = make(&volume, ROOT_INO, b"target", FILE);
        write(&volume, target, &vec![1; len]);
        volume.sync_all().expect("a sync");
        let (first, other) = (device.event_count(), make(&volume, ROOT_INO, b"other", FILE));
        let new = make(&volume, ROOT_INO, b"new", FILE);
        write(&volume, new, &vec![2; len]);
        volume.forget(new, 1);
        volume.rename(ROOT_INO, b"new", ROOT_INO, b"target", mode, &caller()).expect("a rename");
        // Another file is synced, not the renamed one.
        volume.sync_file(other).expect("a sync");
        let events = device.events();
        let base = image_after(&base, &events[..first]);
        for image in crashes(&base, &events[first..]) {
            let recovered = open(Arc::new(image), tight());
            let found = content(&recovered, b"target").expect("the file exists");
            assert!(found == vec![1; len] || found == vec![2; len], "{len} {mode:?}");
        }
        let recovered = open(Arc::new(image_after(&base, &events[first..])), tight());
        assert!(content(&recovered, b"target").expect("the file exists") == vec![2; len]);
    }
}

/// A file that is one hole has no dirty data, but a pending length. The next delta has to contain this length.
#[test]
fn a_hole_renamed_over_a_file_has_its_length() {
    let (base, device) = recorder();
    let volume = open(device.clone(), tight());
    let target = make(&volume, ROOT_INO, b"target", FILE);
    write(&volume, target, &[1; 5000]);
    volume.sync_all().expect("a sync");
    let (first, other) = (device.event_count(), make(&volume, ROOT_INO, b"other", FILE));
    let new = make(&volume, ROOT_INO, b"new", FILE);
    let grown = AttributeChanges { size: Some(70_000), ..Default::default() };
    volume.set_attributes(new, &grown, &caller()).expect("the file grows");
    volume
        .rename(ROOT_INO, b"new", ROOT_INO, b"target", RenameMode::Replace, &caller())
        .expect("a rename");
    volume.sync_file(other).expect("a sync");
    let events = device.events();
    let base = image_after(&base, &events[..first]);
    for image in crashes(&base, &events[first..]) {
        let recovered = open(Arc::new(image), tight());
        let found = content(&recovered, b"target").expect("the file exists");
        assert!(found == [1; 5000] || found == [0; 70_000], "{} bytes", found.len());
    }
}

/// "[...] and truncate-and-rewrite, never leave an empty file behind when the new data had been
/// closed before."
#[test]
fn a_file_written_anew_is_not_empty() {
    for len in [500, 5000, 200_000] {
        let (base, device) = recorder();
        let volume = open(device.clone(), tight());
        let file = make(&volume, ROOT_INO, b"file", FILE);
        let other = make(&volume, ROOT_INO, b"other", FILE);
        write(&volume, file, &vec![1; len]);
        volume.sync_all().expect("a sync");
        let first = device.event_count();
        let empty = AttributeChanges { size: Some(0), ..Default::default() };
        volume.set_attributes(file, &empty, &caller()).expect("a truncation");
        write(&volume, file, &vec![2; len]);
        volume.forget(file, 1);
        volume.sync_file(other).expect("a sync");
        let events = device.events();
        let base = image_after(&base, &events[..first]);
        for image in crashes(&base, &events[first..]) {
            let recovered = open(Arc::new(image), tight());
            let found = content(&recovered, b"file").expect("the file exists");
            assert!(found == vec![1; len] || found == vec![2; len], "{len}");
        }
    }
}

/// One batch has no space for the data of all renamed files.
#[test]
fn files_renamed_over_others_have_their_data_when_space_is_short() {
    let names = [&b"a"[..], b"b", b"c"];
    let blocks = [600, 400, 100];
    let (base, device) = recorder();
    let volume = open(device.clone(), VolumeOptions::default());
    for name in names {
        let old = make(&volume, ROOT_INO, name, FILE);
        write(&volume, old, &[1; 5000]);
    }
    volume.sync_all().expect("a sync");
    let first = device.event_count();
    for (name, blocks) in names.iter().zip(blocks) {
        let new = make(&volume, ROOT_INO, b"new", FILE);
        write(&volume, new, &vec![2; blocks * 4096]);
        volume
            .rename(ROOT_INO, b"new", ROOT_INO, name, RenameMode::Replace, &caller())
            .expect("a rename");
    }
    volume.sync_all().expect("a sync");
    let events = device.events();
    let base = image_after(&base, &events[..first]);
    for image in crashes(&base, &events[first..]) {
        let recovered = open(Arc::new(image), tight());
        let lens = names.map(|name| {
            let ino = recovered.lookup(ROOT_INO, name).expect("the file exists").ino;
            recovered.attributes(ino).expect("attributes").size
        });
        for ((name, blocks), len) in names.iter().zip(blocks).zip(lens) {
            let content = content(&recovered, name).expect("the file exists");
            let sound = content == [1; 5000] || content == vec![2; blocks * 4096];
            assert!(sound, "{} has {len} bytes; all: {lens:?}", name.escape_ascii());
        }
    }
}

/// One batch has no space for the data of all rewritten files. Each file is closed before the next is rewritten.
#[test]
fn files_written_anew_are_not_empty_when_space_is_short() {
    let blocks = [100, 600, 400, 100];
    let (base, device) = recorder();
    let volume = open(device.clone(), VolumeOptions::default());
    let files = blocks.map(|blocks| {
        let ino =
            make(&volume, ROOT_INO, format!("{blocks}-{}", volume.space().files).as_bytes(), FILE);
        write(&volume, ino, &[1; 5000]);
        ino
    });
    volume.sync_all().expect("a sync");
    let mut closed = Vec::new();
    for (ino, blocks) in files.into_iter().zip(blocks) {
        let empty = AttributeChanges { size: Some(0), ..Default::default() };
        volume.set_attributes(ino, &empty, &caller()).expect("a truncation");
        for block in (0..blocks).step_by(20) {
            volume
                .write(ino, block * 4096, &[2; 20 * 4096], WriteMode::default(), &caller())
                .expect("a write");
        }
        closed.push((ino, device.event_count()));
    }
    volume.sync_all().expect("a sync");
    let events = device.events();
    for issued in closed[0].1..=events.len() {
        let recovered = open(Arc::new(image_after(&base, &events[..issued])), tight());
        for (ino, _) in closed.iter().filter(|(_, at)| *at <= issued) {
            let size = recovered.attributes(*ino).expect("attributes").size;
            assert!(size > 0, "{ino} is empty after {issued} of {} events", events.len());
        }
    }
}

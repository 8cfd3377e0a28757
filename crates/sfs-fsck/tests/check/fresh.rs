//! Checks of volumes that the filesystem has made and used.

use std::sync::Arc;

use sfs_core::format::{DataLayout, FileKind, Label, ROOT_INO, Structure, Timestamp};
use sfs_core::request::{Caller, RenameMode, VolumeOptions, WriteMode, XattrMode};
use sfs_core::{Error, Volume};
use sfs_device::{
    BLOCK_SIZE, Device, Event, Geometry, Keep, RamDevice, RecordingDevice, image_after,
};
use sfs_mkfs::{Identity, VolumePlan, make_on};

use super::fixture::check_device;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

fn identity(uuid: [u8; 16]) -> Identity {
    Identity {
        uuid,
        label: Label::new("test").expect("a label"),
        hash_key: [3, 4],
        now: NOW,
        data_layout: DataLayout::Log,
        owner: (1000, 1000),
    }
}

/// Returns a new volume of `bytes`.
pub(crate) fn fresh(bytes: u64) -> Arc<RamDevice> {
    let geometry = Geometry { block_count: bytes / BLOCK_SIZE as u64, ..Geometry::default() };
    let plan = VolumePlan::new(&geometry, None, &identity(*b"a volume of test")).expect("a plan");
    let device = Arc::new(RamDevice::with_geometry(geometry));
    make_on(device.clone(), &plan, true).expect("a volume");
    device
}

#[test]
fn fresh_volumes_of_any_size_are_clean() {
    for bytes in [5 << 20, 64 << 20, 8 << 30, 2 << 40] {
        let report = check_device(&*fresh(bytes), true).expect("a volume");
        assert_eq!(report.errors(), 0, "{bytes}: {:?}", report.findings.kept());
        assert_eq!((report.files, report.directories), (0, 1));
        assert!(report.unmounted);
    }
}

/// Makes files of all kinds, and removes some of them.
fn use_volume(volume: &Volume) -> sfs_core::Result<()> {
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    let directory = FileKind::Directory.mode_bits() | 0o755;
    let regular = FileKind::Regular.mode_bits() | 0o644;
    let sub = volume.make_node(ROOT_INO, b"sub", directory, 0, &caller)?.ino;
    for number in 0..400u32 {
        let name = format!("file {number}");
        let ino = volume.make_node(sub, name.as_bytes(), regular, 0, &caller)?.ino;
        let len = number as usize * 37 % 30_000;
        volume.write(ino, u64::from(number % 5) * 5000, &vec![number as u8; len], mode, &caller)?;
        match number % 7 {
            0 => volume.unlink(sub, name.as_bytes(), &caller)?,
            1 => drop(volume.rename(
                sub,
                name.as_bytes(),
                ROOT_INO,
                b"moved",
                RenameMode::Replace,
                &caller,
            )?),
            2 => {
                let value = vec![7; len.min(5000)];
                volume.set_xattr(ino, b"user.test", &value, XattrMode::Any, &caller)?;
            }
            3 => drop(volume.link(ino, ROOT_INO, name.as_bytes(), &caller)?),
            4 => drop(volume.symlink(
                ROOT_INO,
                name.as_bytes(),
                &vec![b'x'; 1 + len % 4000],
                &caller,
            )?),
            _ => {}
        }
    }
    Ok(())
}

/// Removes half of the files, and overwrites the others.
fn change_volume(volume: &Volume) -> sfs_core::Result<()> {
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    let mode = WriteMode { keep_times: true, kill_privileges: false };
    let sub = volume.lookup(ROOT_INO, b"sub")?.ino;
    for number in (0..400u32).filter(|number| number % 7 > 1) {
        let name = format!("file {number}");
        if number % 2 == 0 {
            volume.unlink(sub, name.as_bytes(), &caller)?;
        } else {
            let ino = volume.lookup(sub, name.as_bytes())?.ino;
            volume.write(ino, 100, &[1; 9000], mode, &caller)?;
        }
    }
    volume.unlink(ROOT_INO, b"moved", &caller)
}

#[test]
fn used_volumes_are_clean_after_a_sync_and_after_an_unmount() {
    let device = fresh(64 << 20);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    for step in [use_volume, change_volume] {
        step(&volume).expect("the operations");
        volume.sync_all().expect("a sync");
        let report = check_device(&device.snapshot(), true).expect("a volume");
        assert_eq!(report.errors(), 0, "synced: {:?}", report.findings.kept());
        assert!(report.rolled_chunks > 0);
    }
    volume.close().expect("an unmount");
    let report = check_device(&*device, true).expect("a volume");
    assert_eq!(report.errors(), 0, "closed: {:?}", report.findings.kept());
    assert!(report.unmounted);
    assert_eq!((report.rolled_chunks, report.directories), (0, 2));
}

#[test]
fn an_interrupted_mkfs_leaves_no_volume() {
    let old = fresh(16 << 20);
    let geometry = old.geometry().clone();
    let plan = VolumePlan::new(&geometry, None, &identity(*b"the newer volume")).expect("a plan");
    for discard in [false, true] {
        let device = Arc::new(RecordingDevice::new(old.snapshot(), Keep::Contents));
        make_on(device.clone(), &plan, discard).expect("a volume");
        let events = device.events();
        let flushes =
            |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Flush)).count();
        let all = flushes(&events);
        for len in 0..events.len() {
            let (before, after) = events.split_at(len);
            // The old volume may be whole until the first flush, and the new volume from the last
            // write on.
            if flushes(before) == 0 || flushes(after) == 1 {
                continue;
            }
            let result = check_device(&image_after(&old, before), true);
            assert!(result.is_err(), "{len} of {} events, {all} flushes", events.len());
        }
        let report = check_device(&image_after(&old, &events), true).expect("a volume");
        assert_eq!(report.errors(), 0);
    }
}

#[test]
fn a_damaged_newest_checkpoint_is_reported_and_its_root_found() {
    let device = fresh(16 << 20);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    let regular = FileKind::Regular.mode_bits() | 0o644;
    let ino = volume.make_node(ROOT_INO, b"file", regular, 0, &caller).expect("a file").ino;
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    volume.write(ino, 0, &[7; 9000], mode, &caller).expect("a write");
    volume.sync_all().expect("a sync");
    assert_eq!(check_device(&device.snapshot(), true).expect("a volume").errors(), 0);

    // mkfs wrote checkpoint 2, and the mount checkpoint 3. The synced batch follows checkpoint 3.
    let image = device.snapshot();
    let first = {
        let mut block = sfs_device::Block::zeroed(1);
        image.read(4, &mut block).expect("RAM");
        sfs_core::format::Superblock::decode(&block[0].0, 4).expect("a superblock")
    };
    let noise = sfs_device::Block([0xa5; BLOCK_SIZE]);
    image.write(first.layout.slots[1], &[&[noise]], sfs_device::Stream(0)).expect("RAM");
    let report = check_device(&image, true).expect("a volume");
    let errors = report.findings.kept().iter().filter(|finding| finding.is_error());
    assert_eq!(errors.collect::<Vec<_>>(), [&sfs_fsck::Finding::CheckpointLost { number: 3 }]);
    let mounted = Volume::open(Arc::new(image.snapshot()), VolumeOptions::default(), NOW);
    let refused =
        mounted.err().expect("a mount without checkpoint 3 would lose the newest changes");
    assert!(
        matches!(&refused, Error::Corrupt(damage) if damage.structure == Structure::Checkpoint),
        "{refused}"
    );

    let image = Arc::new(image);
    let shared: Arc<dyn Device> = image.clone();
    let repaired = super::fixture::repair_with(&shared, false, true);
    assert_eq!((repaired.errors_left(), &repaired.losses[..]), (0, &[][..]));
    let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("a mount");
    let file = volume.lookup(ROOT_INO, b"file").expect("the file").ino;
    assert_eq!(volume.read(file, 0, 9000).expect("the content of the file").as_bytes(), [7; 9000]);
}

#[test]
fn leaves_without_an_older_copy_are_restored_from_deltas_and_summaries() {
    let device = fresh(16 << 20);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    let regular = FileKind::Regular.mode_bits() | 0o640;
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    let content = |number: u32| vec![number as u8; (number as usize * 53) % 9000];
    for number in 0..200u32 {
        let name = format!("file {number}");
        let ino = volume.make_node(ROOT_INO, name.as_bytes(), regular, 0, &caller);
        let ino = ino.expect("a file").ino;
        volume.write(ino, 0, &content(number), mode, &caller).expect("a write");
        if number % 20 == 19 {
            volume.sync_all().expect("a sync");
        }
    }
    volume.close().expect("an unmount");
    let record =
        sfs_fsck::dump(&*device, &sfs_fsck::DumpSubject::Checkpoints).expect("checkpoints");
    let newest = if record["slot 0"]["number"].as_u64() > record["slot 1"]["number"].as_u64() {
        &record["slot 0"]
    } else {
        &record["slot 1"]
    };
    let root = newest["root"]["address"].as_u64().expect("an address");
    let node = sfs_fsck::dump(&*device, &sfs_fsck::DumpSubject::Node(root)).expect("a node");
    let leaves = node["children"].as_array().expect("an inner node");
    assert!(leaves.len() > 8, "{} leaves", leaves.len());
    for leaf in leaves {
        let image = Arc::new(device.snapshot());
        let at = leaf["address"].as_u64().expect("an address");
        let noise = sfs_device::Block([0xa5; BLOCK_SIZE]);
        image.write(at, &[&[noise]], sfs_device::Stream(0)).expect("RAM");
        let shared: Arc<dyn Device> = image.clone();
        let repaired = super::fixture::repair_with(&shared, false, true);
        assert_eq!(repaired.errors_left(), 0);
        let is_restored = |loss: &sfs_fsck::Loss| matches!(loss, sfs_fsck::Loss::Restored { .. });
        assert!(repaired.losses.iter().all(is_restored), "{leaf}: {:?}", repaired.losses);
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("a mount");
        for number in 0..200u32 {
            let entry = volume.lookup(ROOT_INO, format!("file {number}").as_bytes());
            let entry = entry.expect("a name");
            assert_eq!(entry.inode.mode, regular);
            let read = volume.read(entry.ino, 0, 10_000).expect("the content of the file");
            assert!(read.as_bytes() == content(number), "file {number} without {leaf}");
        }
    }
}

//! A store that is older than what the local cache has seen: objects were deleted by somebody, or restored from a backup.

use std::sync::Arc;

use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{
    Durability, EncryptedStore, Epoch, FileKey, Limits, LocalState, MemoryStore, Nonce, Object,
    ObjectDevice, ObjectName, ObjectStore, OpenError, OpenRequest, PageCache, Shape, create,
    system_random,
};

const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

type Volume = ObjectDevice<Arc<EncryptedStore<Arc<MemoryStore>>>>;

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

fn request() -> OpenRequest {
    let mut nonce = [0; 16];
    system_random(&mut nonce);
    OpenRequest {
        nonce: Nonce(nonce),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: true,
        durability: Durability::Local,
        limits: Limits::of_mount(1 << 30),
    }
}

/// Keys of a volume that is not encrypted, and of one that is.
fn keys() -> [Option<FileKey>; 2] {
    [None, Some(FileKey::new([7; 32]))]
}

fn objects(
    store: &Arc<MemoryStore>,
    key: &Option<FileKey>,
) -> Arc<EncryptedStore<Arc<MemoryStore>>> {
    let opened = EncryptedStore::open(store.clone(), key.as_ref(), Box::new(system_random));
    Arc::new(opened.expect("the key of the volume"))
}

fn open(
    store: &Arc<MemoryStore>,
    key: &Option<FileKey>,
    local: &Arc<RamDevice>,
) -> Result<Volume, OpenError> {
    Volume::open(objects(store, key), local.clone(), &request())
}

fn write(volume: &Volume, byte: u8) {
    volume.write(0, &[&[Block([byte; 4096])]], Stream::default()).expect("a write");
    volume.join().expect("a manifest");
}

fn first_byte(volume: &Volume) -> u8 {
    let mut block = Block::zeroed(1);
    volume.read(0, &mut block).expect("a block");
    block[0].0[0]
}

/// Deletes objects, and returns them.
fn delete(store: &Arc<MemoryStore>, is_gone: impl Fn(&ObjectName) -> bool) -> Vec<Object> {
    let names = store.names().into_iter().filter(is_gone);
    let taken = names.map(|name| {
        let bytes = store.get(name).expect("memory").expect("an object");
        store.delete(name).expect("memory");
        Object { name, bytes }
    });
    taken.collect()
}

/// Whether the use ended by a close or by a death, the cache knows the newest manifest.
#[test]
fn a_cache_notices_that_the_store_is_older_than_what_it_has_seen() {
    for (key, closes) in keys().into_iter().flat_map(|key| [(key.clone(), true), (key, false)]) {
        let (store, local) = (Arc::new(MemoryStore::default()), cache());
        let made = create(objects(&store, &key), local.clone(), ([7; 16], SHAPE), &request());
        made.expect("a volume").close(1_000).expect("a close");
        let volume = open(&store, &key, &local).expect("a released volume");
        (1..=3).for_each(|byte| write(&volume, byte));
        if closes {
            volume.close(1_000).expect("a close");
        }
        drop(volume);
        let manifests = store.names().into_iter().filter_map(|name| match name {
            ObjectName::Manifest(Epoch(2), number) => Some(number),
            _ => None,
        });
        let newest = manifests.max().expect("manifests");
        assert_eq!(newest, if closes { 5 } else { 4 });
        for first_gone in [1, 2, newest] {
            let is_gone = |name: &ObjectName| match *name {
                ObjectName::Manifest(Epoch(2), number) => number >= first_gone,
                ObjectName::Claim(epoch) => epoch == Epoch(2) && first_gone == 1,
                _ => false,
            };
            let gone = delete(&store, is_gone);
            let before = store.names();
            let refused = open(&store, &key, &local).map(|_| ());
            assert!(matches!(refused, Err(OpenError::RolledBack)), "{refused:?}");
            assert_eq!(store.names(), before, "nothing is changed");
            for object in &gone {
                store.put(object);
            }
        }
        let volume = open(&store, &key, &local).expect("all objects are there again");
        assert_eq!(first_byte(&volume), 3);
    }
}

/// The state that a cache continues is not shown with older objects either.
#[test]
fn a_cache_that_was_left_behind_shows_no_older_objects() {
    for key in keys() {
        let (store, local) = (Arc::new(MemoryStore::default()), cache());
        let made = create(objects(&store, &key), local.clone(), ([7; 16], SHAPE), &request());
        let volume = made.expect("a volume");
        (1..=3).for_each(|byte| write(&volume, byte));
        volume.write(64, &[&[Block([9; 4096])]], Stream::default()).expect("a write");
        volume.flush().expect("the cache has it");
        drop(volume);
        let show = || {
            let pages = Arc::new(PageCache::new(1 << 20));
            LocalState::open(objects(&store, &key), local.clone(), pages)
        };
        let shown = show().expect("the cache has what was not uploaded");
        let mut blocks = Block::zeroed(65);
        shown.read(0, &mut blocks).expect("all objects are there");
        assert_eq!((blocks[0].0[0], blocks[64].0[0], shown.regions_ahead()), (3, 9, 1));
        for first_gone in [1, 4] {
            let gone = delete(&store, |name| match *name {
                ObjectName::Manifest(Epoch(1), number) => number >= first_gone,
                _ => false,
            });
            if first_gone > 1 {
                let refused = show().map(|_| ());
                assert!(matches!(refused, Err(OpenError::RolledBack)), "{refused:?}");
            } else {
                show().map(|_| ()).expect_err("the store has no volume");
            }
            gone.iter().for_each(|object| {
                store.put(object);
            });
        }
    }
}

/// Without the cache nothing tells, and the volume is what it once was.
#[test]
fn another_cache_opens_the_older_state() {
    for key in keys() {
        let store = Arc::new(MemoryStore::default());
        let made = create(objects(&store, &key), cache(), ([7; 16], SHAPE), &request());
        let volume = made.expect("a volume");
        (1..=3).for_each(|byte| write(&volume, byte));
        drop(volume);
        delete(&store, |name| *name == ObjectName::Manifest(Epoch(1), 4));
        let volume = open(&store, &key, &cache()).expect("the state before");
        assert_eq!(first_byte(&volume), 2);
    }
}

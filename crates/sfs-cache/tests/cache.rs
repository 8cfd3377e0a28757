//! A cache from making to checking, over devices in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sfs_cache::{
    Cache, CacheError, CacheHeader, CachedDevice, Identity, IndexMemory, MakeOptions, PolicyName,
    SectionWish, Warmth, check, empty, make, plan,
};
use sfs_device::{
    Block, Copies, Device, FaultyDevice, Geometry, Operation, RamDevice, Stream, WantedBlock,
};

const VOLUME: [u8; 16] = [1; 16];
const CACHE: [u8; 16] = [2; 16];

fn identity(epoch: u8) -> Identity {
    Identity { volume_uuid: VOLUME, cache_uuid: CACHE, epoch: [epoch; 16] }
}

fn made(sections: Vec<SectionWish>) -> Arc<FaultyDevice<RamDevice>> {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(2048)));
    let policy = PolicyName::default();
    let options = MakeOptions { volume_uuid: VOLUME, cache_uuid: CACHE, sections, policy };
    make(&*device, &options).expect("the device is large enough");
    device
}

fn block(no: u64) -> Block {
    let mut block = Block::ZERO;
    block.0.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&no.to_le_bytes()));
    block
}

/// Asks for block `address` with the content of `block(content)`.
fn fetch(cache: &Cache, address: u64, content: u64) -> bool {
    fetch_behind(cache, address, content, 0)
}

/// Asks for block `address` with the content of `block(content)`, of which the checksum leaves `head` bytes out.
fn fetch_behind(cache: &Cache, address: u64, content: u64, head: usize) -> bool {
    let mut memory = Block::ZERO;
    let content_wanted = block(content);
    let (head, summed) = content_wanted.0.split_at(head);
    let checksum = crc32c::crc32c(summed);
    let mut wanted =
        [WantedBlock { address, checksum, head, memory: &mut memory, is_found: false }];
    cache.fetch(&mut wanted);
    let is_found = wanted[0].is_found;
    assert!(!is_found || memory == block(content), "only the wanted content is found");
    is_found
}

fn offer(cache: &Cache, address: u64) {
    let moment = cache.fetch(&mut []);
    cache.offer(moment, address, &[block(address)]);
    while cache.work() {}
}

/// Addresses that make no stream.
fn addresses(count: u64) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(|no| no * 97 % 10_007 * 3)
}

#[test]
fn what_was_offered_is_found_now_and_after_a_close_but_not_after_a_crash() {
    let device = made(Vec::new());
    let cache = Cache::open(device.clone(), &identity(0), u64::MAX).expect("a cache");
    assert_eq!(cache.warmth(), Warmth::Emptied);
    offer(&cache, 5);
    assert!(!fetch(&cache, 5, 5), "what was read waits until the mount begins");
    cache.begin([7; 16]);
    addresses(300).for_each(|address| offer(&cache, address));
    assert!(addresses(300).all(|address| fetch(&cache, address, address)));
    assert!(!fetch(&cache, 0, 1), "other content is wanted");
    cache.flush().expect("RAM");
    drop(cache);
    let cache = Cache::open(device.clone(), &identity(7), u64::MAX).expect("a cache");
    assert_eq!(cache.warmth(), Warmth::Emptied, "the mount was cut off");
    cache.begin([8; 16]);
    assert!(!addresses(300).any(|address| fetch(&cache, address, address)));
    addresses(300).skip(150).for_each(|address| offer(&cache, address));
    cache.close([9; 16]);
    for (epoch, warmth) in [(9, Warmth::Warm), (8, Warmth::Emptied)] {
        let cache = Cache::open(device.clone(), &identity(epoch), u64::MAX).expect("a cache");
        assert_eq!(cache.warmth(), warmth);
        let found = addresses(300).filter(|at| fetch(&cache, *at, *at)).count();
        assert_eq!(found, if epoch == 9 { 150 } else { 0 }, "none from before the crash");
    }
    let other = Identity { volume_uuid: [5; 16], ..identity(9) };
    assert!(matches!(Cache::open(device, &other, u64::MAX), Err(CacheError::OtherVolume)));
}

/// Regression: what was read while the volume was opened was not cached, so each mount read it from the disk.
#[test]
fn what_is_read_before_the_mount_begins_is_cached_unless_it_is_written() {
    let device = made(Vec::new());
    let disk = Arc::new(RamDevice::new(20_000));
    let cache = Arc::new(Cache::open(device, &identity(0), u64::MAX).expect("a cache"));
    let joined = CachedDevice::new(disk, cache.clone());
    [5, 500].into_iter().for_each(|address| offer(&cache, address));
    joined.write(500, &[&[block(1)]], Stream::default()).expect("RAM");
    assert_eq!(cache.stat().bytes_written, 0);
    cache.begin([7; 16]);
    while cache.work() {}
    assert!(fetch(&cache, 5, 5) && !fetch(&cache, 500, 500));
}

/// Regression: what was read while the volume was opened waited for another read, because there was no thread to wake then.
#[test]
fn the_thread_is_told_once_of_what_waited_before() {
    for (waits, begins_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let cache = Cache::open(made(Vec::new()), &identity(0), u64::MAX).expect("a cache");
        if waits {
            offer(&cache, 5);
        }
        if begins_first {
            cache.begin([7; 16]);
        }
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        cache.on_work(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        if !begins_first {
            assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing can be written");
            cache.begin([7; 16]);
        }
        assert_eq!(calls.load(Ordering::Relaxed), u64::from(waits), "begins first: {begins_first}");
        assert_eq!(cache.work(), waits);
    }
}

#[test]
fn the_bytes_that_a_checksum_leaves_out_are_compared_as_well() {
    let device = made(Vec::new());
    let cache = Cache::open(device.clone(), &identity(0), u64::MAX).expect("a cache");
    cache.begin([7; 16]);
    addresses(300).for_each(|address| offer(&cache, address));
    cache.close([8; 16]);
    let cache = Cache::open(device.clone(), &identity(8), u64::MAX).expect("a cache");
    assert!(fetch_behind(&cache, 97 * 3, 97 * 3, 8));
    let header = CacheHeader::read(&*device).expect("a cache");
    let mut segment = Block::zeroed(32);
    device.read(header.sections[0].first, &mut segment).expect("RAM");
    let at = segment.iter().position(|found| *found == block(97 * 6)).expect("the third block");
    segment[at].0[3] ^= 1;
    let address = header.sections[0].first + at as u64;
    device.write(address, &[&segment[at..=at]], Stream::default()).expect("RAM");
    assert!(!fetch_behind(&cache, 97 * 6, 97 * 6, 8), "byte 3 is wrong");
    assert!(cache.stat().dropped.is_some(), "the SSD lies");
}

#[test]
fn a_full_cache_goes_on_with_what_is_used() {
    let device = made(Vec::new());
    let cache = Cache::open(device, &identity(0), u64::MAX).expect("a cache");
    cache.begin([7; 16]);
    // Six times the cache, with thirty blocks that are used all the time.
    for (no, address) in addresses(9_000).enumerate() {
        offer(&cache, address);
        if no > 30 && no % 5 == 0 {
            addresses(30).for_each(|used| {
                fetch(&cache, used, used);
            });
        }
    }
    let stat = cache.stat();
    assert_eq!(stat.dropped, None);
    assert!(stat.cached_blocks > stat.capacity_blocks / 2, "{stat:?}");
    assert!(stat.evicted_extents > 1_000, "{stat:?}");
    let kept = addresses(30).filter(|used| fetch(&cache, *used, *used)).count();
    assert!(kept >= 28, "{kept} of 30 are kept");
}

#[test]
fn a_range_goes_to_the_section_that_takes_the_fewest_extents() {
    let section =
        |blocks, extent_blocks| SectionWish { blocks, extent_blocks: Some(extent_blocks) };
    let device = made(vec![section(Some(512), 4), section(None, 16)]);
    let cache = Cache::open(device, &identity(0), u64::MAX).expect("a cache");
    cache.begin([7; 16]);
    let moment = cache.fetch(&mut []);
    let blocks: Vec<Block> = (160..192).map(block).collect();
    cache.offer(moment, 160, &blocks);
    cache.offer(moment, 1000, &[block(1000)]);
    while cache.work() {}
    assert_eq!(cache.stat().cached_extents, 3, "two of 16 blocks, and one of 4");
    assert!((160..192).all(|address| fetch(&cache, address, address)));
}

#[test]
fn the_first_error_of_the_ssd_ends_its_use_with_one_report() {
    for (operation, lies) in
        [(Operation::Read, false), (Operation::Write, false), (Operation::Read, true)]
    {
        let device = made(Vec::new());
        let cache = Cache::open(device.clone(), &identity(0), u64::MAX).expect("a cache");
        cache.begin([7; 16]);
        let reports = Arc::new(AtomicU64::new(0));
        let counted = reports.clone();
        cache.on_drop(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        addresses(300).for_each(|address| offer(&cache, address));
        match lies {
            true => device.corrupt_reads(0..2048),
            false => device.fail_all(operation, true),
        }
        addresses(300).for_each(|address| {
            fetch(&cache, address, address);
        });
        addresses(9_000).skip(300).for_each(|address| offer(&cache, address));
        assert!(cache.stat().dropped.is_some(), "{operation:?}");
        assert_eq!(reports.load(Ordering::SeqCst), 1);
        assert!(!addresses(300).any(|address| fetch(&cache, address, address)));
    }
}

#[test]
fn a_write_and_a_discard_forget_the_copies() {
    let device = made(Vec::new());
    let cache = Arc::new(Cache::open(device, &identity(0), u64::MAX).expect("a cache"));
    cache.begin([7; 16]);
    let disk = CachedDevice::new(Arc::new(RamDevice::new(40_000)), cache.clone());
    addresses(300).for_each(|address| offer(&cache, address));
    disk.write(3 * 97, &[&[block(0)]], Stream::default()).expect("RAM");
    disk.discard(0, 100).expect("RAM");
    let kept = |address: u64| address >= 100 && address != 3 * 97;
    assert!(addresses(300).all(|address| fetch(&cache, address, address) == kept(address)));
}

#[test]
fn a_check_finds_damage_and_a_repair_empties_the_cache() {
    let device = made(Vec::new());
    let cache = Cache::open(device.clone(), &identity(0), u64::MAX).expect("a cache");
    cache.begin([7; 16]);
    addresses(300).for_each(|address| offer(&cache, address));
    cache.close([9; 16]);
    let checked = |data| check(&*device, &identity(9), data).expect("a cache");
    let (header, report) = checked(true);
    assert!(report.is_current && report.is_closed && !report.is_damaged(), "{report:?}");
    assert_eq!(report.blocks, 300);
    let at = header.sections[0].first + 5;
    device.write(at, &[&[Block::ZERO]], Stream::default()).expect("RAM");
    assert!(!checked(false).1.is_damaged(), "content was not read");
    assert_eq!(checked(true).1.damaged_blocks, 1);
    device.write(header.sections[0].first, &[&[Block::ZERO]], Stream::default()).expect("RAM");
    assert!(checked(false).1.lost_blocks > 0 && checked(false).1.is_damaged());
    empty(&*device, &header, 77).expect("RAM");
    let (_, report) = checked(true);
    assert!(!report.is_damaged() && report.blocks == 0, "{report:?}");
    let cache = Cache::open(device, &identity(9), u64::MAX).expect("a cache");
    assert_eq!(cache.warmth(), Warmth::Emptied);
}

#[test]
fn the_index_stays_within_its_memory_while_it_grows_and_when_it_is_loaded() {
    let device = made(vec![SectionWish { blocks: None, extent_blocks: Some(1) }]);
    let extents = |bytes: u64| bytes / (160 + 4);
    let cache = Cache::open(device.clone(), &identity(0), 100_000).expect("a cache");
    cache.begin([7; 16]);
    addresses(1_500).for_each(|address| offer(&cache, address));
    assert_eq!(cache.stat().cached_extents, extents(100_000), "and the SSD has room for more");
    cache.close([8; 16]);
    let cache = Cache::open(device, &identity(8), 50_000).expect("a cache");
    assert_eq!(cache.stat().cached_extents, extents(50_000));
    let (last, all) = (cache.stat().cached_blocks, addresses(1_500));
    let found = all.filter(|address| fetch(&cache, *address, *address)).count();
    assert_eq!(found as u64, last);
    cache.begin([9; 16]);
    addresses(3_000).skip(1_500).for_each(|address| offer(&cache, address));
    assert_eq!(cache.stat().dropped, None);
    assert_eq!(cache.stat().cached_extents, extents(50_000));
}

#[test]
fn a_plan_has_segments_of_4_mib_at_most_and_its_memory_bounds_what_is_cached() {
    let block_count = 1 << 22;
    let geometry = Geometry { block_count, preferred_erase_size: 64 << 20, ..Geometry::default() };
    let device = RamDevice::with_geometry(geometry);
    let plan_of = |sections: &[SectionWish]| {
        let (policy, sections) = (PolicyName::default(), sections.to_vec());
        let options = MakeOptions { volume_uuid: VOLUME, cache_uuid: CACHE, sections, policy };
        plan(&device, &options).expect("the device is large enough")
    };
    let plan = |extent| plan_of(&[SectionWish { blocks: None, extent_blocks: Some(extent) }]);
    assert_eq!(plan(4).segment_blocks, 1024);
    let (fine, coarse) = (plan(1), plan(16));
    let memory = IndexMemory::of(&fine);
    let blocks = u64::from(fine.sections[0].segment_count) * 1024;
    assert_eq!(memory.bytes, (160 << 20) + 4 * blocks);
    assert!(memory.cached_blocks_max(&fine) < blocks / 3, "{memory:?}");
    assert_eq!(memory.cached_blocks_max(&coarse), blocks);
    let default = [SectionWish { blocks: None, extent_blocks: None }];
    assert_eq!(memory.cached_blocks_max(&plan_of(&default)), blocks, "the default fills the SSD");
}

//! Test that pins the counters and times of fixed runs. A change of them is a change of the model, and has
//! to be intended.

use crate::fixture::{PAGE, XorShift64};
use sfs_ssd::ftl::{Layer, WearLevelling};
use sfs_ssd::{
    Arrivals, HostRequest, RequestKind, RequestQueue, Responses, Scheduling, Ssd, SsdConfig,
    SsdProfile,
};

/// Makes writes, reads and trims of up to 16 blocks, a third of them on a tenth of the device.
fn requests(capacity: u64, count: u32) -> impl Iterator<Item = HostRequest> {
    let mut random = XorShift64::new(42);
    let blocks = (capacity / PAGE) as u32;
    (0..count).map(move |_| {
        let kind = match random.below(10) {
            0..7 => RequestKind::Write,
            7..9 => RequestKind::Read,
            _ => RequestKind::Trim,
        };
        let range = if random.below(3) == 0 { blocks / 10 } else { blocks };
        let first = random.below(range - 16);
        HostRequest::new(kind, u64::from(first) * PAGE, u64::from(1 + random.below(16)) * PAGE)
    })
}

/// Returns erases, pages moved, flash pages programmed, flash pages read, end time and longest response.
fn run(layer: Layer) -> [u64; 6] {
    let profile = SsdProfile::by_name("mtron").expect("a profile").with_capacity(64 << 20);
    let config = SsdConfig { layer, wear: WearLevelling::Static { spread: 8 }, ..profile.config() };
    let mut ssd = Ssd::new(&config).expect("a device");
    let queue = RequestQueue {
        scheduling: Scheduling::Swtf,
        depth: 8,
        arrivals: Arrivals::Eager,
        merging: true,
    };
    let mut responses = Responses::default();
    let requests = requests(ssd.capacity(), 20_000);
    let ended_ns = queue.run(&mut ssd, 0, requests, |_, completion| responses.add(completion));
    let c = ssd.counters();
    let flash = [c.flash_pages_programmed, c.flash_pages_read];
    [c.erases, c.pages_moved, flash[0], flash[1], ended_ns, responses.max_ns]
}

#[test]
fn counters_and_times_of_fixed_runs_never_change() {
    let layers = [Layer::GREEDY, Layer::Fast { log_blocks: 4 }, Layer::Bast { log_blocks: 4 }];
    let expected = [
        [121, 31128, 151081, 57114, 15829222104, 102189215],
        [2955, 1320206, 1440159, 1346189, 144428862751, 3248103729],
        [17085, 6528131, 6648084, 6554118, 631919137923, 10164660425],
    ];
    assert_eq!(layers.map(run), expected);
}

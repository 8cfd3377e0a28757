//! Queues, cleaning, wear and what the host says: each does what it is for.

use crate::rig::{PAGE, Random, config, one_element, trim_page, write_page};
use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{
    Arrivals, Cleaning, Config, Geometry, Queue, Request, RequestKind, Responses, Scheduling, Ssd,
    Timing,
};

/// Single-level cells on a slow bus (FAST'09 paper, section 2.1).
const TIMING: Timing = Timing {
    read_ns: 25_000,
    program_ns: 200_000,
    erase_ns: 1_500_000,
    transfer_ns: 100_000,
    command_ns: 0,
    link_kib_ns: 0,
};

const FCFS: Queue = Queue {
    scheduling: Scheduling::Fcfs,
    depth: usize::MAX,
    arrivals: Arrivals::Timed,
    merging: false,
};

/// Eight packages, `gang` of which work together, with pages of `stripe` flash pages.
fn eight(gang: u32, stripe: u32, blocks: u32) -> Config {
    let geometry = Geometry { channels: 8, blocks, gang, stripe, ..one_element(1, 64, 250) };
    Config { timing: TIMING, ..config(Layer::GREEDY, WearLevelling::Dynamic, geometry) }
}

fn filled(config: &Config) -> Ssd {
    let mut ssd = Ssd::new(config).expect("a device");
    let page_size = ssd.geometry().page_size();
    let pages = u64::from(ssd.geometry().pages());
    for page in 0..pages {
        ssd.serve(&Request::new(RequestKind::Write, page * page_size, page_size), 0);
    }
    ssd.reset_counters();
    ssd
}

/// When everything that the device was told has been done.
fn idle_ns(ssd: &Ssd) -> u64 {
    let slots = 0..ssd.geometry().slots();
    slots.map(|slot| ssd.flash().free_ns(slot)).max().unwrap_or(0)
}

fn mean_ms(queue: &Queue, ssd: &mut Ssd, requests: Vec<Request>) -> f64 {
    let mut responses = Responses::default();
    let from_ns = idle_ns(ssd);
    let later = requests
        .into_iter()
        .map(|request| Request { arrival_ns: request.arrival_ns + from_ns, ..request });
    queue.run(ssd, from_ns, later, |_, completion| responses.add(completion));
    responses.mean_ms()
}

#[test]
fn the_shortest_wait_first_shortens_waiting() {
    let requests = |pages: u32| {
        let mut random = Random::new(7);
        let mut at_ns = 0;
        let mut request = move || {
            at_ns += u64::from(random.below(250_000));
            let kind = if random.below(3) == 0 { RequestKind::Write } else { RequestKind::Read };
            let offset = u64::from(random.below(pages)) * PAGE;
            Request { arrival_ns: at_ns, ..Request::new(kind, offset, PAGE) }
        };
        (0..20_000).map(|_| request()).collect::<Vec<_>>()
    };
    let config = eight(1, 1, 100);
    let pages = config.geometry.pages();
    let fcfs = mean_ms(&FCFS, &mut filled(&config), requests(pages));
    let swtf = Queue { scheduling: Scheduling::Swtf, ..FCFS };
    let swtf = mean_ms(&swtf, &mut filled(&config), requests(pages));
    println!("FCFS {fcfs:.3} ms, SWTF {swtf:.3} ms");
    assert!(swtf < 0.95 * fcfs, "FCFS {fcfs} ms, SWTF {swtf} ms");
}

#[test]
fn an_idle_device_serves_in_the_time_of_its_parts() {
    let mut ssd = filled(&eight(8, 1, 20));
    let read = Request::new(RequestKind::Read, 5 * PAGE, PAGE);
    assert_eq!(mean_ms(&FCFS, &mut ssd, vec![read]), 0.125);
    let eight_pages = Request::new(RequestKind::Read, 0, 8 * PAGE);
    assert_eq!(mean_ms(&FCFS, &mut ssd, vec![eight_pages]), 0.125, "all elements at once");
    let nine_pages = Request::new(RequestKind::Read, 0, 9 * PAGE);
    assert_eq!(mean_ms(&FCFS, &mut ssd, vec![nine_pages]), 0.25);
}

/// Writes of 4 KiB that continue the one before with probability `sequential`.
fn runs(capacity: u64, sequential: f64) -> Vec<Request> {
    let mut random = Random::new(3);
    let (mut at_ns, mut block) = (0, 0);
    let mut request = move || {
        at_ns += u64::from(random.below(3_500_000));
        let blocks = (capacity / PAGE) as u32;
        block = match random.unit() < sequential {
            true => (block + 1) % blocks,
            false => random.below(blocks),
        };
        let request = Request::new(RequestKind::Write, u64::from(block) * PAGE, PAGE);
        Request { arrival_ns: at_ns, ..request }
    };
    (0..10_000).map(|_| request()).collect()
}

#[test]
fn aligned_writes_gain_with_sequentiality_and_nothing_without() {
    let config = eight(8, 8, 200);
    let aligned = Queue { merging: true, ..FCFS };
    let gain = |sequential: f64| {
        let requests = |config: &Config| runs(config.geometry.capacity(), sequential);
        let plain = mean_ms(&FCFS, &mut filled(&config), requests(&config));
        let merged = mean_ms(&aligned, &mut filled(&config), requests(&config));
        println!("{sequential}: {plain:.2} ms, aligned {merged:.2} ms");
        merged / plain
    };
    assert!((gain(0.0) - 1.0).abs() < 0.02);
    let (half, most) = (gain(0.4), gain(0.8));
    assert!(most < half && half < 1.0 && most < 0.6, "{half} {most}");
}

#[test]
fn merged_writes_are_one_page_write() {
    let mut ssd = filled(&eight(8, 8, 20));
    let writes = (0..8).map(|no| Request::new(RequestKind::Write, no * PAGE, PAGE)).collect();
    mean_ms(&Queue { merging: true, ..FCFS }, &mut ssd, writes);
    let counters = ssd.counters();
    assert_eq!((counters.host_pages_written, counters.pages_completed), (1, 0));
    assert_eq!((counters.host_bytes_written, counters.flash_pages_programmed), (8 * PAGE, 8));
}

/// Mean responses of priority requests and of others: a tenth has priority, half are writes.
fn with_priority(priority_aware: bool) -> [Responses; 2] {
    let cleaning = Cleaning { low_permille: 50, critical_permille: 20, priority_aware };
    let config = Config { cleaning: Some(cleaning), ..eight(1, 1, 200) };
    let mut ssd = filled(&config);
    let pages = ssd.geometry().pages();
    let mut random = Random::new(11);
    (0..2 * pages).for_each(|_| write_page(&mut ssd, random.below(pages), 0));
    let mut at_ns = idle_ns(&ssd);
    let from_ns = at_ns;
    let requests = (0..60_000).map(move |_| {
        at_ns += u64::from(random.below(800_000));
        let kind = if random.below(2) == 0 { RequestKind::Write } else { RequestKind::Read };
        let request = Request::new(kind, u64::from(random.below(pages)) * PAGE, PAGE);
        Request { arrival_ns: at_ns, priority: random.below(10) == 0, ..request }
    });
    let mut responses = [Responses::default(); 2];
    let swtf = Queue { scheduling: Scheduling::Swtf, ..FCFS };
    swtf.run(&mut ssd, from_ns, requests, |request, completion| {
        responses[usize::from(!request.priority)].add(completion);
    });
    responses
}

#[test]
fn cleaning_gives_way_to_priority() {
    let (agnostic, aware) = (with_priority(false), with_priority(true));
    let means = |responses: [Responses; 2]| responses.map(|responses| responses.mean_ms());
    println!("agnostic {:?}, aware {:?}", means(agnostic), means(aware));
    assert!(means(aware)[0] < 0.97 * means(agnostic)[0]);
}

#[test]
fn informed_cleaning_moves_less() {
    let moved = |informed: bool| {
        let geometry = one_element(200, 64, 100);
        let config = config(Layer::GREEDY, WearLevelling::Dynamic, geometry);
        let mut ssd = Ssd::new(&Config { informed, ..config }).expect("a device");
        let pages = ssd.geometry().pages();
        let mut random = Random::new(5);
        // Half of the space in use: for each page that is written, one is let go.
        for _ in 0..6 * pages {
            write_page(&mut ssd, random.below(pages), 0);
            trim_page(&mut ssd, random.below(pages));
        }
        ssd.counters().pages_moved
    };
    let (told, not_told) = (moved(true), moved(false));
    assert!(told * 2 < not_told, "{told} {not_told}");
}

#[test]
fn a_write_of_a_part_reads_the_rest() {
    let mut ssd = filled(&eight(8, 1, 20));
    ssd.serve(&Request::new(RequestKind::Write, 512, PAGE), 0);
    let counters = ssd.counters();
    assert_eq!((counters.host_pages_written, counters.pages_completed), (2, 2));
    assert_eq!((counters.flash_pages_read, counters.flash_pages_programmed), (2, 2));
    assert_eq!(ssd.write_amplification(), 2.0);
}

/// Largest difference of erase counts after a tenth of the pages was written again and again.
fn spread(layer: Layer, wear: WearLevelling) -> u32 {
    let mut ssd = crate::rig::ssd(layer, wear, 100, 16, 200);
    let pages = ssd.geometry().pages();
    (0..pages).for_each(|page| write_page(&mut ssd, page, 0));
    let mut random = Random::new(2);
    (0..100 * pages).for_each(|_| write_page(&mut ssd, random.below(pages / 10), 0));
    let erases = ssd.flash().erases();
    erases.iter().max().unwrap() - erases.iter().min().unwrap()
}

#[test]
fn static_wear_levelling_bounds_the_difference() {
    let persistent = Isolation::Persistent;
    let fifo =
        Layer::PageMapped { collection: Collection::Fifo, streams: 1, isolation: persistent };
    for layer in [Layer::GREEDY, Layer::Fast { log_blocks: 4 }, Layer::Bast { log_blocks: 4 }] {
        let dynamic = spread(layer, WearLevelling::Dynamic);
        let levelled = spread(layer, WearLevelling::Static { spread: 20 });
        println!("{layer:?}: dynamic {dynamic}, static {levelled}");
        assert!(levelled < 60 && dynamic > 2 * levelled, "{layer:?} {dynamic} {levelled}");
    }
    assert!(spread(fifo, WearLevelling::None) < 3, "a ring wears evenly by itself");
}

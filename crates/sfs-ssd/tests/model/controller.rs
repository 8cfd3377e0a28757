//! Queues, cleaning, wear and what the host says: each does what it is for.

use crate::rig::{PAGE, Random, config, one_element, trim_page, write_page};
use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{Cleaning, Config, Queue, Request, RequestKind, Responses, Scheduling, Ssd};

fn filled(config: &Config) -> Ssd {
    Ssd::filled(config).expect("a device")
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
    let config = Config::eight_packages(1, 1, 100);
    let pages = config.geometry.pages();
    let fcfs = Queue::FCFS.respond(&mut filled(&config), requests(pages)).mean_ms();
    let swtf = Queue { scheduling: Scheduling::Swtf, ..Queue::FCFS };
    let swtf = swtf.respond(&mut filled(&config), requests(pages)).mean_ms();
    println!("FCFS {fcfs:.3} ms, SWTF {swtf:.3} ms");
    assert!(swtf < 0.95 * fcfs, "FCFS {fcfs} ms, SWTF {swtf} ms");
}

#[test]
fn an_idle_device_serves_in_the_time_of_its_parts() {
    let mut ssd = filled(&Config::eight_packages(8, 1, 20));
    let read = Request::new(RequestKind::Read, 5 * PAGE, PAGE);
    assert_eq!(Queue::FCFS.respond(&mut ssd, [read]).mean_ms(), 0.125);
    let eight_pages = Request::new(RequestKind::Read, 0, 8 * PAGE);
    assert_eq!(
        Queue::FCFS.respond(&mut ssd, [eight_pages]).mean_ms(),
        0.125,
        "all elements at once"
    );
    let nine_pages = Request::new(RequestKind::Read, 0, 9 * PAGE);
    assert_eq!(Queue::FCFS.respond(&mut ssd, [nine_pages]).mean_ms(), 0.25);
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
    let config = Config::eight_packages(8, 8, 200);
    let aligned = Queue { merging: true, ..Queue::FCFS };
    let gain = |sequential: f64| {
        let requests = |config: &Config| runs(config.geometry.capacity(), sequential);
        let plain = Queue::FCFS.respond(&mut filled(&config), requests(&config)).mean_ms();
        let merged = aligned.respond(&mut filled(&config), requests(&config)).mean_ms();
        println!("{sequential}: {plain:.2} ms, aligned {merged:.2} ms");
        merged / plain
    };
    assert!((gain(0.0) - 1.0).abs() < 0.02);
    let (half, most) = (gain(0.4), gain(0.8));
    assert!(most < half && half < 1.0 && most < 0.6, "{half} {most}");
}

#[test]
fn merged_writes_are_one_page_write() {
    let mut ssd = filled(&Config::eight_packages(8, 8, 20));
    let writes = (0..8).map(|no| Request::new(RequestKind::Write, no * PAGE, PAGE));
    Queue { merging: true, ..Queue::FCFS }.respond(&mut ssd, writes);
    let counters = ssd.counters();
    assert_eq!((counters.host_pages_written, counters.pages_completed), (1, 0));
    assert_eq!((counters.host_bytes_written, counters.flash_pages_programmed), (8 * PAGE, 8));
}

/// Mean responses of priority requests and of others: a tenth has priority, half are writes.
fn with_priority(priority_aware: bool) -> [Responses; 2] {
    let cleaning = Cleaning { low_permille: 50, critical_permille: 20, priority_aware };
    let config = Config { cleaning: Some(cleaning), ..Config::eight_packages(1, 1, 200) };
    let mut ssd = filled(&config);
    let pages = ssd.geometry().pages();
    let mut random = Random::new(11);
    (0..2 * pages).for_each(|_| write_page(&mut ssd, random.below(pages), 0));
    let mut at_ns = ssd.idle_ns();
    let from_ns = at_ns;
    let requests = (0..60_000).map(move |_| {
        at_ns += u64::from(random.below(800_000));
        let kind = if random.below(2) == 0 { RequestKind::Write } else { RequestKind::Read };
        let request = Request::new(kind, u64::from(random.below(pages)) * PAGE, PAGE);
        Request { arrival_ns: at_ns, priority: random.below(10) == 0, ..request }
    });
    let mut responses = [Responses::default(); 2];
    let swtf = Queue { scheduling: Scheduling::Swtf, ..Queue::FCFS };
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
    let mut ssd = filled(&Config::eight_packages(8, 1, 20));
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

//! Tests of queues, background cleaning, wear levelling and informed cleaning: each has its published effect.

use crate::fixture::{PAGE, XorShift64, config, one_element, trim_page, write_page};
use sfs_ssd::ftl::{Collection, Isolation, Layer, WearLevelling};
use sfs_ssd::{
    Cleaning, HostRequest, RequestKind, RequestQueue, Responses, Scheduling, Ssd, SsdConfig,
};

fn filled(config: &SsdConfig) -> Ssd {
    Ssd::filled(config).expect("a device")
}

#[test]
fn shortest_wait_first_has_shorter_response_times_than_first_come_first_served() {
    let requests = |pages: u32| {
        let mut random = XorShift64::new(7);
        let mut at_ns = 0;
        let mut request = move || {
            at_ns += u64::from(random.below(250_000));
            let kind = if random.below(3) == 0 { RequestKind::Write } else { RequestKind::Read };
            let offset = u64::from(random.below(pages)) * PAGE;
            HostRequest { arrival_ns: at_ns, ..HostRequest::new(kind, offset, PAGE) }
        };
        (0..20_000).map(|_| request()).collect::<Vec<_>>()
    };
    let config = SsdConfig::eight_packages(1, 1, 100);
    let pages = config.geometry.pages();
    let fcfs = RequestQueue::FCFS.respond(&mut filled(&config), requests(pages)).mean_ms();
    let swtf = RequestQueue { scheduling: Scheduling::Swtf, ..RequestQueue::FCFS };
    let swtf = swtf.respond(&mut filled(&config), requests(pages)).mean_ms();
    println!("FCFS {fcfs:.3} ms, SWTF {swtf:.3} ms");
    assert!(swtf < 0.95 * fcfs, "FCFS {fcfs} ms, SWTF {swtf} ms");
}

#[test]
fn a_read_on_an_idle_device_takes_read_and_transfer_time() {
    let mut ssd = filled(&SsdConfig::eight_packages(8, 1, 20));
    let read = HostRequest::new(RequestKind::Read, 5 * PAGE, PAGE);
    assert_eq!(RequestQueue::FCFS.respond(&mut ssd, [read]).mean_ms(), 0.125);
    let eight_pages = HostRequest::new(RequestKind::Read, 0, 8 * PAGE);
    assert_eq!(
        RequestQueue::FCFS.respond(&mut ssd, [eight_pages]).mean_ms(),
        0.125,
        "all elements work in parallel"
    );
    let nine_pages = HostRequest::new(RequestKind::Read, 0, 9 * PAGE);
    assert_eq!(RequestQueue::FCFS.respond(&mut ssd, [nine_pages]).mean_ms(), 0.25);
}

/// Makes writes of 4 KiB, each of which continues the previous one with probability `sequential`.
fn runs(capacity: u64, sequential: f64) -> Vec<HostRequest> {
    let mut random = XorShift64::new(3);
    let (mut at_ns, mut block) = (0, 0);
    let mut request = move || {
        at_ns += u64::from(random.below(3_500_000));
        let blocks = (capacity / PAGE) as u32;
        block = match random.unit() < sequential {
            true => (block + 1) % blocks,
            false => random.below(blocks),
        };
        let request = HostRequest::new(RequestKind::Write, u64::from(block) * PAGE, PAGE);
        HostRequest { arrival_ns: at_ns, ..request }
    };
    (0..10_000).map(|_| request()).collect()
}

#[test]
fn merging_of_aligned_writes_gains_with_sequentiality_only() {
    let config = SsdConfig::eight_packages(8, 8, 200);
    let aligned = RequestQueue { merging: true, ..RequestQueue::FCFS };
    let gain = |sequential: f64| {
        let requests = |config: &SsdConfig| runs(config.geometry.capacity(), sequential);
        let plain = RequestQueue::FCFS.respond(&mut filled(&config), requests(&config)).mean_ms();
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
    let mut ssd = filled(&SsdConfig::eight_packages(8, 8, 20));
    let writes = (0..8).map(|no| HostRequest::new(RequestKind::Write, no * PAGE, PAGE));
    RequestQueue { merging: true, ..RequestQueue::FCFS }.respond(&mut ssd, writes);
    let counters = ssd.counters();
    assert_eq!((counters.host_pages_written, counters.pages_completed), (1, 0));
    assert_eq!((counters.host_bytes_written, counters.flash_pages_programmed), (8 * PAGE, 8));
}

/// Returns the response times of priority requests and of all others. A tenth of the requests has
/// priority, and half are writes.
fn with_priority(priority_aware: bool) -> [Responses; 2] {
    let cleaning = Cleaning { low_permille: 50, critical_permille: 20, priority_aware };
    let config = SsdConfig { cleaning: Some(cleaning), ..SsdConfig::eight_packages(1, 1, 200) };
    let mut ssd = filled(&config);
    let pages = ssd.geometry().pages();
    let mut random = XorShift64::new(11);
    (0..2 * pages).for_each(|_| write_page(&mut ssd, random.below(pages), 0));
    let mut at_ns = ssd.idle_ns();
    let from_ns = at_ns;
    let requests = (0..60_000).map(move |_| {
        at_ns += u64::from(random.below(800_000));
        let kind = if random.below(2) == 0 { RequestKind::Write } else { RequestKind::Read };
        let request = HostRequest::new(kind, u64::from(random.below(pages)) * PAGE, PAGE);
        HostRequest { arrival_ns: at_ns, priority: random.below(10) == 0, ..request }
    });
    let mut responses = [Responses::default(); 2];
    let swtf = RequestQueue { scheduling: Scheduling::Swtf, ..RequestQueue::FCFS };
    swtf.run(&mut ssd, from_ns, requests, |request, completion| {
        responses[usize::from(!request.priority)].add(completion);
    });
    responses
}

#[test]
fn priority_aware_cleaning_shortens_the_response_of_priority_requests() {
    let (agnostic, aware) = (with_priority(false), with_priority(true));
    let means = |responses: [Responses; 2]| responses.map(|responses| responses.mean_ms());
    println!("agnostic {:?}, aware {:?}", means(agnostic), means(aware));
    assert!(means(aware)[0] < 0.97 * means(agnostic)[0]);
}

#[test]
fn informed_cleaning_moves_fewer_pages() {
    let moved = |informed: bool| {
        let geometry = one_element(200, 64, 100);
        let config = config(Layer::GREEDY, WearLevelling::Dynamic, geometry);
        let mut ssd = Ssd::new(&SsdConfig { informed, ..config }).expect("a device");
        let pages = ssd.geometry().pages();
        let mut random = XorShift64::new(5);
        // About half of the space is in use, because one page is trimmed for each page that is written.
        for _ in 0..6 * pages {
            write_page(&mut ssd, random.below(pages), 0);
            trim_page(&mut ssd, random.below(pages));
        }
        ssd.counters().pages_moved
    };
    let (informed, uninformed) = (moved(true), moved(false));
    assert!(informed * 2 < uninformed, "{informed} {uninformed}");
}

#[test]
fn a_partial_page_write_reads_the_rest_of_the_page() {
    let mut ssd = filled(&SsdConfig::eight_packages(8, 1, 20));
    ssd.serve(&HostRequest::new(RequestKind::Write, 512, PAGE), 0);
    let counters = ssd.counters();
    assert_eq!((counters.host_pages_written, counters.pages_completed), (2, 2));
    assert_eq!((counters.flash_pages_read, counters.flash_pages_programmed), (2, 2));
    assert_eq!(ssd.write_amplification(), 2.0);
}

/// Returns the maximum difference of erase counts after many overwrites of one tenth of the pages.
fn spread(layer: Layer, wear: WearLevelling) -> u32 {
    let mut ssd = crate::fixture::ssd(layer, wear, 100, 16, 200);
    let pages = ssd.geometry().pages();
    (0..pages).for_each(|page| write_page(&mut ssd, page, 0));
    let mut random = XorShift64::new(2);
    (0..100 * pages).for_each(|_| write_page(&mut ssd, random.below(pages / 10), 0));
    let erases = ssd.flash().erases();
    erases.iter().max().unwrap() - erases.iter().min().unwrap()
}

#[test]
fn static_wear_levelling_bounds_the_difference_of_erase_counts() {
    let persistent = Isolation::Persistent;
    let fifo =
        Layer::PageMapped { collection: Collection::Fifo, streams: 1, isolation: persistent };
    for layer in [Layer::GREEDY, Layer::Fast { log_blocks: 4 }, Layer::Bast { log_blocks: 4 }] {
        let dynamic = spread(layer, WearLevelling::Dynamic);
        let levelled = spread(layer, WearLevelling::Static { spread: 20 });
        println!("{layer:?}: dynamic {dynamic}, static {levelled}");
        assert!(levelled < 60 && dynamic > 2 * levelled, "{layer:?} {dynamic} {levelled}");
    }
    assert!(spread(fifo, WearLevelling::None) < 3, "FIFO collection wears all blocks evenly");
}

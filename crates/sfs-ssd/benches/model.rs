//! Benchmark of the pages that a model writes per second, with mapping, collection and timing.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig, SsdProfile};

/// Number of pages that the host writes in one iteration.
const PAGES: u64 = 100_000;

const PAGE_SIZE: u64 = 4096;

/// Makes a device of 4 GiB with full timing, every page of which was written, and overwritten at random.
fn aged(layer: Layer) -> Ssd {
    let profile = SsdProfile::by_name("fast12").expect("a profile").with_capacity(4 << 30);
    let mut ssd = Ssd::new(&SsdConfig { layer, ..profile.config() }).expect("a device");
    let pages = u64::from(ssd.geometry().pages());
    for round in 0..2 {
        for page in 0..pages {
            let page = if round == 0 { page } else { scattered(page, pages) };
            ssd.serve(&HostRequest::new(RequestKind::Write, page * PAGE_SIZE, PAGE_SIZE), 0);
        }
    }
    ssd
}

fn scattered(no: u64, pages: u64) -> u64 {
    let mixed = no.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed ^ (mixed >> 29)) * u128::from(pages)) >> 64) as u64
}

fn page_mapped(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("page-mapped, 4 GiB, 10% to spare");
    group.throughput(Throughput::Elements(PAGES)).sample_size(20);
    let mut ssd = aged(Layer::GREEDY);
    let pages = u64::from(ssd.geometry().pages());
    let mut no = 0;
    for (name, random) in [("sequential", false), ("uniform random", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for _ in 0..PAGES {
                    no += 1;
                    let page = if random { scattered(no, pages) } else { no % pages };
                    let at = page * PAGE_SIZE;
                    black_box(ssd.serve(&HostRequest::new(RequestKind::Write, at, PAGE_SIZE), 0));
                }
            });
        });
    }
    group.finish();
}

fn fast(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("FAST, 4 GiB");
    let mut ssd = Ssd::new(&SsdConfig {
        layer: Layer::Fast { log_blocks: 64 },
        ..SsdProfile::by_name("fast12").expect("a profile").with_capacity(4 << 30).config()
    })
    .expect("a device");
    let pages = u64::from(ssd.geometry().pages());
    let mut no = 0;
    group.throughput(Throughput::Elements(PAGES)).sample_size(20);
    group.bench_function("sequential", |bencher| {
        bencher.iter(|| {
            for _ in 0..PAGES {
                no += 1;
                let at = no % pages * PAGE_SIZE;
                black_box(ssd.serve(&HostRequest::new(RequestKind::Write, at, PAGE_SIZE), 0));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, page_mapped, fast);
criterion_main!(benches);

//! The metadata tree alone: the cost of finding, adding and replacing one item in memory.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sfs_core::{format::Key, tree::Tree};

const ITEMS: u64 = 100_000;
/// Length of a typical inode item, in bytes.
const VALUE: [u8; 96] = [7; 96];

/// Spreads numbers over the keys: multiplication by an odd number modulo a power of two is a
/// bijection.
fn key(no: u64) -> Key {
    Key::inode(1 + no.wrapping_mul(0x9E37_79B9) % (1 << 32))
}

fn filled() -> Tree {
    let mut tree = Tree::new();
    for no in 0..ITEMS {
        tree.put(&key(no), &VALUE).expect("no node is missing: the tree was never written out");
    }
    tree
}

/// Returns the same tree as after a checkpoint.
fn written_out() -> Tree {
    let mut tree = filled();
    let mut end = 0;
    tree.write_out(1, 1, || {
        end += 1;
        end
    });
    tree
}

fn tree(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    let mut tree = filled();
    let mut no = 0;
    let mut next = || {
        no = (no + 7919) % ITEMS;
        key(no)
    };
    group.bench_function("get", |bencher| {
        bencher.iter_batched(
            &mut next,
            |key| black_box(tree.get(&key).is_ok()),
            BatchSize::SmallInput,
        );
    });
    let clean = written_out();
    group.bench_function("get, written out", |bencher| {
        bencher.iter_batched(
            &mut next,
            |key| black_box(clean.get(&key).is_ok()),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("replace", |bencher| {
        bencher.iter_batched(
            &mut next,
            |key| tree.put(&key, &VALUE).is_ok(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("put, ascending", |bencher| {
        let mut tree = Tree::new();
        let mut ino = 0;
        bencher.iter(|| {
            ino += 1;
            tree.put(&Key::inode(ino), &VALUE).is_ok()
        });
    });
    group.finish();
}

criterion_group!(benches, tree);
criterion_main!(benches);

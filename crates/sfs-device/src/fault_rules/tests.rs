use super::*;

const READS: Operations =
    Operations { reads: true, writes: false, flushes: false, discards: false };
const WRITES: Operations =
    Operations { reads: false, writes: true, flushes: false, discards: false };

fn rules(rule: FaultRule) -> FaultRules {
    let mut rules = FaultRules::default();
    rules.add(rule);
    rules
}

#[test]
fn a_rule_selects_by_operation_range_and_count() {
    let rule =
        FaultRule { range: Some(10..20), left: Some(2), ..FaultRule::new(FaultKind::Error, READS) };
    let mut rules = rules(rule);
    let fails: Vec<bool> = [
        (Operation::Write, 12, 1),
        (Operation::Read, 5, 5),
        (Operation::Read, 5, 6),
        (Operation::Read, 20, 1),
        (Operation::Flush, 0, 0),
        (Operation::Read, 19, 4),
        (Operation::Read, 12, 1),
    ]
    .map(|(operation, address, count)| rules.decide(operation, address, count).fails)
    .into();
    assert_eq!(fails, [false, false, true, false, false, true, false]);
    assert_eq!((rules.rules()[0].hits, rules.rules()[0].left), (2, Some(0)));
    rules.heal();
    assert!(rules.rules().is_empty());
}

#[test]
fn chance_has_its_probability_and_follows_the_seed() {
    let hits = |seed: u64| -> Vec<bool> {
        let rule =
            FaultRule { probability: 0.25, seed, ..FaultRule::new(FaultKind::Error, WRITES) };
        let mut rules = rules(rule);
        (0..4000).map(|address| rules.decide(Operation::Write, address, 1).fails).collect()
    };
    assert_eq!(hits(7), hits(7));
    assert_ne!(hits(7), hits(8));
    // Five standard deviations of a binomial distribution are 137.
    let count = hits(7).into_iter().filter(|fails| *fails).count();
    assert!(count.abs_diff(1000) < 137, "{count}");
}

#[test]
fn only_blocks_in_the_range_are_lost_or_wrong() {
    let lost = FaultRule { range: Some(3..5), ..FaultRule::new(FaultKind::Lost, Operations::ALL) };
    assert!(!lost.is_possible(), "reads cannot be lost");
    let lost = FaultRule { operations: WRITES, ..lost };
    assert!(lost.is_possible());
    let faults = rules(lost).decide(Operation::Write, 0, 10);
    let kept: Vec<u64> = (0..10).filter(|&address| !faults.loses(address)).collect();
    assert_eq!(kept, [0, 1, 2, 5, 6, 7, 8, 9]);

    let wrong = FaultRule { range: Some(3..5), ..FaultRule::new(FaultKind::WrongData, READS) };
    let faults = rules(wrong).decide(Operation::Read, 2, 4);
    let mut blocks = Block::zeroed(4);
    faults.corrupt(2, &mut blocks);
    let ones: Vec<u32> =
        blocks.iter().map(|block| block.0.iter().map(|byte| byte.count_ones()).sum()).collect();
    assert_eq!(ones, [0, 1, 1, 0], "one bit of each block");
}

/// A bit that is inverted twice would be right again.
#[test]
fn wrong_data_of_a_write_and_a_read_or_of_two_rules_does_not_cancel() {
    let both = FaultRule::new(FaultKind::WrongData, Operations { writes: true, ..READS });
    let mut device = rules(both.clone());
    device.add(both);
    let mut block = Block::zeroed(1);
    for operation in [Operation::Write, Operation::Read] {
        device.decide(operation, 12, 1).corrupt(12, &mut block);
    }
    let ones: u32 = block[0].0.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 4, "two rules, two operations");
}

#[test]
fn delays_add_up_and_a_flush_has_no_range() {
    let mut rules = rules(FaultRule::new(FaultKind::Slow(5), Operations::ALL));
    rules.add(FaultRule::new(FaultKind::Slow(u64::MAX - 6), READS));
    rules.add(FaultRule { range: Some(0..9), ..FaultRule::new(FaultKind::Error, Operations::ALL) });
    let flush = rules.decide(Operation::Flush, 0, 0);
    assert_eq!((flush.fails, flush.delay_ns), (false, 5));
    let read = rules.decide(Operation::Read, 8, u64::MAX);
    assert_eq!((read.fails, read.delay_ns), (true, u64::MAX - 1));
}

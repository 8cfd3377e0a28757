//! The example's policy separates what it is made to separate.

use own_policy::{TwoAges, amplification, of_sfs, victims, volume};

#[test]
fn two_ages_beat_one_group_where_some_blocks_are_hot() {
    let space = volume().expect("sizes");
    let own = Box::new(TwoAges::new(&space, 0.3));
    let by = victims(&space, "cost-benefit-sqrt").expect("a policy");
    let two_ages = amplification(&space, "hotcold:90/10", own, by).expect("room");
    let (none, by) = of_sfs(&space, "none").expect("a policy");
    let one_group = amplification(&space, "hotcold:90/10", none, by).expect("room");
    assert!(two_ages < 0.8 * one_group, "{two_ages} {one_group}");
}

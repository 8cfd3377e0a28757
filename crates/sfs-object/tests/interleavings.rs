//! Every order of the requests of two writers and a reader, with faults, in a small scope.
//!
//! With the feature `mutants` each deliberate bug of the protocol is found as well.
//! `cargo test --release -p sfs-object --test interleavings -- --ignored --nocapture` explores the large scopes.

mod explorer;
use explorer::scopes::{LONG, SMALL, Scope, check, hasty_writer, run};
use explorer::{Faults, Program, explore};

fn explore_all(scopes: &[Scope]) {
    for scope in scopes {
        match run(scope) {
            Ok(explored) => {
                println!("{}: {} states, {} ends", scope.name, explored.states, explored.ends);
                assert!(explored.ends > 0 && explored.states > 50, "{}: {explored:?}", scope.name);
            }
            Err(wrong) => panic!("{}: {}\n{}", scope.name, wrong.reason, wrong.events.join("\n")),
        }
    }
}

#[test]
fn nothing_is_lost_or_mixed_in_any_order() {
    explore_all(SMALL);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_is_lost_or_mixed_in_large_scopes() {
    explore_all(LONG);
}

/// A program that deletes objects before the new manifest is confirmed loses them, and the checks notice it.
#[test]
fn deleting_early_is_found() {
    let faults = Faults { lost_replies: 0, late_puts: 0, crashes: 0 };
    let wrong = explore(&[hasty_writer as Program], faults, &check).expect_err("the data is gone");
    assert_eq!(wrong.reason, "acknowledged [11], left []");
}

#[cfg(feature = "mutants")]
#[test]
fn each_deliberate_bug_is_found() {
    use sfs_object::mutant::{Mutant, release};

    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        release(Some(mutant));
        match SMALL.iter().find_map(|scope| run(scope).err().map(|wrong| (scope, wrong))) {
            Some((scope, wrong)) => println!("{mutant:?}: {}: {}", scope.name, wrong.reason),
            None => missed.push(mutant),
        }
    }
    release(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}

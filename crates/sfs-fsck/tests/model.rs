//! Random runs of the filesystem, closed or crashed: nothing is wrong with what they leave.
//!
//! The runs are those that `sfs-core` compares with its reference; what they answered is right by
//! then, and the usage table, the counts and the checksums on the device are what is left to check.

#[path = "../../sfs-core/tests/model/compare.rs"]
mod compare;
#[path = "../../sfs-core/tests/model/content.rs"]
#[expect(dead_code, reason = "what a crash may leave is checked in sfs-core")]
mod content;
#[path = "../../sfs-core/tests/model/history.rs"]
#[expect(dead_code, reason = "what a crash may leave is checked in sfs-core")]
mod history;
#[path = "../../sfs-core/tests/model/namespace.rs"]
mod namespace;
#[path = "../../sfs-core/tests/model/operation.rs"]
mod operation;
#[path = "../../sfs-core/tests/model/pair.rs"]
#[expect(dead_code, reason = "only recorded runs are made here")]
mod pair;
#[path = "../../sfs-core/tests/model/random.rs"]
mod random;
#[path = "../../sfs-core/tests/model/reference.rs"]
mod reference;
#[path = "../../sfs-core/tests/model/rig.rs"]
#[expect(dead_code, reason = "shared with the tests of sfs-core")]
mod rig;

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_device::RamDevice;
use sfs_fsck::{Options, Report, check};

use history::History;
use operation::Limits;
use random::{Random, Replay, number};
use reference::Reference;
use rig::{SEGMENT_BLOCKS, after, ram, tight, tight_with};

fn check_all(image: &RamDevice) -> Report {
    let mut go_on = |_| ControlFlow::Continue(());
    check(image, &Options { data: true }, &mut go_on).expect("there is a volume")
}

#[test]
fn nothing_is_wrong_with_what_runs_leave() {
    let runs = if std::env::var_os("SFS_SEED").is_some() { 1 } else { number("SFS_RUNS", 16) };
    let limits = Limits { bytes: 1 << 20, files: 40, reopens: true };
    for seed in (number("SFS_SEED", 1)..).take(runs as usize) {
        let mut random = Random::new(seed);
        let base = ram(4_400_000 + ((seed % 3) << 21), SEGMENT_BLOCKS);
        let steps = number("SFS_STEPS", 200);
        let test = "-p sfs-fsck --test model";
        let _replay = Replay { test, seed, steps };
        let run = History::record(
            base,
            tight_with(seed),
            Reference::new(),
            0,
            &limits,
            &mut random,
            steps,
        );
        for crash_no in 0..6 {
            let image = run.crash(&mut random).image;
            let report = check_all(&image);
            let findings = report.findings.kept();
            assert_eq!(report.errors(), 0, "seed {seed}, crash {crash_no}: {findings:?}");

            let image = Arc::new(image);
            let volume = Volume::open(image.clone(), tight(), after(0)).expect("it opens");
            rig::settle(&volume, after(60_000)).expect("it works");
            volume.close().expect("it closes");
            let report = check_all(&image);
            let findings = report.findings.kept();
            assert_eq!(report.errors(), 0, "seed {seed}, closed {crash_no}: {findings:?}");
            assert!(report.unmounted && report.rolled_chunks == 0);
        }
    }
}

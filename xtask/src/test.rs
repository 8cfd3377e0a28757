//! `cargo xtask test`: everything that CI runs for a commit, the fastest failures first.

use anyhow::{Result, anyhow};

use crate::{
    ahead, apps,
    bench::{card, tail},
    cargo::{self, cargo},
    crash, dist,
    filesystem::{FilesystemKind, Subject},
    fsx,
    guest::Suite,
    imports, installed, kernels, machine, pjdfstest,
    report::{StepOutcome, Tally},
    rooted,
    run::Cmd,
    test_store, where_page, words,
    workspace::Workspace,
};

const KILLS_LONG: u32 = 100;

/// Number of upgrades under load in a long run.
const UPGRADES_LONG: u32 = 200;
const DEATHS_LONG: u32 = 1000;

/// Seconds for each transport in a long run.
const STRESS_SECS_LONG: u32 = 600;

/// Seconds of the mixed load whose memory is measured, in a long run.
const MIXED_SECS_LONG: u32 = 3600;

/// Number of power cuts for each device and cache in a long run.
const CUTS_LONG: u32 = 25;

/// MiB of log that a mount has to recover within two seconds.
pub(crate) const RECOVERY_LOG_MIB: u64 = 1024;

/// Prefix of the names of all tests that mount. Such tests are skipped by this prefix where mounting is
/// impossible.
const MOUNT_TESTS: &str = "mounted_";

/// The mount tests that take long and depend little on the transport: a long run has them over each.
const OF_ONE_TRANSPORT: [&str; 3] = [
    "mounted_volumes_stay_within_their_memory_budget",
    "mounted_volumes_behave_alike_in_every_data_layout",
    "mounted_object_volumes",
];

/// Transports of the mount tests besides the default.
const TRANSPORTS: [&str; 2] = ["dev", "fuser"];

pub(crate) fn run(workspace: &Workspace, long: bool, tally: &mut Tally) {
    for (tool, package) in [
        ("fusermount3", "fuse3"),
        ("losetup", "util-linux"),
        ("setfattr", "attr"),
        ("setfacl", "acl"),
        ("chattr", "e2fsprogs"),
        ("xfs_io", "xfsprogs"),
        ("swapon", "mount"),
        ("script", "bsdutils"),
        ("mkfs.btrfs", "btrfs-progs"),
        ("fio", "fio"),
        ("sqlite3", "sqlite3"),
        ("postmark", "postmark"),
    ] {
        if let Err(missing) = machine::need(tool, package) {
            println!("{missing:#}");
        }
    }
    tally.step("imports", || imports::run(workspace));
    tally.step("words", || words::run(workspace));
    tally.step("docs/WHERE.md", || where_page::run(workspace));
    tally.step("format", || passes(cargo(workspace).args(["fmt", "--all", "--check"])));
    tally.step("lints", || {
        let targets = ["clippy", "--quiet", "--workspace", "--all-targets"];
        passes(cargo(workspace).args(targets).args(["--", "-D", "warnings"]))
    });
    tally.step("documentation", || {
        let cmd = cargo(workspace).args(["doc", "--quiet", "--workspace", "--no-deps"]);
        passes(cmd.env("RUSTDOCFLAGS", "-D warnings"))
    });
    dependencies(workspace, tally);
    let mounts = need_mounts();
    // The default transport is io_uring only with this setting.
    let rings = mounts.is_ok().then(machine::Rings::enable);
    if let Some(Err(reason)) = &rings {
        tally.skip("io_uring", reason);
    }
    tally.step("tests are built", || {
        passes(cargo(workspace).args(["test", "--quiet", "--workspace", "--no-run"]))
    });
    workspace.share_test_build();
    ahead::begin(workspace);
    tally.step("cargo test", || {
        let mut cmd = at_length(cargo(workspace), long);
        cmd = cmd.args(["test", "--workspace", "--no-fail-fast"]);
        if mounts.is_err() {
            cmd = cmd.args(["--", "--skip", MOUNT_TESTS]);
        }
        cargo::test(cmd)
    });
    match machine::need("dpkg-shlibdeps", "dpkg-dev") {
        Err(missing) => tally.skip("Debian package", &missing),
        Ok(()) => tally.step("Debian package", || dist::smoke(workspace)),
    }
    match mounts {
        Err(reason) => tally.skip("mount tests", &reason),
        Ok(()) => {
            for transport in TRANSPORTS {
                other_transport(workspace, transport, long, tally);
            }
            tally.step("bench tail, quick", || tail::smoke(workspace));
            tally.step("bench card, counts", || card::smoke(workspace));
        }
    }
    tally.step("crash states", || {
        let states = if long { crash::STATES_LONG } else { crash::STATES_SHORT };
        crash::budget(workspace, "log", states)
    });
    for data_layout in crash::OVERWRITING {
        tally.step(&format!("{data_layout}: model"), || {
            // With the whole workspace, as above, so that nothing is built twice.
            let model = ["test", "--workspace", "--test", "model"];
            cargo::test(cargo(workspace).args(model).env("SFS_LAYOUT", data_layout))
        });
        tally.step(&format!("{data_layout}: crash states"), || {
            let states = if long { crash::STATES_LONG } else { crash::STATES_OVERWRITING };
            crash::budget(workspace, data_layout, states)
        });
    }
    tally.step("mutation check", || crash::mutants(workspace, long));
    tally.step("a disk with an SSD cache", || crash::two_devices(workspace, long));
    tally.step("orders of requests to an object store", || crash::object_orders(workspace, long));
    if long {
        hostile(workspace, tally);
        browser(workspace, tally);
        recovery(workspace, RECOVERY_LOG_MIB, tally);
        prometheus(workspace, tally);
        busy_model(workspace, tally);
        for suite in Suite::ALL {
            installed::run(workspace, suite, tally);
            rooted::run(workspace, suite, tally);
        }
        kernels::run(workspace, tally);
        test_store::at_length(workspace, tally);
        tally.step("filling large volumes, bytes of a mixed load", || {
            let model = ["test", "--release", "-p", "sfs-core", "--test", "model"];
            let filters = ["--", "--ignored", "in_one_go", "a_mixed_load"];
            cargo::test(cargo(workspace).args(model).args(filters))
        });
        tally.step("waits for cleaning on a full card", || {
            let waits = ["test", "--release", "-p", "sfs-core", "--test", "waits"];
            cargo::test(cargo(workspace).args(waits).args(["--", "--ignored"]))
        });
    }
    let best = Subject::from(FilesystemKind::Sfs);
    let fuser = Subject::over("fuser");
    suites(workspace, best, if long { fsx::OPS_LONG } else { fsx::OPS_SHORT }, tally);
    for on in [fuser].into_iter().chain(crash::OVERWRITING.map(Subject::with_layout)) {
        suites(workspace, on, if long { fsx::OPS_LONG } else { fsx::OPS_OTHERS }, tally);
    }
    apps::run(workspace, best, long, tally);
    apps::run_on(workspace, fuser, apps::Storage::Loop, long, tally);
}

/// Runs the test suites of other projects.
fn suites(workspace: &Workspace, on: Subject, ops: u64, tally: &mut Tally) {
    pjdfstest::run(workspace, on, None, tally);
    fsx::run(workspace, on, ops, None, tally);
}

/// Runs the mount tests with another transport than the default.
fn other_transport(workspace: &Workspace, transport: &str, long: bool, tally: &mut Tally) {
    tally.step(&format!("mount tests over {transport}"), || {
        let cmd = at_length(cargo(workspace), long);
        // With the whole workspace: for one package alone its dependencies would be built again.
        let cmd = cmd.args(["test", "--workspace", "--no-fail-fast", "--test", "mount_*"]);
        let skipped = if long { &[][..] } else { &OF_ONE_TRANSPORT[..] };
        let skips = skipped.iter().flat_map(|test| ["--skip", test]);
        let cmd = cmd.args(["--", MOUNT_TESTS]).args(skips);
        cargo::test(cmd.env("SFS_TRANSPORT", transport))
    });
}

/// Sets the variables of a long run if `long`.
fn at_length(cmd: Cmd, long: bool) -> Cmd {
    if !long {
        return cmd;
    }
    let counts = [
        ("SFS_KILLS", KILLS_LONG),
        ("SFS_UPGRADES", UPGRADES_LONG),
        ("SFS_DEATHS", DEATHS_LONG),
        ("SFS_CUTS", CUTS_LONG),
        ("SFS_STRESS_SECS", STRESS_SECS_LONG),
        ("SFS_MIXED_SECS", MIXED_SECS_LONG),
    ];
    counts.iter().fold(cmd, |cmd, (name, count)| cmd.env(name, count.to_string()))
}

/// Runs the tests with forged and damaged images for a long time.
fn hostile(workspace: &Workspace, tally: &mut Tally) {
    let tests = [
        ("sfs-fsck", "hostile", "SFS_RUNS", "10000"),
        ("sfs-fsck", "damage", "SFS_RUNS", "250"),
        ("sfs-core", "decoders", "PROPTEST_CASES", "200000"),
    ];
    for (package, name, variable, value) in tests {
        tally.step(&format!("{name}, at length"), || {
            let cmd = cargo(workspace).args(["test", "--release", "--package", package]);
            cargo::test(cmd.args(["--test", name]).env(variable, value))
        });
    }
}

/// Shows the report of `sfs-ctl` in Chromium.
fn browser(workspace: &Workspace, tally: &mut Tally) {
    match machine::need("chromium", "chromium") {
        Err(missing) => tally.skip("report in a browser", &missing),
        Ok(()) => tally.step("report in a browser", || {
            let report = ["test", "--workspace", "--test", "report_in_browser"];
            cargo::test(cargo(workspace).args(report).args(["--", "--ignored"]))
        }),
    }
}

/// Checks that the mount tests can mount here.
pub(crate) fn need_mounts() -> Result<()> {
    machine::need_fuse()?;
    if machine::is_root() { Ok(()) } else { Err(anyhow!("the mount tests need root")) }
}

/// Runs the mount test that kills the daemon, alone.
pub(crate) fn kill(workspace: &Workspace, count: u32, tally: &mut Tally) {
    mounted(workspace, &format!("{count} kills"), "mount_kill", ("SFS_KILLS", count), tally);
}

/// Runs the mount test with many threads, alone, with the transport that `SFS_TRANSPORT` names.
pub(crate) fn stress(workspace: &Workspace, secs: u32, tally: &mut Tally) {
    let name = format!("{secs} s of 64 threads");
    mounted(workspace, &name, "mount_stress", ("SFS_STRESS_SECS", secs), tally);
}

/// Runs the mount test that cuts the power, alone, `count` times for each of two devices and
/// caches.
pub(crate) fn cut(workspace: &Workspace, count: u32, tally: &mut Tally) {
    let name = format!("4 times {count} power cuts");
    mounted(workspace, &name, "mount_power_cut", ("SFS_CUTS", count), tally);
}

/// Runs the mount test `test` alone, with an environment variable set.
fn mounted(
    workspace: &Workspace,
    name: &str,
    test: &str,
    (variable, value): (&str, u32),
    tally: &mut Tally,
) {
    match need_mounts() {
        Err(reason) => tally.skip(name, &reason),
        Ok(()) => tally.step(name, || {
            let cmd = cargo(workspace).args(["test", "--package", "sfs", "--test", test]);
            alone(cmd.env(variable, value.to_string()))
        }),
    }
}

/// Measures time and memory of a mount after a crash with `log_mib` MiB of log, alone.
pub(crate) fn recovery(workspace: &Workspace, log_mib: u64, tally: &mut Tally) {
    tally.step(&format!("recovery of {log_mib} MiB of log"), || {
        let cmd = cargo(workspace).args(["test", "--release", "--package", "sfs-core"]);
        alone(cmd.args(["--test", "recovery_time"]).env("SFS_LOG_MIB", log_mib.to_string()))
    });
}

/// Measures a check of `files` small files, and a mount with `mapped` blocks in place, on volumes of `gib` GiB.
pub(crate) fn scale(workspace: &Workspace, [files, mapped, gib]: [u64; 3], tally: &mut Tally) {
    tally.step(&format!("{files} files, {mapped} blocks in place, {gib} GiB"), || {
        let cmd = cargo(workspace).args(["test", "--release", "--package", "sfs-fsck"]);
        let cmd = cmd.args(["--test", "scale"]).env("SFS_FILES", files.to_string());
        alone(cmd.env("SFS_MAPPED", mapped.to_string()).env("SFS_GIB", gib.to_string()))
    });
}

/// Has the laboratory give up a filesystem on a model that stays in use.
fn busy_model(workspace: &Workspace, tally: &mut Tally) {
    let name = "a busy filesystem on a model";
    match need_mounts() {
        Err(reason) => tally.skip(name, &reason),
        Ok(()) => tally.step(name, || {
            let test = ["test", "--workspace", "--test", "ssd"];
            let filters = ["--", "--ignored", "a_busy_filesystem_is_given_up"];
            cargo::test(cargo(workspace).args(test).args(filters))
        }),
    }
}

/// Lets Prometheus scrape the metrics of a mount.
fn prometheus(workspace: &Workspace, tally: &mut Tally) {
    let name = "Prometheus scrapes a mount";
    match need_mounts().and_then(|()| machine::need("prometheus", "prometheus")) {
        Err(reason) => tally.skip(name, &reason),
        Ok(()) => tally.step(name, || {
            let test = ["test", "--workspace", "--test", "mount_metrics"];
            let filters = ["--", "--ignored", "mounted_metrics_are_scraped_by_prometheus"];
            cargo::test(cargo(workspace).args(test).args(filters))
        }),
    }
}

/// Runs the tests of `cmd`, and shows their output.
fn alone(cmd: Cmd) -> Result<StepOutcome> {
    let outcome = cargo::test(cmd.args(["--", "--nocapture"]))?;
    if outcome.passed + outcome.failed == 0 {
        return Err(anyhow!("no test was run"));
    }
    Ok(outcome)
}

/// Runs cargo-deny if it is installed; its advisories come from the network.
fn dependencies(workspace: &Workspace, tally: &mut Tally) {
    if cargo(workspace).args(["deny", "--version"]).read().is_err() {
        let missing = anyhow!("cargo-deny is missing: cargo install --locked cargo-deny");
        return tally.skip("dependencies", &missing);
    }
    tally.step("dependencies", || {
        passes(cargo(workspace).args(["deny", "check", "bans", "licenses", "sources"]))
    });
    tally.step("advisories", || {
        let output = cargo(workspace).args(["deny", "check", "advisories"]).output()?;
        let output_text = String::from_utf8_lossy(&output.stderr);
        if output_text.contains("failed to fetch") {
            return Ok(StepOutcome::skipped("the advisory database cannot be fetched from here"));
        }
        if !output.status.success() {
            println!("{output_text}");
            return Ok(StepOutcome::failed("cargo deny check advisories"));
        }
        Ok(StepOutcome::passed())
    });
}

fn passes(cmd: Cmd) -> Result<StepOutcome> {
    cmd.run().map(|()| StepOutcome::passed())
}

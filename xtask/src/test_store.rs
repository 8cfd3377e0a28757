//! `cargo xtask test-store`: volumes in object stores on real servers, at length.
//!
//! For each server: the mount tests with many deaths, races and cut connections, and the suites of other projects with a cache that
//! is smaller than the data, while the server and `sfs-store` are killed again and again.

use std::{env, path::PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use sfs_servers::ServerKind;

use crate::{
    apps,
    cargo::{self, cargo},
    filesystem::Subject,
    fsx, machine,
    object_store::StoreKind,
    pjdfstest,
    report::Tally,
    run::Cmd,
    test,
    workspace::Workspace,
};

const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const AZURITE: &str = "azurite@3.35.0";

/// Mount tests, by the beginnings of their names, that run on each server.
const TESTS: [&str; 7] = [
    "mounted_object_volumes_have_their_content",
    "mounted_object_volumes_may_be_larger",
    "mounted_object_volumes_survive_deaths",
    "mounted_object_volumes_do_not_notice",
    "mounted_object_volumes_wait_for_a_store",
    "mounted_object_volumes_are_taken",
    "mounted_object_volumes_have_one_writer",
];
const CUTS: &str = "mounted_object_volumes_are_whole_after_cut";

/// Counts for the variables of the mount tests.
const COUNTS: [(&str, u64); 5] = [
    ("SFS_DEATHS", 100),
    ("SFS_SERVER_DEATHS", 50),
    ("SFS_RACES", 200),
    ("SFS_CONNECTIONS_CUT", 200),
    ("SFS_SEED", 1),
];

#[derive(Args)]
pub(crate) struct TestStoreOptions {
    /// Servers: directory, simulated, versitygw, minio, rgw, azurite; without it, all.
    #[arg(long, value_delimiter = ',')]
    server: Vec<StoreKind>,
    /// Divide the counts of deaths, races and cuts by this number.
    #[arg(long, default_value_t = 1)]
    divide: u64,
    /// Run only this part.
    #[arg(long)]
    part: Option<Part>,
    /// Number of operations of fsx.
    #[arg(long, default_value_t = fsx::OPS_SHORT)]
    ops: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The mount tests of this project.
    Mounts,
    /// pjdfstest.
    Pjdfstest,
    /// fsx.
    Fsx,
    /// Copies, git and cargo.
    Apps,
}

/// Runs everything, as part of a long run of all tests.
pub(crate) fn at_length(workspace: &Workspace, tally: &mut Tally) {
    let all = TestStoreOptions { server: Vec::new(), divide: 1, part: None, ops: fsx::OPS_SHORT };
    on_servers(workspace, &all, tally);
}

/// Builds the programs, and runs what the options name.
pub(crate) fn run(
    workspace: &Workspace,
    options: &TestStoreOptions,
    tally: &mut Tally,
) -> Result<()> {
    workspace.build_programs()?;
    on_servers(workspace, options, tally);
    Ok(())
}

fn on_servers(workspace: &Workspace, options: &TestStoreOptions, tally: &mut Tally) {
    for store in StoreKind::all() {
        if !options.server.is_empty() && !options.server.contains(&store) {
            continue;
        }
        match test::need_mounts().and_then(|()| need(workspace, store)) {
            Err(reason) => tally.skip(&format!("object volumes in {store}"), &reason),
            Ok(()) => on_server(workspace, store, options, tally),
        }
    }
}

fn on_server(
    workspace: &Workspace,
    store: StoreKind,
    options: &TestStoreOptions,
    tally: &mut Tally,
) {
    let has = |part| options.part.is_none_or(|only| only == part);
    let on = Subject::in_store(store);
    if has(Part::Mounts) {
        tally.step(&format!("mount tests in {store}"), || {
            let cmd =
                cargo(workspace).args(["test", "--workspace", "--test", "mount_object", "--"]);
            // One server at a time: a cluster takes memory.
            let cmd = cmd.args(["--nocapture", "--test-threads=1", CUTS]).args(TESTS);
            let cmd = cmd.env("SFS_STORE", store.name()).env("SFS_TOOLS", workspace.tools());
            let counts = COUNTS.map(|(name, count)| (name, (count / options.divide).max(1)));
            let chosen = |name: &str, count: u64| env::var(name).unwrap_or(count.to_string());
            let cmd =
                counts.iter().fold(cmd, |cmd, (name, count)| cmd.env(name, chosen(name, *count)));
            cargo::test(cmd)
        });
    }
    if has(Part::Pjdfstest) {
        pjdfstest::run(workspace, on, None, tally);
    }
    if has(Part::Fsx) {
        fsx::run(workspace, on, options.ops, None, tally);
    }
    if has(Part::Apps) {
        apps::run_on(workspace, on, apps::Storage::Store, false, tally);
    }
}

/// Checks that versitygw is installed, or installs it.
pub(crate) fn need_versitygw(workspace: &Workspace) -> Result<()> {
    need(workspace, StoreKind::Server(ServerKind::Versitygw))
}

/// Checks that a server is installed, or installs it.
fn need(workspace: &Workspace, store: StoreKind) -> Result<()> {
    let tools = workspace.tools();
    let StoreKind::Server(kind) = store else { return Ok(()) };
    if kind == ServerKind::Rgw {
        // The package of the gateway has no cluster.
        for (tool, package) in
            [("radosgw", "radosgw"), ("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd")]
        {
            machine::need(tool, package)?;
        }
    }
    if matches!(kind, ServerKind::Simulated) || kind.program(&tools).is_ok() {
        return Ok(());
    }
    match kind {
        ServerKind::Versitygw => {
            let compiler = need_program("go", "a Go toolchain")?;
            println!("installing {VERSITYGW}");
            Cmd::new(compiler)
                .args(["install", VERSITYGW])
                .env("GOBIN", tools.join("bin"))
                .read()?;
        }
        ServerKind::Azurite => {
            let npm = need_program("npm", "Node.js")?;
            println!("installing {AZURITE}");
            let arguments = ["install", "--no-audit", "--no-fund", "--prefix"];
            Cmd::new(npm).args(arguments).arg(&tools).arg(AZURITE).read()?;
        }
        _ => {}
    }
    kind.program(&tools).map(drop).map_err(|reason| anyhow!(reason))
}

fn need_program(name: &str, what: &str) -> Result<PathBuf> {
    match machine::program(name) {
        Some(program) => Ok(program),
        None => bail!("{name} is missing: install {what}"),
    }
}

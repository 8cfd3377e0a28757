//! Connections to the server that end in the middle of a request or a reply.

use std::fs::{self, File};
use std::io::Write;

use sfs_servers::CuttingProxy;
use sfs_testkit::{SeededRng, number_from_env};

use super::harness::can_mount;
use super::machine::{Machine, Store};

/// Largest number of bytes of both directions before a connection is cut.
const BYTES_MAX: u64 = 400_000;
const FILE_MAX: u64 = 300_000;

/// Largest number of files of a test.
const FILES: u64 = 2_000;

/// With a fresh cache on another machine each file is whole, or its fsync has failed.
#[test]
fn mounted_object_volumes_are_whole_after_cut_connections() {
    if !can_mount() {
        return;
    }
    let cuts = number_from_env("SFS_CONNECTIONS_CUT", 4);
    let seed = number_from_env("SFS_SEED", 1);
    let mut random = SeededRng::new(seed);
    let (store, maker) = Store::of_network().with_new_volume("128M");
    drop(maker);
    let mut moments = SeededRng::new(seed + 1);
    let address = store.server().address();
    // One of four lives longer, so that there is progress.
    let next = move || {
        let most = if moments.below(4) == 0 { BYTES_MAX * 16 } else { BYTES_MAX };
        Some(1 + moments.below(most))
    };
    let proxy = CuttingProxy::start(address, next).expect("a port");
    let machine = Machine::new(&store).through(&store, proxy.address());
    let mount = machine.mount("durability=remote,commit=1,checkpoint=1");
    let mut written = Vec::new();
    // The mount has met some already.
    let goal = proxy.cuts() + cuts;
    while proxy.cuts() < goal && (written.len() as u64) < FILES {
        let len = 1 + random.below(FILE_MAX) as usize;
        let content = random.bytes(len);
        let path = mount.dir.join(format!("file-{}", written.len() % 50));
        let synced = File::create(&path).and_then(|mut file| {
            file.write_all(&content)?;
            file.sync_all()?;
            File::open(&mount.dir)?.sync_all()
        });
        written.push((path, content, synced.is_ok()));
    }
    let failed = written.iter().filter(|(.., is_synced)| !is_synced).count();
    println!("{} cuts, {} files, {failed} failed", proxy.cuts(), written.len());
    assert!(proxy.cuts() >= goal, "{} of {goal} cuts", proxy.cuts());
    mount.kill();
    mount.detach();
    let other = Machine::new(&store);
    let mount = other.mount("takeover");
    // Later files have replaced earlier ones.
    for (path, content, is_synced) in written.iter().rev().take(50) {
        let name = path.file_name().expect("a name");
        let found = fs::read(mount.dir.join(name)).unwrap_or_default();
        assert!(found == *content || !is_synced, "{}: {} bytes", path.display(), found.len());
    }
    mount.unmount();
}

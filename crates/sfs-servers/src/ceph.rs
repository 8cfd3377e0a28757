//! A cluster of Ceph with one monitor and one OSD, which has its objects in memory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kind::find_program;
use crate::process::{Process, free_address, run, text};
use crate::server::KEYS;

const CLUSTER: &str = "5f5e1a7c-0000-4000-8000-000000000001";

/// Starts the monitor and the OSD, and makes the user.
pub(crate) fn start_cluster(dir: &Path, tools: &Path) -> Result<Vec<Process>, String> {
    let program = |name: &str| {
        find_program(name, tools).ok_or_else(|| {
            format!("{name} is missing: apt-get install radosgw ceph-mon ceph-osd ceph-common")
        })
    };
    let [mon, osd, admin, maps] =
        ["ceph-mon", "ceph-osd", "radosgw-admin", "monmaptool"].map(program);
    let (mon, osd, admin, maps) = (mon?, osd?, admin?, maps?);
    let address = free_address()?;
    let [mon_dir, osd_dir] = ["mon", "osd"].map(|name| dir.join(name));
    for dir in [&mon_dir, &osd_dir] {
        fs::create_dir_all(dir).map_err(text)?;
    }
    fs::write(settings(dir), settings_text(dir, address)).map_err(text)?;
    let map = dir.join("monmap");
    let at = format!("v1:{address}");
    let of_maps = ["--create", "--clobber", "--fsid", CLUSTER, "--addv", "a"];
    run(Command::new(maps).args(of_maps).arg(format!("[{at}]")).arg(&map))?;
    run(of(&mut Command::new(&mon), dir).args(["--mkfs", "-i", "a", "--monmap"]).arg(&map))?;
    let log = dir.join("log");
    let mut cluster =
        vec![Process::start(of(&mut Command::new(&mon), dir).args(["-i", "a", "-f"]), &log)?];
    cluster[0].wait_for(address)?;
    let new = ["osd", "new", "5f5e1a7c-0000-4000-8000-000000000002"];
    run(of(&mut Command::new(program("ceph")?), dir).args(new))?;
    let of_osd = ["-i", "0", "--mkfs", "--osd-uuid", new[2]];
    run(of(&mut Command::new(&osd), dir).args(of_osd))?;
    cluster.push(Process::start(of(&mut Command::new(&osd), dir).args(["-i", "0", "-f"]), &log)?);
    let of_user = ["user", "create", "--uid", "sfs", "--display-name", "sfs"];
    let of_keys = ["--access-key", KEYS[0], "--secret-key", KEYS[1]];
    run(of(&mut Command::new(admin), dir).args(of_user).args(of_keys))?;
    Ok(cluster)
}

/// Adds the arguments of the gateway.
pub(crate) fn front_arguments(command: &mut Command, dir: &Path, address: SocketAddr) {
    of(command, dir).args(["-f", "-n", "client.rgw"]);
    command.arg(format!("--rgw-frontends=beast endpoint={address}"));
}

fn settings(dir: &Path) -> PathBuf {
    dir.join("ceph.conf")
}

fn of<'a>(command: &'a mut Command, dir: &Path) -> &'a mut Command {
    command.arg("-c").arg(settings(dir))
}

fn settings_text(dir: &Path, address: SocketAddr) -> String {
    let dir = dir.display();
    format!(
        "[global]\nfsid = {CLUSTER}\nmon_host = v1:{address}\nrun_dir = {dir}\nlog_file = {dir}/ceph.log\n\
         admin_socket = {dir}/$name.asok\npid_file =\nms_bind_msgr2 = false\npublic_addr = 127.0.0.1\n\
         auth_cluster_required = none\nauth_service_required = none\nauth_client_required = none\n\
         osd_pool_default_size = 1\nosd_pool_default_min_size = 1\nosd_pool_default_pg_num = 8\n\
         mon_allow_pool_size_one = true\nosd_crush_chooseleaf_type = 0\nmon_data = {dir}/mon\n\
         osd_data = {dir}/osd\nosd_objectstore = memstore\nmemstore_device_bytes = 4294967296\n\
         mon_data_avail_crit = 1\nrgw_dns_name =\n"
    )
}

//! Each server that is installed: it starts, is killed, and has its objects afterwards.
//!
//! `SFS_TOOLS` is the directory with programs that no package manager has installed (default: `target/tools`).

use std::path::{Path, PathBuf};
use std::process::Command;

use sfs_servers::{BUCKET, KEYS, ObjectServer, ServerKind};

fn tools() -> PathBuf {
    let ours = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    std::env::var_os("SFS_TOOLS").map_or_else(ours, PathBuf::from)
}

/// Sends a request of S3, and returns status and body.
fn curl(server: &ObjectServer, arguments: &[&str], name: &str) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--write-out", "\n%{http_code}"]).args(arguments);
    command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
    command.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &KEYS.join(":")]);
    let url = format!("http://{}/{BUCKET}/{name}", server.address());
    let output = command.arg(url).output().expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.to_owned(), body.to_owned())
}

#[test]
#[ignore = "needs servers"]
fn servers_start_and_keep_their_objects() {
    let scratch = std::env::temp_dir().join(format!("sfs-servers-{}", std::process::id()));
    for kind in ServerKind::ALL {
        let mut server = match ObjectServer::start(kind, &scratch.join(kind.name()), &tools()) {
            Ok(server) => server,
            Err(reason) => {
                eprintln!("skipped: {kind}: {reason}");
                continue;
            }
        };
        eprintln!("{kind}: {}", server.version());
        if kind == ServerKind::Azurite {
            server.kill();
            server.restart().expect("it starts again");
            continue;
        }
        let put = ["--request", "PUT", "--header", "If-None-Match: *", "--data-binary"];
        let one = [&put[..], &["content"]].concat();
        assert_eq!(curl(&server, &one, "name").0, "200", "{kind}");
        server.kill();
        server.restart().expect("it starts again");
        let other = [&put[..], &["other"]].concat();
        assert_eq!(curl(&server, &other, "name").0, "412", "{kind}");
        assert_eq!(curl(&server, &[], "name"), ("200".to_owned(), "content".to_owned()), "{kind}");
    }
    let _ = std::fs::remove_dir_all(scratch);
}

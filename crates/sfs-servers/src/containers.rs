//! Making a bucket on a new server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::kind::find_program;
use crate::process::run;
use crate::server::{BUCKET, KEYS};

/// The account that every Azurite has, and its key; both are in Microsoft's documentation.
pub(crate) const AZURE_ACCOUNT: &str = "devstoreaccount1";
pub(crate) const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Signs and sends the request that makes a container. Azurite needs Node.js anyway.
const MAKE_CONTAINER: &str = r#"
const [account, key, container, host, port] = process.argv.slice(1);
const version = "2021-12-02", date = new Date().toUTCString();
const path = `/${account}/${container}`;
const headers = `x-ms-date:${date}\nx-ms-version:${version}\n`;
const text = "PUT" + "\n".repeat(12) + headers + `/${account}${path}\nrestype:container`;
const signature = require("crypto").createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
const request = require("http").request({ host, port, method: "PUT", path: path + "?restype=container", headers: {
  "x-ms-date": date, "x-ms-version": version, "content-length": 0, authorization: `SharedKey ${account}:${signature}` } },
  answer => { answer.resume(); if (answer.statusCode != 201) { console.error(answer.statusCode); process.exit(1); } });
request.end();
"#;

pub(crate) fn make_azure(address: SocketAddr) -> Result<(), String> {
    let [host, port] = [address.ip().to_string(), address.port().to_string()];
    let arguments = [AZURE_ACCOUNT, AZURE_KEY, BUCKET, &host, &port];
    repeatedly(|| run(Command::new("node").args(["-e", MAKE_CONTAINER, "--"]).args(arguments)))
}

pub(crate) fn make_s3(address: SocketAddr, tools: &Path) -> Result<(), String> {
    let curl = find_program("curl", tools).ok_or("curl is missing: apt-get install curl")?;
    let url = format!("http://{address}/{BUCKET}");
    let keys = KEYS.join(":");
    repeatedly(|| {
        let mut command = Command::new(&curl);
        command.args(["--silent", "--show-error", "--fail-with-body", "--request", "PUT"]);
        // curl signs the header, but does not add it by itself in all versions.
        command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        command.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &keys, &url]);
        run(&mut command)
    })
}

/// A server may listen some time before it serves.
fn repeatedly(mut make: impl FnMut() -> Result<String, String>) -> Result<(), String> {
    let mut tried = Ok(String::new());
    for _ in 0..TRIES {
        tried = make();
        if tried.is_ok() {
            break;
        }
        thread::sleep(PAUSE);
    }
    tried.map(drop).map_err(|error| format!("making a bucket: {error}"))
}

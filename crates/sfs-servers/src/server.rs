//! A server with one bucket.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ceph;
use crate::containers::{self, AZURE_ACCOUNT, AZURE_KEY};
use crate::kind::ServerKind;
use crate::process::{Process, free_address, run, text};
use crate::simulated::SimulatedStore;

/// Bucket of every server.
pub const BUCKET: &str = "bucket";

/// Access key and secret key of every server of S3.
pub const KEYS: [&str; 2] = ["sfsaccesskey", "sfssecretkey"];

/// A server, which ends with the value.
#[derive(Debug)]
pub struct ObjectServer {
    kind: ServerKind,
    address: SocketAddr,
    dir: PathBuf,
    tools: PathBuf,
    /// The process that clients talk to, while it lives.
    front: Option<Process>,
    /// Processes behind it, which are not killed before the end.
    _behind: Vec<Process>,
    simulated: Option<SimulatedStore>,
}

impl ObjectServer {
    /// Starts a server on a free port, with its data in `dir`, and makes the bucket. Programs that a package manager has not
    /// installed are looked for in `tools`.
    ///
    /// # Errors
    ///
    /// The missing program, or how the start has failed.
    pub fn start(kind: ServerKind, dir: &Path, tools: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(text)?;
        let mut server = Self {
            kind,
            address: free_address()?,
            dir: dir.to_owned(),
            tools: tools.to_owned(),
            front: None,
            _behind: Vec::new(),
            simulated: None,
        };
        if kind == ServerKind::Simulated {
            let store = SimulatedStore::start()?;
            server.address = store.address();
            server.simulated = Some(store);
            return Ok(server);
        }
        kind.program(tools)?;
        if kind == ServerKind::Rgw {
            server._behind = ceph::start_cluster(dir, tools)?;
        }
        server.restart()?;
        server.make_bucket()?;
        Ok(server)
    }

    /// Returns the kind.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a volume in the bucket.
    pub fn url(&self, volume: &str) -> String {
        let scheme = if self.kind == ServerKind::Azurite { "az" } else { "s3" };
        format!("{scheme}://{BUCKET}/{volume}")
    }

    /// Returns the environment of programs that use the server, at its own address or at that of a proxy.
    pub fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        if self.kind == ServerKind::Azurite {
            return vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT.to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.to_owned()),
                ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
                ("AZURITE_BLOB_STORAGE_URL", format!("http://{address}")),
            ];
        }
        vec![
            ("AWS_ACCESS_KEY_ID", KEYS[0].to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEYS[1].to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Returns the process that clients talk to, if it is another one than this and lives.
    pub fn process_id(&self) -> Option<u32> {
        self.front.as_ref().map(Process::id)
    }

    /// Returns the directory that has the objects of a volume in the bucket, if the server keeps them as files.
    pub fn objects(&self, volume: &str) -> Option<PathBuf> {
        let has_files = self.kind == ServerKind::Versitygw;
        has_files.then(|| self.dir.join("data").join(BUCKET).join(volume))
    }

    /// Kills the process that clients talk to, without a warning.
    pub fn kill(&mut self) {
        self.front = None;
        if let Some(store) = &self.simulated {
            store.go_down();
        }
    }

    /// Starts the server again, at the same address and with the same data.
    ///
    /// # Errors
    ///
    /// How the start has failed.
    pub fn restart(&mut self) -> Result<(), String> {
        if let Some(store) = &self.simulated {
            store.come_up();
            return Ok(());
        }
        let mut front = Process::start(&mut self.command()?, &self.dir.join("log"))?;
        front.wait_for(self.address).map_err(|error| format!("{}: {error}", self.kind))?;
        self.front = Some(front);
        Ok(())
    }

    /// Returns whether an object of the simulated store has `bytes`; `false` for other servers.
    pub fn simulated_holds(&self, bytes: &[u8]) -> bool {
        self.simulated.as_ref().is_some_and(|store| store.holds(bytes))
    }

    /// Returns what the server says of its version.
    pub fn version(&self) -> String {
        let program = self.kind.program(&self.tools);
        let said = program.and_then(|program| run(Command::new(program).arg("--version")));
        said.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    }

    fn command(&self) -> Result<Command, String> {
        let mut command = Command::new(self.kind.program(&self.tools)?);
        let address = self.address.to_string();
        let data = self.dir.join("data");
        fs::create_dir_all(&data).map_err(text)?;
        match self.kind {
            ServerKind::Versitygw => {
                // Extended attributes, not files beside the objects (--sidecar): a server that is killed between the two
                // leaves a name that is taken and cannot be read.
                command.args(["--access", KEYS[0], "--secret", KEYS[1], "--port", &address]);
                command.args(["--quiet", "posix"]).arg(data);
            }
            ServerKind::Minio => {
                command.env("MINIO_ROOT_USER", KEYS[0]).env("MINIO_ROOT_PASSWORD", KEYS[1]);
                command.args(["server", "--quiet", "--address", &address]).arg(data);
            }
            ServerKind::Azurite => {
                let port = self.address.port().to_string();
                command.args(["--blobHost", "127.0.0.1", "--blobPort", &port, "--location"]);
                command.arg(data).args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
            }
            ServerKind::Rgw => ceph::front_arguments(&mut command, &self.dir, self.address),
            ServerKind::Simulated => return Err("it has no program".to_owned()),
        }
        Ok(command)
    }

    fn make_bucket(&self) -> Result<(), String> {
        match self.kind {
            ServerKind::Azurite => containers::make_azure(self.address),
            _ => containers::make_s3(self.address, &self.tools),
        }
    }
}

//! The stores: the simulated one in a process of its own, and versitygw.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, ChildStdout},
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use clap::ValueEnum;
use sfs_servers::{KEYS, ObjectServer, ServerKind, Traffic};

use super::processor;
use crate::{run::Cmd, scratch::Scratch, workspace::Workspace};

/// A store by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum StoreName {
    /// 30 ms a request, 100 MB/s in sum.
    Simulated,
    /// versitygw on this machine.
    Versitygw,
}

impl StoreName {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Simulated => "30 ms a request, 100 MB/s",
            Self::Versitygw => "versitygw on this machine",
        }
    }
}

/// A store that runs, until it is dropped.
pub(super) struct Target {
    pub(super) name: StoreName,
    pub(super) address: SocketAddr,
    server: Server,
}

enum Server {
    Simulated(Mutex<Simulated>),
    Real(ObjectServer),
}

struct Simulated {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Target {
    pub(super) fn start(name: StoreName, workspace: &Workspace, scratch: &Scratch) -> Result<Self> {
        if name == StoreName::Versitygw {
            let dir = scratch.directory("versitygw")?;
            let server = ObjectServer::start(ServerKind::Versitygw, &dir, &workspace.tools());
            let server = server.map_err(|reason| anyhow!(reason))?;
            return Ok(Self { name, address: server.address(), server: Server::Real(server) });
        }
        let cmd = Cmd::new(std::env::current_exe()?).args(["bench", "store", "--serve"]);
        let mut child = cmd.piped_in().spawn_apart()?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let to = to.context("standard input is not a pipe")?;
        let from = BufReader::new(from.context("standard output is not a pipe")?);
        let mut simulated = Simulated { child, to, from };
        let address = simulated.line()?.parse().context("the address of the store")?;
        Ok(Self { name, address, server: Server::Simulated(Mutex::new(simulated)) })
    }

    /// Returns the environment of the programs of SFS.
    pub(super) fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", KEYS[0].to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEYS[1].to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Returns the processor time of the server so far.
    pub(super) fn processor(&self) -> Duration {
        match &self.server {
            Server::Simulated(simulated) => {
                processor::of(simulated.lock().expect("no panic").child.id())
            }
            Server::Real(server) => server.process_id().map(processor::of).unwrap_or_default(),
        }
    }

    /// Returns what has passed so far, if the server counts.
    pub(super) fn traffic(&self) -> Result<Option<Traffic>> {
        match &self.server {
            Server::Simulated(simulated) => {
                let [requests, received, sent] =
                    simulated.lock().expect("no panic").ask("traffic")?;
                Ok(Some(Traffic { requests, received, sent }))
            }
            Server::Real(_) => Ok(None),
        }
    }

    /// Returns the number of objects below a prefix, and their bytes, without a request that counts.
    pub(super) fn stored(&self, prefix: &str) -> Result<(u64, u64)> {
        match &self.server {
            Server::Simulated(simulated) => {
                let asked = format!("stored {prefix}/");
                let [objects, bytes] = simulated.lock().expect("no panic").ask(&asked)?;
                Ok((objects, bytes))
            }
            Server::Real(server) => {
                let dir = server.objects(prefix).context("the directory of the objects")?;
                Ok(files_below(&dir))
            }
        }
    }

    /// Removes all objects below a prefix.
    pub(super) fn clear(&self, prefix: &str) -> Result<()> {
        match &self.server {
            Server::Simulated(simulated) => {
                let [] = simulated.lock().expect("no panic").ask(&format!("clear {prefix}/"))?;
            }
            Server::Real(server) => {
                let dir = server.objects(prefix).context("the directory of the objects")?;
                if dir.exists() {
                    fs::remove_dir_all(dir)?;
                }
            }
        }
        Ok(())
    }
}

impl Simulated {
    fn ask<const N: usize>(&mut self, question: &str) -> Result<[u64; N]> {
        writeln!(self.to, "{question}")?;
        let line = self.line()?;
        let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        numbers.try_into().map_err(|_| anyhow!("the store has answered {line}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of files with content below a directory, and their bytes.
fn files_below(dir: &Path) -> (u64, u64) {
    let mut found = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let (files, bytes) = files_below(&entry.path());
                found = (found.0 + files, found.1 + bytes);
            }
            Ok(metadata) => found = (found.0 + 1, found.1 + metadata.len()),
            // It was removed meanwhile.
            Err(_) => {}
        }
    }
    found
}

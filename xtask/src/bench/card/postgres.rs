//! PostgreSQL under pgbench: transactions like TPC-B's and select-only ones, one as often as the other.
//!
//! The server runs as an unprivileged user with the data directory on the volume and its socket outside of
//! it. It has its defaults except: 64 MB of shared buffers, a checkpoint every 30 s, and a small WAL.

use std::{
    fs::{self, File},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    load::{Limit, Load, Place, Program, Work, Works},
    process::{Running, finish},
};
use crate::{cleanup, machine, run::Cmd};

/// Scale of pgbench: 100,000 accounts each.
const SCALE: u32 = 5;

const CLIENTS: u64 = 4;

/// Settings that differ from the defaults.
const SETTINGS: [&str; 8] = [
    "shared_buffers=64MB",
    "checkpoint_timeout=30s",
    "max_wal_size=128MB",
    "min_wal_size=32MB",
    "listen_addresses=",
    "logging_collector=off",
    "max_connections=20",
    "autovacuum_naptime=15s",
];

const START_MAX: Duration = Duration::from_secs(60);

/// Directory of Debian's versions.
const VERSIONS: &str = "/usr/lib/postgresql";

pub(super) fn need() -> Result<()> {
    if !machine::is_root() {
        bail!("PostgreSQL refuses root, and only root can change to its user");
    }
    machine::need("pgbench", "postgresql")?;
    programs_dir().map(drop)
}

/// Returns the directory of the programs of the newest version.
fn programs_dir() -> Result<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|version| Path::new(VERSIONS).join(format!("{version}/bin/initdb")).exists())
        .max();
    let newest = newest.context("no initdb in /usr/lib/postgresql: apt-get install postgresql")?;
    Ok(Path::new(VERSIONS).join(format!("{newest}/bin")))
}

/// Returns the numbers of the user `postgres` and its group, or else those of `nobody`.
fn user() -> Result<(u32, u32)> {
    let name = match Cmd::new("id").args(["-u", "postgres"]).read() {
        Ok(_) => "postgres",
        Err(_) => "nobody",
    };
    let number =
        |kind: &str| -> Result<u32> { Ok(Cmd::new("id").args([kind, name]).read()?.parse()?) };
    Ok((number("-u")?, number("-g")?))
}

pub(super) struct Postgres {
    programs: PathBuf,
    user: (u32, u32),
    /// Directory of the socket, and of the logs of pgbench.
    outside: PathBuf,
    _server: Running,
    /// Number of runs of pgbench so far.
    runs: u32,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Postgres> {
    let (programs, user) = (programs_dir()?, user()?);
    for dir in [&place.dir, &place.outside] {
        chown(dir, Some(user.0), Some(user.1))?;
    }
    let data = place.dir.join("data");
    let cmd = Cmd::new(programs.join("initdb")).by_user(user).dir(&place.outside);
    let cmd = cmd.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
    let errors = place.outside.join("errors");
    finish(cmd.arg("--pgdata").arg(&data), &errors)?;
    let log = File::create(place.outside.join("server.log"))?;
    let server = Cmd::new(programs.join("postgres")).by_user(user).dir(&place.outside);
    let server = server.arg("-D").arg(&data).arg("-k").arg(&place.outside).errors_to(log);
    let server = SETTINGS.iter().fold(server, |cmd, setting| cmd.args(["-c", setting]));
    let server = Running::start_interruptible(server)?;
    let outside = place.outside.clone();
    let postgres = Postgres { programs, user, outside, _server: server, runs: 0 };
    postgres.wait_for_server()?;
    let cmd = postgres.client("pgbench").args(["--initialize", "--quiet"]);
    finish(cmd.args(["--scale", &SCALE.to_string()]).arg("postgres"), &errors)?;
    postgres.client("psql").args(["-q", "-c", "CHECKPOINT"]).arg("postgres").read()?;
    Ok(postgres)
}

impl Postgres {
    /// Prepares a client of the server.
    fn client(&self, name: &str) -> Cmd {
        let cmd = Cmd::new(self.programs.join(name)).by_user(self.user).dir(&self.outside);
        cmd.arg("--host").arg(&self.outside).args(["--username", "postgres"])
    }

    fn wait_for_server(&self) -> Result<()> {
        let end = Instant::now() + START_MAX;
        while self.client("psql").args(["-q", "-c", "SELECT 1"]).arg("postgres").read().is_err() {
            if Instant::now() > end || cleanup::is_stopping() {
                let log = fs::read_to_string(self.outside.join("server.log")).unwrap_or_default();
                bail!("PostgreSQL does not start: {}", log.trim());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Load for Postgres {
    fn run(&mut self, limit: Limit) -> Result<Works> {
        self.runs += 1;
        let log = format!("transactions-{}", self.runs);
        let end = match limit {
            Limit::Time(time) => ["--time".to_owned(), time.as_secs().max(1).to_string()],
            Limit::Units(units) => {
                ["--transactions".to_owned(), units.div_ceil(CLIENTS).to_string()]
            }
        };
        let cmd = self.client("pgbench").args(["--no-vacuum", "--client", &CLIENTS.to_string()]);
        let cmd = cmd.args(["--builtin=tpcb-like@1", "--builtin=select-only@1"]).args(end);
        let cmd = cmd.arg("--log").arg(format!("--log-prefix={log}")).arg("postgres");
        finish(cmd, &self.outside.join("errors"))?;
        Ok(vec![(Program::Postgres, read_logs(&self.outside, &log)?)])
    }
}

/// Reads the transactions of all logs that begin with `prefix`, and removes the logs.
fn read_logs(dir: &Path, prefix: &str) -> Result<Work> {
    let mut work = Work::default();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&format!("{prefix}.")) {
            work.unit_ns.extend(fs::read_to_string(&path)?.lines().filter_map(unit_ns));
            fs::remove_file(&path)?;
        }
    }
    Ok(work)
}

/// Returns the duration of the transaction in a line of pgbench's log: client, transaction, microseconds.
fn unit_ns(line: &str) -> Option<u64> {
    Some(line.split(' ').nth(2)?.parse::<u64>().ok()? * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_number_of_a_line_is_the_duration() {
        assert_eq!(unit_ns("0 199 2241 0 1175850568 995598"), Some(2_241_000));
        assert_eq!(unit_ns("0 199 skipped 0 1175850568 995598"), None);
    }
}

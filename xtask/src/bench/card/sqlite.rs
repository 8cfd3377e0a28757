//! SQLite, by the shell `sqlite3`, which stays open and is given one transaction after the other.
//!
//! The recorder has the settings of Home Assistant's: one connection, a write-ahead log,
//! `synchronous=NORMAL`, a cache of 8 MiB. Each reading of a sensor is committed by itself. The other load
//! has SQLite's defaults: a rollback journal that is deleted, and `synchronous=FULL`.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{ChildStdin, ChildStdout},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    load::{Place, Program, UnitLoad, timed},
    process::Running,
};
use crate::{machine, run::Cmd};

/// Number of sensors, and of counters in the rollback load.
const SENSORS: u64 = 20;

/// Number of readings before the measurement.
const READINGS_BEFORE: u64 = 50_000;

/// Number of rows that transactions of the rollback load update.
const ACCOUNTS: u64 = 20_000;

/// Line that ends the answer to a request.
const DONE: &str = "done";

const RECORDER: &str = "
    PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-8192; PRAGMA foreign_keys=ON;
    CREATE TABLE state_attributes(attributes_id INTEGER PRIMARY KEY, hash INT, shared_attrs TEXT);
    CREATE INDEX ix_attributes_hash ON state_attributes(hash);
    CREATE TABLE states(state_id INTEGER PRIMARY KEY, metadata_id INT, state VARCHAR(255), attributes_id INT
        REFERENCES state_attributes(attributes_id), last_updated_ts FLOAT, old_state_id INT REFERENCES states(state_id));
    CREATE INDEX ix_states_metadata ON states(metadata_id, last_updated_ts);
    CREATE INDEX ix_states_updated ON states(last_updated_ts);
    CREATE INDEX ix_states_attributes ON states(attributes_id);
    CREATE INDEX ix_states_old ON states(old_state_id);";

const ROLLBACK: &str = "
    CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance INT, filler CHAR(80));
    CREATE TABLE history(id INTEGER PRIMARY KEY, account INT, delta INT);";

pub(super) fn need() -> Result<()> {
    machine::need("sqlite3", "sqlite3")
}

/// An open shell.
struct Shell {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: std::path::PathBuf,
    _running: Running,
}

impl Shell {
    fn open(database: &Path, errors: &Path) -> Result<Self> {
        let cmd = Cmd::new("sqlite3").args(["-batch", "-bail", "-init", "/dev/null"]).arg(database);
        let cmd = cmd.piped_in().errors_to(File::create(errors)?);
        let mut running = Running::start(cmd)?;
        let input = running.child.stdin.take().context("standard input of sqlite3")?;
        let output = running.child.stdout.take().context("standard output of sqlite3")?;
        let errors = errors.to_owned();
        Ok(Self { input, output: BufReader::new(output), errors, _running: running })
    }

    /// Runs SQL, and waits for its end.
    fn ask(&mut self, sql: &str) -> Result<()> {
        let written =
            writeln!(self.input, "{sql}\nSELECT '{DONE}';").and_then(|()| self.input.flush());
        let mut line = String::new();
        while written.is_ok() {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                break;
            }
            if line.trim_end() == DONE {
                return Ok(());
            }
        }
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        bail!("sqlite3 ended: {}", errors.trim());
    }
}

/// A stream of reproducible numbers (xorshift).
#[derive(Debug)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// The recorder with its number of readings so far.
pub(super) struct Recorder {
    shell: Shell,
    readings: u64,
    numbers: Numbers,
}

pub(super) fn prepare_recorder(place: &Place<'_>) -> Result<Recorder> {
    let mut shell = Shell::open(&place.dir.join("recorder.db"), &place.outside.join("errors"))?;
    shell.ask(RECORDER)?;
    let mut recorder = Recorder { shell, readings: 0, numbers: Numbers::new(1) };
    let mut sql = "BEGIN;\n".to_owned();
    for _ in 0..READINGS_BEFORE {
        sql += &recorder.reading();
    }
    recorder.shell.ask(&(sql + "COMMIT;"))?;
    Ok(recorder)
}

impl Recorder {
    /// Returns the SQL for the next reading, of the next sensor.
    fn reading(&mut self) -> String {
        self.readings += 1;
        let id = self.readings;
        let (sensor, value) = (id % SENSORS, self.numbers.below(10_000) as f64 / 100.0);
        let old = if id > SENSORS { (id - SENSORS).to_string() } else { "NULL".to_owned() };
        let seconds = id as f64 / SENSORS as f64 + 1.7e9;
        let mut sql = String::new();
        // The attributes of a sensor change rarely, and are shared by its readings.
        let attributes = (id - 1) / 1_000 + 1;
        if (id - 1).is_multiple_of(1_000) {
            sql += &format!(
                "INSERT INTO state_attributes VALUES({attributes},{},'{{\"state_class\":\"measurement\",\
                 \"unit_of_measurement\":\"C\",\"device_class\":\"temperature\",\"friendly_name\":\"Sensor {sensor}\"}}');\n",
                self.numbers.below(1 << 32)
            );
        }
        sql += &format!(
            "INSERT INTO states VALUES({id},{sensor},'{value}',{attributes},{seconds},{old});\n"
        );
        sql
    }
}

impl UnitLoad for Recorder {
    const PROGRAM: Program = Program::Recorder;

    fn unit(&mut self) -> Result<Duration> {
        let sql = format!("BEGIN IMMEDIATE;\n{}COMMIT;", self.reading());
        timed(|| self.shell.ask(&sql))
    }
}

/// A database with a rollback journal.
pub(super) struct Rollback {
    shell: Shell,
    numbers: Numbers,
}

pub(super) fn prepare_rollback(place: &Place<'_>) -> Result<Rollback> {
    let mut shell = Shell::open(&place.dir.join("rollback.db"), &place.outside.join("errors"))?;
    shell.ask(ROLLBACK)?;
    let mut sql = "BEGIN;\n".to_owned();
    for id in 0..ACCOUNTS {
        sql += &format!("INSERT INTO accounts VALUES({id},0,printf('%80s','x'));\n");
    }
    shell.ask(&(sql + "COMMIT;"))?;
    Ok(Rollback { shell, numbers: Numbers::new(2) })
}

impl UnitLoad for Rollback {
    const PROGRAM: Program = Program::Rollback;

    fn unit(&mut self) -> Result<Duration> {
        let (account, delta) = (self.numbers.below(ACCOUNTS), self.numbers.below(1_000));
        let sql = format!(
            "BEGIN IMMEDIATE;\nUPDATE accounts SET balance=balance+{delta} WHERE id={account};\n\
             INSERT INTO history(account,delta) VALUES({account},{delta});\nCOMMIT;"
        );
        timed(|| self.shell.ask(&sql))
    }
}

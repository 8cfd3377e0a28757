//! dpkg unpacks fifty packages of Debian into a directory, in one call as apt makes it.
//!
//! dpkg syncs every file and its own database, as in an upgrade. Only the scripts of the packages are missing:
//! all fifty have none that runs before the unpacking, and they are not configured.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    load::{Limit, Load, Place, Program, Stopwatch, Works},
    process::Running,
};
use crate::{machine, run::Cmd};

/// Small packages of every Debian system or its archive, without a script before the unpacking.
const PACKAGES: &str = "bc bzip2 cpio dc dialog diffutils dos2unix ed fakeroot file findutils gawk \
    gettext-base grep groff-base gzip hostname jq libarchive-tools lsof lzip m4 make mawk mtools nano \
    ncurses-bin net-tools netcat-openbsd ntfs-3g patch patchutils pax psmisc pv sed socat sqlite3 strace tar \
    time tree unzip usbutils vim-common wget whois xz-utils zip zstd";

/// Number of packages without which the load would be another one.
const PACKAGES_MIN: usize = 45;

pub(super) fn need() -> Result<()> {
    machine::need("dpkg", "dpkg")?;
    machine::need("apt-get", "apt")
}

/// Returns the package files in `dir`, which are downloaded by apt-get if they are not there.
pub(super) fn packages(dir: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    for name in PACKAGES.split_whitespace() {
        if find(dir, name)?.is_none() {
            println!("downloading {name}");
            // Without a sandbox user, who could not write into the directory.
            let cmd = Cmd::new("apt-get").args(["-qq", "-o", "APT::Sandbox::User=root"]);
            if let Err(error) = cmd.args(["download", name]).dir(dir).read() {
                eprintln!("{name} is left out: {error:#}");
            }
        }
    }
    let mut packages = Vec::new();
    for name in PACKAGES.split_whitespace() {
        let Some(path) = find(dir, name)? else { continue };
        let script = Cmd::new("dpkg-deb").arg("--info").arg(&path).arg("preinst").output()?;
        if script.status.success() {
            eprintln!("{name} is left out: it has a script that runs before the unpacking");
            continue;
        }
        packages.push(path);
    }
    ensure!(
        packages.len() >= PACKAGES_MIN,
        "only {} packages in {}: apt-get update, and a network, are needed once",
        packages.len(),
        dir.display()
    );
    Ok(packages)
}

fn find(dir: &Path, name: &str) -> Result<Option<PathBuf>> {
    let prefix = format!("{name}_");
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if file_name.starts_with(&prefix) && file_name.ends_with(".deb") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

pub(super) struct Dpkg {
    dir: PathBuf,
    packages: Vec<PathBuf>,
    errors: PathBuf,
    /// Number of roots so far.
    roots: u32,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Dpkg> {
    Ok(Dpkg {
        dir: place.dir.clone(),
        packages: place.materials.packages.clone(),
        errors: place.outside.join("errors"),
        roots: 0,
    })
}

impl Load for Dpkg {
    fn run(&mut self, limit: Limit) -> Result<Works> {
        let mut stopwatch = Stopwatch::new(limit);
        while stopwatch.goes_on() {
            let root = self.new_root()?;
            self.unpack(&root, &mut stopwatch)?;
            fs::remove_dir_all(&root)?;
        }
        Ok(vec![(Program::Dpkg, stopwatch.into_work())])
    }
}

impl Dpkg {
    /// Makes an empty root with the database of dpkg.
    fn new_root(&mut self) -> Result<PathBuf> {
        self.roots += 1;
        let root = self.dir.join(format!("root-{}", self.roots));
        let database = root.join("var/lib/dpkg");
        for dir in ["updates", "info", "triggers"] {
            fs::create_dir_all(database.join(dir))?;
        }
        File::create(database.join("status"))?;
        Ok(root)
    }

    /// Unpacks all packages, or as many as the limit allows.
    fn unpack(&self, root: &Path, stopwatch: &mut Stopwatch) -> Result<()> {
        let cmd = Cmd::new("dpkg").arg("--root").arg(root);
        // Containers often have a setting with which dpkg does not sync.
        let cmd = cmd.args([
            "--no-force-unsafe-io",
            "--force-depends",
            "--force-breaks",
            "--force-conflicts",
        ]);
        let cmd = cmd.args(["--log=/dev/null", "--status-fd", "1", "--unpack"]);
        let cmd = cmd.args(&self.packages).errors_to(File::create(&self.errors)?);
        let mut running = Running::start(cmd)?;
        let output = running.child.stdout.take().context("the output of dpkg")?;
        let mut begun = Instant::now();
        for line in BufReader::new(output).lines() {
            if line?.ends_with(": unpacked") {
                stopwatch.add(begun.elapsed());
                begun = Instant::now();
                if !stopwatch.goes_on() {
                    // Dropped: dpkg ends in the middle of the next package, and the root is removed.
                    return Ok(());
                }
            }
        }
        let status = running.wait()?;
        if !status.success() {
            let errors = fs::read_to_string(&self.errors).unwrap_or_default();
            bail!("dpkg: {status}\n{}", errors.trim());
        }
        Ok(())
    }
}

//! The ways to use a bucket: how each is made, mounted and unmounted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use sfs_servers::{BUCKET, KEYS};

use super::target::Target;
use crate::{
    cleanup::{Guard, Undo, is_mounted, unmount_once},
    machine,
    run::Cmd,
    workspace::Programs,
};

const WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// Size of the volumes, whose images are sparse.
const VOLUME: u64 = 4 << 30;

/// A way to use a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Contender {
    /// A volume in the store.
    Sfs,
    /// The same with `durability=remote`.
    SfsRemote,
    /// A volume on a local image.
    Local,
    /// Objects of 8 MiB by curl, many at once.
    Plain,
    /// rclone mount with its cache.
    Rclone,
    /// s3fs with its cache.
    S3fs,
}

impl Contender {
    pub(super) const ALL: [Self; 6] =
        [Self::Sfs, Self::SfsRemote, Self::Local, Self::Plain, Self::Rclone, Self::S3fs];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sfs => "SFS",
            Self::SfsRemote => "SFS, durability=remote",
            Self::Local => "SFS on a local image",
            Self::Plain => "plain PUT/GET of 8 MiB",
            Self::Rclone => "rclone mount",
            Self::S3fs => "s3fs",
        }
    }

    /// Checks that its programs are here.
    pub(super) fn need(self) -> Result<()> {
        match self {
            Self::Sfs | Self::SfsRemote | Self::Local => Ok(()),
            Self::Plain => machine::need("curl", "curl"),
            Self::Rclone => machine::need("rclone", "rclone"),
            Self::S3fs => machine::need("s3fs", "s3fs"),
        }
    }

    /// Returns whether it is a mount of a volume of SFS.
    pub(super) fn is_sfs(self) -> bool {
        matches!(self, Self::Sfs | Self::SfsRemote | Self::Local)
    }
}

/// A contender with a store and a directory of its own.
pub(super) struct Place<'a> {
    pub(super) contender: Contender,
    pub(super) target: &'a Target,
    pub(super) programs: &'a Programs,
    pub(super) dir: PathBuf,
}

impl Place<'_> {
    /// Returns the prefix of the objects.
    pub(super) fn prefix(&self) -> String {
        format!("{:?}", self.contender).to_lowercase()
    }

    fn url(&self) -> String {
        format!("s3://{BUCKET}/{}", self.prefix())
    }

    fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    fn with_environment(&self, cmd: Cmd) -> Cmd {
        let environment = self.target.environment();
        environment.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value))
    }

    /// Makes an empty volume, or an empty prefix.
    pub(super) fn make(&self) -> Result<()> {
        self.target.clear(&self.prefix())?;
        self.forget_cache()?;
        match self.contender {
            Contender::Sfs | Contender::SfsRemote => {
                let cmd = self.with_environment(self.programs.mkfs_cmd());
                let cmd = cmd.arg("--quiet").arg("--cache").arg(self.cache());
                cmd.args(["--size", &VOLUME.to_string(), &self.url()]).read()?;
            }
            Contender::Local => {
                fs::File::create(self.image())?.set_len(VOLUME)?;
                self.programs.mkfs_cmd().arg("--quiet").arg("--force").arg(self.image()).read()?;
            }
            Contender::Plain | Contender::Rclone | Contender::S3fs => {}
        }
        Ok(())
    }

    /// Removes the local cache, so that everything is read from the store.
    pub(super) fn forget_cache(&self) -> Result<()> {
        let cache = self.cache();
        if cache.is_dir() {
            fs::remove_dir_all(cache)?;
        } else if cache.exists() {
            fs::remove_file(cache)?;
        }
        Ok(())
    }

    /// Mounts, and waits until it serves.
    pub(super) fn mount(&self) -> Result<Mounted> {
        let dir = self.dir.join("mnt");
        fs::create_dir_all(&dir)?;
        let guard = Undo::Unmount(dir.clone()).later();
        let cmd = self.mount_cmd(&dir)?.errors_to(fs::File::create(self.dir.join("log"))?);
        let mut child = cmd.spawn()?;
        let end = Instant::now() + WAIT;
        while !is_mounted(&dir) {
            if let Some(status) = child.try_wait()? {
                let said = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("it has ended before it was mounted: {status}: {}", said.trim());
            }
            ensure!(Instant::now() < end, "it is not mounted after {WAIT:?}");
            thread::sleep(PAUSE);
        }
        let files = match self.contender {
            // It mounts the bucket, which has no object that stands for a directory.
            Contender::S3fs => dir.join(self.prefix()),
            _ => dir.join("files"),
        };
        fs::create_dir_all(&files)?;
        let umount = self.contender.is_sfs().then(|| self.programs.path("sfs-umount"));
        Ok(Mounted { files, dir, child, umount, _guard: guard })
    }

    fn mount_cmd(&self, dir: &Path) -> Result<Cmd> {
        let cache = self.cache();
        let sfs = || self.programs.mount_cmd("sfs-mount").arg("--foreground");
        let address = self.target.address;
        Ok(match self.contender {
            Contender::Local => sfs().arg(self.image()).arg(dir),
            Contender::Sfs | Contender::SfsRemote => {
                let mut options = format!("cache_file={}", cache.display());
                if self.contender == Contender::SfsRemote {
                    options += ",durability=remote";
                }
                self.with_environment(sfs()).args(["-o", &options, &self.url()]).arg(dir)
            }
            // It refuses a bundle of certificates, which it does not need.
            Contender::Rclone => Cmd::new("env")
                .args(["-u", "AWS_CA_BUNDLE", "rclone", "mount"])
                .arg(format!(":s3:{BUCKET}/{}", self.prefix()))
                .arg(dir)
                // By default it waits for 5 s before it uploads a file that was closed.
                .args(["--vfs-cache-mode", "full", "--vfs-write-back", "0s", "--cache-dir"])
                .arg(cache)
                .args(["--config", "/dev/null"])
                .env("RCLONE_S3_PROVIDER", "Other")
                .env("RCLONE_S3_ENDPOINT", format!("http://{address}"))
                .env("RCLONE_S3_ACCESS_KEY_ID", KEYS[0])
                .env("RCLONE_S3_SECRET_ACCESS_KEY", KEYS[1])
                .env("RCLONE_S3_REGION", "us-east-1"),
            Contender::S3fs => {
                fs::create_dir_all(&cache)?;
                let options = format!(
                    "url=http://{address},use_path_request_style,endpoint=us-east-1,dbglevel=err,use_cache={}",
                    cache.display()
                );
                Cmd::new("s3fs")
                    .arg(BUCKET)
                    .arg(dir)
                    .args(["-f", "-o", &options])
                    .env("AWSACCESSKEYID", KEYS[0])
                    .env("AWSSECRETACCESSKEY", KEYS[1])
            }
            Contender::Plain => bail!("it has no mount"),
        })
    }

    /// Stores `count` objects of the bytes of `part` with curl, or reads them into files if there is none. With the part is its SHA-256, which servers
    /// check as they do for the others.
    pub(super) fn transfer(&self, part: Option<(&Path, &str)>, count: u64) -> Result<()> {
        let digest = part.map_or("UNSIGNED-PAYLOAD", |(_, digest)| digest);
        let mut config = String::new();
        for no in 0..count {
            if no > 0 {
                config += "next\n";
            }
            let url = format!("http://{}/{BUCKET}/{}/{no}", self.target.address, self.prefix());
            config += &format!("url = \"{url}\"\n");
            if let Some((path, _)) = part {
                config += &format!("upload-file = \"{}\"\n", path.display());
            }
            let output = match part {
                Some(_) => "/dev/null".to_owned(),
                None => self.dir.join(format!("got-{no}")).display().to_string(),
            };
            config += &format!("output = \"{output}\"\nsilent\nshow-error\nfail\n");
            config += "aws-sigv4 = \"aws:amz:us-east-1:s3\"\n";
            config += &format!("user = \"{}\"\n", KEYS.join(":"));
            config += &format!("header = \"x-amz-content-sha256: {digest}\"\n");
            config += "header = \"Expect:\"\n";
        }
        let file = self.dir.join("curl");
        fs::write(&file, config)?;
        let cmd = Cmd::new("curl").args(["--disable", "--parallel", "--parallel-immediate"]);
        cmd.args(["--parallel-max", "16", "--config"]).arg(file).read().map(drop)
    }
}

/// A mount, unmounted when dropped.
pub(super) struct Mounted {
    /// A directory for the files.
    pub(super) files: PathBuf,
    dir: PathBuf,
    child: Child,
    umount: Option<PathBuf>,
    _guard: Guard,
}

impl Mounted {
    /// Unmounts, and waits for the end of the processes. SFS has uploaded everything then.
    pub(super) fn end(mut self) -> Result<()> {
        match &self.umount {
            Some(program) => Cmd::new(program).arg(&self.dir).read().map(drop)?,
            None => {
                let end = Instant::now() + WAIT;
                while let Err(error) = unmount_once(&self.dir) {
                    // Somebody may still be closing a file.
                    ensure!(Instant::now() < end, "{error:#}");
                    thread::sleep(PAUSE);
                }
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the mount has ended: {status}");
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = Cmd::new("umount").arg("-l").arg(&self.dir).read();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

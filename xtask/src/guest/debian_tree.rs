//! Trees of files of a Debian system, made by debootstrap and kept for later runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{run::Cmd, workspace::Workspace};

const MIRROR: &str = "http://deb.debian.org/debian";

/// Packages of every tree, besides those that Debian itself requires.
const PACKAGES: [&str; 6] =
    ["systemd-sysv", "udev", "linux-image-cloud-amd64", "kmod", "mount", "e2fsprogs"];

/// Starts the payload at every boot, with its output on the serial port.
const UNIT: &str = "\
[Unit]
Description=Payload of the test
After=local-fs.target systemd-udev-settle.service multi-user.target

[Service]
Type=simple
ExecStart=/usr/local/sbin/guest-payload
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
";

/// Unpacks the payload at the first boot; a later payload is for another disk.
const STARTER: &str = "\
#!/bin/sh
if [ ! -e /guest/unpacked ]; then
    tar -xf /dev/disk/by-id/virtio-payload -C / && touch /guest/unpacked
fi
exec /guest/run
";

/// Release of Debian.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Suite {
    /// Debian 12: Linux 6.1, systemd 252.
    Bookworm,
    /// Debian 13: Linux 6.12, systemd 257.
    Trixie,
}

impl Suite {
    /// All releases that are tried.
    pub(crate) const ALL: [Suite; 2] = [Suite::Bookworm, Suite::Trixie];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Bookworm => "bookworm",
            Suite::Trixie => "trixie",
        }
    }
}

/// Tree of files of a Debian system, which belongs to root.
pub(crate) struct DebianTree {
    /// Root of the tree.
    pub(crate) dir: PathBuf,
}

impl DebianTree {
    /// Returns the tree `name` of `suite` with the additional `packages`; makes it if there is none with these packages.
    ///
    /// # Errors
    ///
    /// Packages cannot be had from here.
    pub(crate) fn get(
        workspace: &Workspace,
        name: &str,
        suite: Suite,
        packages: &[&str],
    ) -> Result<Self> {
        let home = workspace.target.join("guest");
        let suite = suite.name();
        let dir = home.join(format!("{name}-{suite}"));
        let stamp = home.join(format!("{name}-{suite}.packages"));
        let include = [&PACKAGES, packages].concat().join(",");
        let identity = format!("{suite} {include}\n{UNIT}{STARTER}");
        if fs::read_to_string(&stamp).is_ok_and(|text| text == identity) {
            return Ok(Self { dir });
        }
        println!("making a Debian system in {}", dir.display());
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&home)?;
        let options = ["--variant=minbase".to_owned(), format!("--include={include}")];
        let debootstrap = Cmd::new("debootstrap").args(options).arg(suite).arg(&dir).arg(MIRROR);
        debootstrap.read()?;
        let tree = Self { dir };
        tree.prepare()?;
        fs::write(stamp, identity)?;
        Ok(tree)
    }

    /// Sets up the serial port, the payload's unit and an empty fstab, so that only a test changes them.
    fn prepare(&self) -> Result<()> {
        let write = |path: &str, text: &str| {
            let path = self.dir.join(path);
            fs::write(&path, text).with_context(|| path.display().to_string())
        };
        write("etc/fstab", "/dev/disk/by-id/virtio-root / ext4 defaults 0 1\n")?;
        write("etc/hostname", "guest\n")?;
        write("etc/systemd/system/guest-payload.service", UNIT)?;
        write("usr/local/sbin/guest-payload", STARTER)?;
        fs::create_dir_all(self.dir.join("guest"))?;
        let dir = &self.dir;
        let starter = dir.join("usr/local/sbin/guest-payload");
        Cmd::new("chmod").arg("755").arg(starter).read()?;
        let systemctl = |verb: &str, unit: &str| {
            let root = format!("--root={}", dir.display());
            Cmd::new("systemctl").args([&root, verb, unit]).read()
        };
        systemctl("enable", "guest-payload.service")?;
        systemctl("mask", "serial-getty@ttyS0.service")?;
        Ok(())
    }

    /// Returns the kernel of the tree, and its initrd.
    pub(crate) fn kernel(&self) -> Result<(PathBuf, PathBuf)> {
        let boot = self.dir.join("boot");
        let find = |prefix: &str| -> Result<PathBuf> {
            let files = fs::read_dir(&boot)?.collect::<Result<Vec<_>, _>>()?;
            let found = files.iter().map(fs::DirEntry::path).find(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            });
            found.with_context(|| format!("{}: no {prefix}", boot.display()))
        };
        Ok((find("vmlinuz-")?, find("initrd.img-")?))
    }

    /// Writes the tree to an image of `len` bytes with ext4, which is sparse.
    pub(crate) fn write_disk(&self, image: &Path, len: u64) -> Result<()> {
        fs::File::create(image)?.set_len(len)?;
        let options = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1", "-d"];
        Cmd::new("mke2fs").args(options).arg(&self.dir).arg(image).read().map(drop)
    }
}

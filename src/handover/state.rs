//! The state of a mount that is nowhere on its device, as one program hands it to another.

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use sfs_core::FileReferences;
use sfs_fuse::{Agreed, InitFlags, SessionChannels};

use crate::fuse::{HandedHandles, HandedLosses};

/// State of a mount.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedState {
    /// Protocol that was agreed on with the kernel.
    pub(super) agreed: HandedAgreement,
    /// Reason for the transport.
    pub(super) reason: String,
    /// `true` if the mount is read-only because the device is, against its options.
    pub(super) is_write_protected: bool,
    /// `true` if nothing was written since the volume was mounted read-only.
    pub(super) is_read_only: bool,
    /// `true` if the kernel was told that it may read asynchronously.
    pub(super) reads_asynchronously: bool,
    /// Speed of reading: bytes in a second, and nanoseconds of a request.
    pub(super) read_speed: Option<(u64, u64)>,
    /// References of the kernel: inode, number, and whether the file may get a name.
    pub(super) references: Vec<(u64, u64, bool)>,
    pub(super) handles: HandedHandles,
    pub(super) losses: HandedLosses,
    /// Uses of the descriptors that come with the state, in their order.
    pub(super) descriptors: Vec<DescriptorUse>,
}

/// Protocol that was agreed on with the kernel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct HandedAgreement {
    minor: u32,
    flags: u64,
    max_write: u32,
}

impl From<&Agreed> for HandedAgreement {
    fn from(agreed: &Agreed) -> Self {
        let Agreed { minor, flags, max_write } = *agreed;
        Self { minor, flags: flags.bits(), max_write }
    }
}

impl HandedAgreement {
    /// Returns the agreement, unless it has features that are unknown here, or is none that this program makes.
    pub(super) fn known(self) -> Option<Agreed> {
        let Self { minor, flags, max_write } = self;
        let is_length = (1..=crate::fuse::WRITE_MAX).contains(&max_write);
        Some(Agreed { minor, flags: InitFlags::from_bits(flags)?, max_write }).filter(|_| is_length)
    }
}

/// Use of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DescriptorUse {
    /// The device, with its lock.
    Device,
    /// The device that was opened later, for writing.
    DeviceForWriting,
    /// Control socket that listens.
    Control,
    /// Client of the control socket that watches for the end of the mount.
    Watcher,
    /// Socket for the metrics that listens, of the owner.
    Metrics,
    /// Socket for the metrics that listens, of every user.
    MetricsAddress,
    /// Channel of the kernel's requests.
    Channel,
    /// Channel of the kernel's requests that nobody reads. Each program makes its own from it.
    UnreadChannel,
    /// Memory with the records of a mount that survives its daemon.
    Records,
    /// Socket to the monitor for requests about the mount.
    MonitorOfMount,
    /// Socket to the monitor for questions about processes.
    MonitorOfProcesses,
    /// The system's table of mounts, for a program that does not find it.
    Mounts,
}

/// Descriptors with their uses.
#[derive(Debug, Default)]
pub(crate) struct HandedDescriptors(Vec<(DescriptorUse, OwnedFd)>);

impl HandedDescriptors {
    /// Returns the `descriptors` that have these `uses`.
    pub(super) fn new(uses: &[DescriptorUse], descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        if uses.len() != descriptors.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self(uses.iter().copied().zip(descriptors).collect()))
    }

    pub(crate) fn add(&mut self, usage: DescriptorUse, descriptor: impl Into<OwnedFd>) {
        self.0.push((usage, descriptor.into()));
    }

    pub(super) fn add_channels(&mut self, channels: SessionChannels) {
        match channels {
            SessionChannels::Read(all) => {
                all.into_iter().for_each(|channel| self.add(DescriptorUse::Channel, channel));
            }
            SessionChannels::Unread(channel) => self.add(DescriptorUse::UnreadChannel, channel),
        }
    }

    /// Takes the channels of the kernel's requests.
    pub(super) fn take_channels(&mut self) -> SessionChannels {
        match self.take(DescriptorUse::UnreadChannel) {
            Some(unread) => SessionChannels::Unread(unread),
            None => SessionChannels::Read(self.take_all(DescriptorUse::Channel)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(DescriptorUse, OwnedFd)> {
        self.0.iter()
    }

    /// Returns the descriptors in their order.
    pub(super) fn into_descriptors(self) -> Vec<OwnedFd> {
        self.0.into_iter().map(|(_, descriptor)| descriptor).collect()
    }

    /// Takes the first descriptor of this use.
    pub(crate) fn take(&mut self, usage: DescriptorUse) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(of, _)| *of == usage)?;
        Some(self.0.remove(at).1)
    }

    /// Takes all descriptors of this use.
    pub(crate) fn take_all(&mut self, usage: DescriptorUse) -> Vec<OwnedFd> {
        std::iter::from_fn(|| self.take(usage)).collect()
    }
}

pub(super) fn references(references: Vec<FileReferences>) -> Vec<(u64, u64, bool)> {
    references.into_iter().map(|of| (of.ino, of.count, of.is_linkable)).collect()
}

pub(super) fn references_of(handed: &[(u64, u64, bool)]) -> Vec<FileReferences> {
    let of_file = |&(ino, count, is_linkable)| FileReferences { ino, count, is_linkable };
    handed.iter().map(of_file).collect()
}

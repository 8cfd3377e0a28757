//! Mount options: the comma list after `-o`.
//!
//! [`MountOptions::parse`] reads the list. An unknown option is refused by its name, and options
//! that mount(8) adds for itself are dropped (`foreign`). `remount` decides which options a remount
//! may change. [`table`] describes the options to people.

mod foreign;
mod object_options;
pub mod remount;
pub mod table;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use nix::mount::MsFlags;
use sfs_core::policy::{self, GROUPING_POLICIES, GROUPS_MAX, VICTIM_POLICIES};
use sfs_core::request::{AccessTimePolicy, Remainder, VolumeOptions};
use sfs_fuse::{AsyncDio, InitFlags};

use crate::device_speed::AsyncReads;
use crate::exit_error::ExitError;
pub use object_options::ObjectOptions;

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Options for the volume.
    pub volume: VolumeOptions,
    /// Flags for the kernel.
    pub flags: MsFlags,
    /// `true` if the kernel's cache writes back.
    pub writeback: bool,
    /// Condition for asynchronous direct requests.
    pub async_dio: AsyncDio,
    /// Condition for asynchronous reads.
    pub async_reads: AsyncReads,
    /// Condition for access lists.
    pub access_lists: AccessLists,
    /// Operations that are durable before their reply.
    pub sync: SyncPolicy,
    /// Number of threads that serve requests; `None` for a number that suits the machine.
    pub threads: Option<usize>,
    /// `true` if a volume that is smaller than its device grows when it is mounted.
    pub grow: bool,
    /// `true` if a volume with an SSD cache is mounted without it.
    pub no_cache: bool,
    /// Device of the cache; `None` to look for it by its UUID.
    pub cache_device: Option<PathBuf>,
    /// Options for a volume in an object store.
    pub objects: ObjectOptions,
    /// `true` if other users may enter a mount that an ordinary user makes.
    pub allow_other: bool,
    /// `true` if the daemon gives up what it does not need after the mount.
    pub sandbox: bool,
    /// Whether the mount survives the death of its daemon; `None` if it does where mount(8) asks and nothing prevents it.
    pub survive: Option<bool>,
    /// Loopback address at which every user of the machine may read the metrics of the mount.
    pub metrics: Option<SocketAddr>,
}

/// Operations that `-o sync` and `-o dirsync` make durable before their reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// None; fsync(2) makes changes durable.
    Never,
    /// Operations on names.
    Names,
    /// Operations on names, and writes.
    Everything,
}

/// Condition for access control lists, which the kernel enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLists {
    /// Lists if the kernel and the transport allow them.
    #[default]
    WhereSupported,
    /// Lists, or no mount.
    Required,
    /// No lists: files have only their mode.
    Off,
}

impl AccessLists {
    /// Features of the protocol that are all needed.
    pub(crate) const FEATURES: InitFlags = InitFlags::from_bits_retain(
        InitFlags::POSIX_ACL.bits() | InitFlags::DONT_MASK.bits() | InitFlags::SETXATTR_EXT.bits(),
    );
}

/// Flag `nosymfollow`, since Linux 5.10; `nix` has no name for it.
pub(crate) const MS_NOSYMFOLLOW: MsFlags = MsFlags::from_bits_retain(256);

/// Percentage of the bytes that programs write that an idle volume may write to put files in order.
const IDLE_DEFRAGMENTATION_PERCENT: u8 = 5;

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            volume: VolumeOptions {
                idle_defragmentation: IDLE_DEFRAGMENTATION_PERCENT,
                ..VolumeOptions::default()
            },
            flags: MsFlags::MS_RELATIME,
            writeback: true,
            async_dio: AsyncDio::default(),
            async_reads: AsyncReads::default(),
            access_lists: AccessLists::default(),
            sync: SyncPolicy::Never,
            threads: None,
            grow: false,
            no_cache: false,
            cache_device: None,
            objects: ObjectOptions::default(),
            allow_other: false,
            sandbox: true,
            survive: None,
            metrics: None,
        }
    }
}

impl MountOptions {
    /// Parses the lists in order; later options override earlier ones. With `sloppy`, which mount(8) passes as
    /// `-s`, unknown options are skipped.
    ///
    /// # Errors
    ///
    /// [`ExitError`] that names the first option which is unknown or has a wrong value.
    pub fn parse<'a>(
        lists: impl IntoIterator<Item = &'a str>,
        sloppy: bool,
    ) -> Result<Self, ExitError> {
        let mut options = Self::default();
        for option in lists.into_iter().flat_map(|list| list.split(',')) {
            let known = options.take(option.trim())?;
            if !known && !sloppy {
                return Err(foreign::refusal(option.trim()));
            }
        }
        options.volume.read_only |= options.volume.skip_recovery;
        options.objects.check(options.volume.read_only)?;
        options.flags.set(MsFlags::MS_RDONLY, options.volume.read_only);
        Ok(options)
    }

    /// Returns these options for a device that is write-protected.
    pub(crate) fn read_only(mut self) -> Self {
        self.volume.read_only = true;
        self.flags |= MsFlags::MS_RDONLY;
        self
    }

    /// Applies one option. Returns whether it is known.
    fn take(&mut self, option: &str) -> Result<bool, ExitError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match value {
            _ if foreign::is_dropped(option, name) => Ok(true),
            Some(value) => self.take_value(name, value),
            None => Ok(self.take_flag(name)),
        }
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool, ExitError> {
        match name {
            "write_buffer" => self.volume.write_buffer = values::memory(name, value)?,
            "cache" => self.volume.cache = values::memory(name, value)?,
            "commit" => self.volume.commit_interval = values::seconds(name, value)?,
            "checkpoint" => self.volume.checkpoint_interval = values::seconds(name, value)?,
            "writeback" => self.writeback = values::switch(name, value)?,
            "async_dio" => {
                self.async_dio = match values::one_of(name, value, &["auto", "on", "off"])? {
                    "on" => AsyncDio::Always,
                    "off" => AsyncDio::Never,
                    _ => AsyncDio::WhereSafe,
                };
            }
            "async_read" => {
                self.async_reads = match values::one_of(name, value, &["auto", "on", "off"])? {
                    "on" => AsyncReads::Always,
                    "off" => AsyncReads::Never,
                    _ => AsyncReads::WhereFast,
                };
            }
            "errors" => self.volume.on_error = values::reaction(name, value)?,
            "policy" => {
                let value = policy::current_name(value);
                self.volume.grouping = values::one_of(name, value, &GROUPING_POLICIES)?.to_owned();
            }
            "victim" => {
                self.volume.victim = Some(values::one_of(name, value, &VICTIM_POLICIES)?.to_owned())
            }
            "groups" => {
                self.volume.groups = Some(values::number(name, value, 1..=GROUPS_MAX)?);
            }
            "remainder" => {
                self.volume.remainder = match values::one_of(name, value, &["pure", "mixed"])? {
                    "mixed" => Remainder::Mixed,
                    _ => Remainder::Pure,
                };
            }
            "cleaning" => {
                let choice = values::one_of(name, value, &["yielding", "eager"])?;
                self.volume.yield_cleaning = choice == "yielding";
            }
            "wear_levelling" => {
                self.volume.wear_levelling = Some(values::number(name, value, 1..=10_000)?);
            }
            "defrag" => {
                let percent = match value {
                    "off" => Some(0),
                    value => value.parse().ok().filter(|percent| (1..=100).contains(percent)),
                };
                let wrong = || {
                    ExitError::usage(format_args!(
                        "{name}={value}: give a percentage, 1..100, or off"
                    ))
                };
                self.volume.idle_defragmentation = percent.ok_or_else(wrong)?;
            }
            "threads" => self.threads = Some(values::number(name, value, 1..=64)?),
            "cache_dev" => self.cache_device = Some(PathBuf::from(value)),
            "metrics" => self.metrics = Some(values::loopback(name, value)?),
            _ => return self.objects.take_value(name, value),
        }
        Ok(true)
    }

    fn take_flag(&mut self, name: &str) -> bool {
        let (flag, on) = match name {
            "suid" => (MsFlags::MS_NOSUID, false),
            "nosuid" => (MsFlags::MS_NOSUID, true),
            "dev" => (MsFlags::MS_NODEV, false),
            "nodev" => (MsFlags::MS_NODEV, true),
            "exec" => (MsFlags::MS_NOEXEC, false),
            "noexec" => (MsFlags::MS_NOEXEC, true),
            "symfollow" => (MS_NOSYMFOLLOW, false),
            "nosymfollow" => (MS_NOSYMFOLLOW, true),
            "atime" | "relatime" | "nostrictatime" => {
                return self.take_access_times(AccessTimePolicy::Relative);
            }
            "strictatime" => return self.take_access_times(AccessTimePolicy::Strict),
            "noatime" => return self.take_access_times(AccessTimePolicy::Never),
            // Times of access always wait in memory, and directories have none.
            "lazytime" | "nolazytime" | "diratime" | "nodiratime" => (MsFlags::empty(), true),
            "nomand" | "noiversion" => (MsFlags::empty(), true), // SFS has neither.
            "sync" => (MsFlags::MS_SYNCHRONOUS, true),
            "async" => (MsFlags::MS_SYNCHRONOUS, false),
            _ => return self.take_own_flag(name),
        };
        self.flags.set(flag, on);
        match name {
            "sync" => self.sync = SyncPolicy::Everything,
            "async" => self.sync = SyncPolicy::Never,
            _ => {}
        }
        true
    }

    /// Sets the reading that moves times of access. The kernel shows the flag, and leaves the times to the daemon.
    fn take_access_times(&mut self, policy: AccessTimePolicy) -> bool {
        self.volume.access_times = policy;
        let flag = match policy {
            AccessTimePolicy::Never => MsFlags::MS_NOATIME,
            AccessTimePolicy::Relative => MsFlags::MS_RELATIME,
            AccessTimePolicy::Strict => MsFlags::MS_STRICTATIME,
        };
        self.flags.remove(MsFlags::MS_NOATIME | MsFlags::MS_RELATIME | MsFlags::MS_STRICTATIME);
        self.flags.insert(flag);
        true
    }

    fn take_own_flag(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.volume.read_only = true,
            "rw" => self.volume.read_only = false,
            "dirsync" if self.sync == SyncPolicy::Never => self.sync = SyncPolicy::Names,
            "dirsync" => {}
            "norecovery" => self.volume.skip_recovery = true,
            "discard" => self.volume.discard = true,
            "nodiscard" => self.volume.discard = false,
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "grow" => self.grow = true,
            "nogrow" => self.grow = false,
            "nocache" => self.no_cache = true,
            "takeover" => self.objects.takeover = true,
            "local_state" => self.objects.local_state = true,
            "allow_other" => self.allow_other = true,
            "sandbox" => self.sandbox = true,
            "nosandbox" => self.sandbox = false,
            "survive" => self.survive = Some(true),
            "nosurvive" => self.survive = Some(false),
            "acl" => self.access_lists = AccessLists::Required,
            "noacl" => self.access_lists = AccessLists::Off,
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests;

//! Mount options for a volume in an object store.

use std::path::PathBuf;
use std::time::Duration;

use sfs_object::Durability;

use super::values;
use crate::exit_error::ExitError;

/// Default of `upload=`.
const UPLOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time between two looks for a newer state: a day.
const FOLLOW_SECS_MAX: u64 = 86_400;

/// Default of `outage_wait=`.
const OUTAGE_WAIT: Duration = Duration::from_secs(30);

/// Bytes that the local cache may be allowed to take.
const CACHE_SIZES: std::ops::RangeInclusive<u64> = 16 << 20..=64 << 40;

/// Options for a volume in an object store, which mean nothing for another volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Local cache.
    pub cache_file: Option<PathBuf>,
    /// Largest number of bytes that the local cache may take; `None` for what suits its filesystem.
    pub cache_size: Option<u64>,
    /// Contract of fsync(2).
    pub durability: Durability,
    /// Longest time for which writes are in the local cache alone.
    pub upload_interval: Duration,
    /// File with the key, if the objects are encrypted.
    pub key_file: Option<PathBuf>,
    /// `true` if reads and syncs fail while the store does not answer.
    pub outage_fails: bool,
    /// Longest wait before they do.
    pub outage_wait: Duration,
    /// Time after which a read-only mount looks for a newer state; `None` if it does not.
    pub follow: Option<Duration>,
    /// `true` to use the volume although another machine has not released it.
    pub takeover: bool,
    /// `true` for a read-only mount of the state that the local cache continues.
    pub local_state: bool,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self {
            cache_file: None,
            cache_size: None,
            durability: Durability::Local,
            upload_interval: UPLOAD_INTERVAL,
            key_file: None,
            outage_fails: false,
            outage_wait: OUTAGE_WAIT,
            follow: None,
            takeover: false,
            local_state: false,
        }
    }
}

impl ObjectOptions {
    /// Refuses options that need others: of a mount that is `read_only` or not.
    pub(super) fn check(&self, read_only: bool) -> Result<(), ExitError> {
        if self.follow.is_some() && !read_only {
            return Err(ExitError::usage(
                "mount option 'follow': only a read-only mount follows a writer; add 'ro', or leave the option out",
            ));
        }
        if self.local_state && !read_only {
            return Err(ExitError::usage(
                "mount option 'local_state': what a cache has is only read; add 'ro', or leave the option out",
            ));
        }
        if self.local_state && self.follow.is_some() {
            return Err(ExitError::usage(
                "mount option 'local_state': a local cache has one state, and nothing to follow; leave out 'follow'",
            ));
        }
        Ok(())
    }

    /// Applies an option with a value. Returns whether it is one of these.
    pub(super) fn take_value(&mut self, name: &str, value: &str) -> Result<bool, ExitError> {
        match name {
            "cache_file" => self.cache_file = Some(PathBuf::from(value)),
            "cache_size" => self.cache_size = Some(values::size(name, value, CACHE_SIZES)?),
            "durability" => {
                self.durability = match values::one_of(name, value, &["local", "remote"])? {
                    "remote" => Durability::Remote,
                    _ => Durability::Local,
                };
            }
            "upload" => self.upload_interval = values::seconds(name, value)?,
            "key_file" => self.key_file = Some(PathBuf::from(value)),
            "outage" => {
                self.outage_fails = values::one_of(name, value, &["block", "eio"])? == "eio"
            }
            "outage_wait" => self.outage_wait = values::seconds(name, value)?,
            "follow" => self.follow = Some(values::seconds_to(name, value, FOLLOW_SECS_MAX)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

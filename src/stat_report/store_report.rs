//! The object store of a volume, for reports.

use serde::{Deserialize, Serialize};
use sfs_object::Durability;

use crate::object_volume::ObjectVolume;

/// Requests to the object store since the mount, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Contract of fsync(2), as `-o durability=` names it.
    pub durability: String,
    /// Path of the local cache.
    pub cache_file: String,
    /// `true` if the objects are encrypted.
    pub encrypted: bool,
    /// Requests that read an object, or a part of one.
    pub gets: u64,
    /// Requests that store an object.
    pub puts: u64,
    /// Requests that delete one.
    pub deletes: u64,
    /// Bytes of objects that were sent.
    pub bytes_up: u64,
    /// Bytes of objects that were received.
    pub bytes_down: u64,
    /// Trouble of the moment; `None` if there is none.
    pub trouble: Option<String>,
    /// Seconds since that began.
    pub trouble_secs: Option<u64>,
    /// Why nothing more is written in this mount; `None` if that is not so.
    pub failure: Option<String>,
}

impl StoreReport {
    pub(crate) fn of(objects: &ObjectVolume) -> Self {
        let (counts, trouble) = (objects.store().counts(), objects.store().trouble());
        let durability = match objects.durability() {
            Durability::Local => "local",
            Durability::Remote => "remote",
        };
        Self {
            durability: durability.into(),
            cache_file: objects.cache().into(),
            encrypted: objects.is_encrypted(),
            gets: counts.gets,
            puts: counts.puts,
            deletes: counts.deletes,
            bytes_up: counts.bytes_up,
            bytes_down: counts.bytes_down,
            trouble_secs: trouble.as_ref().map(|trouble| trouble.since.elapsed().as_secs()),
            trouble: trouble.map(|trouble| trouble.reason),
            failure: objects.failure().map(|failure| failure.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_has_a_line_of_its_own() {
        let mut report = StoreReport {
            durability: "local".into(),
            cache_file: "/cache".into(),
            encrypted: false,
            gets: 3,
            puts: 2,
            deletes: 1,
            bytes_up: 4 << 20,
            bytes_down: 0,
            trouble: None,
            trouble_secs: None,
            failure: None,
        };
        let line = "  store       2 PUT (4 MiB), 3 GET (0 bytes), 1 DELETE; fsync is local";
        assert_eq!(report.to_string(), line);
        report.encrypted = true;
        assert_eq!(report.to_string(), format!("{line}; encrypted"));
        report.encrypted = false;
        (report.trouble, report.trouble_secs) = (Some("no\u{1b} network".into()), Some(7));
        assert_eq!(
            report.to_string(),
            format!("{line}\n              waiting for 7 s: no? network")
        );
        report.failure = Some("another machine has the volume".into());
        let second = "              nothing more is written: another machine has the volume";
        assert_eq!(report.to_string(), format!("{line}\n{second}"));
    }
}

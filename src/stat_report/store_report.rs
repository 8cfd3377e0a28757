//! The object store of a volume, for reports.

use serde::{Deserialize, Serialize};
use sfs_object::{Durability, SocketStore};

use super::store_price::{StorePrice, StorePrices, StoreUse};
use crate::object_volume::ObjectVolume;
use crate::object_volume::reader::ObjectReader;

/// Requests to the object store since the mount, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Contract of fsync(2), as `-o durability=` names it; `none` for a read-only mount.
    pub durability: String,
    /// Path of the local cache; empty for a read-only mount, which has none.
    pub cache_file: String,
    /// Time at which the manifest of the state that a read-only mount shows was published, in seconds since 1970, by the clock of its
    /// writer; `None` for a mount that writes.
    pub state_secs: Option<u64>,
    /// Number of states that a read-only mount has opened; `None` for a mount that writes.
    #[serde(default)]
    pub states: Option<u64>,
    /// Time between its looks for a newer one, in seconds; `None` without `-o follow=`.
    #[serde(default)]
    pub follow_secs: Option<u64>,
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
    /// Bytes of the objects that hold the content of the volume, about: without manifests, and what waits for its deletion.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Its costs, if the user gives the prices.
    pub price: Option<StorePrice>,
    /// Trouble of the moment; `None` if there is none.
    pub trouble: Option<String>,
    /// Seconds since that began.
    pub trouble_secs: Option<u64>,
    /// `true` if the store answers, and refuses.
    #[serde(default)]
    pub is_refused: bool,
    /// Why nothing more is written in this mount; `None` if that is not so.
    pub failure: Option<String>,
}

impl StoreReport {
    pub(crate) fn of(objects: &ObjectVolume) -> Self {
        let durability = match objects.durability() {
            Durability::Local => "local",
            Durability::Remote => "remote",
        };
        Self {
            durability: durability.into(),
            cache_file: objects.cache().into(),
            encrypted: objects.is_encrypted(),
            stored_bytes: objects.stored_bytes(),
            failure: objects.failure().map(|failure| failure.to_string()),
            ..Self::of_store(objects.store())
        }
    }

    /// Reports a read-only mount.
    pub(crate) fn of_reader(reader: &ObjectReader) -> Self {
        Self {
            cache_file: reader.cache().unwrap_or_default().to_owned(),
            state_secs: Some(reader.published_secs()),
            states: Some(reader.states()),
            follow_secs: reader.interval().map(|interval| interval.as_secs()),
            encrypted: reader.is_encrypted(),
            ..Self::of_store(reader.store())
        }
    }

    fn of_store(store: &SocketStore) -> Self {
        let (counts, trouble) = (store.counts(), store.trouble());
        Self {
            durability: "none".into(),
            cache_file: String::new(),
            state_secs: None,
            states: None,
            follow_secs: None,
            encrypted: false,
            gets: counts.gets,
            puts: counts.puts,
            deletes: counts.deletes,
            bytes_up: counts.bytes_up,
            bytes_down: counts.bytes_down,
            stored_bytes: 0,
            price: None,
            is_refused: trouble.as_ref().is_some_and(|trouble| trouble.is_refusal),
            trouble_secs: trouble.as_ref().map(|trouble| trouble.since.elapsed().as_secs()),
            trouble: trouble.map(|trouble| trouble.reason),
            failure: None,
        }
    }

    /// Returns the report with what the volume costs at these prices.
    #[must_use]
    pub(crate) fn at(self, prices: &StorePrices) -> Self {
        let Self { puts, gets, deletes, bytes_down, stored_bytes, .. } = self;
        let used = StoreUse { puts, gets, deletes, bytes_down, stored_bytes };
        Self { price: Some(prices.of(&used)), ..self }
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
            state_secs: None,
            states: None,
            follow_secs: None,
            encrypted: false,
            gets: 3,
            puts: 2,
            deletes: 1,
            bytes_up: 4 << 20,
            bytes_down: 0,
            stored_bytes: 0,
            price: None,
            trouble: None,
            trouble_secs: None,
            is_refused: false,
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
        report.is_refused = true;
        assert_eq!(
            report.to_string(),
            format!("{line}\n              refused for 7 s: no? network")
        );
        report.failure = Some("another machine has the volume".into());
        let second = "              nothing more is written: another machine has the volume";
        assert_eq!(report.to_string(), format!("{line}\n{second}"));
        let of_reader = report.clone();
        let reader = StoreReport { state_secs: Some(9), failure: None, trouble: None, ..of_reader };
        let line = "1 DELETE; read-only; of 1970-01-01 00:00:09 UTC";
        assert!(reader.to_string().ends_with(line), "{reader}");
        let follower = StoreReport { states: Some(1), follow_secs: Some(5), ..reader };
        let line = "1 DELETE; read-only, follows every 5 s; states opened: 1, the last of 1970-01-01 00:00:09 UTC";
        assert!(follower.to_string().ends_with(line), "{follower}");
        let frozen = StoreReport { states: Some(2), follow_secs: None, ..follower };
        let line = "1 DELETE; read-only; states opened: 2, the last of 1970-01-01 00:00:09 UTC";
        assert!(frozen.to_string().ends_with(line), "{frozen}");
        report.failure = None;
        (report.trouble, report.trouble_secs) = (None, None);
        (report.gets, report.puts, report.stored_bytes) = (10_000, 2_000, 50_000_000_000);
        report.bytes_down = 2_500_000_000;
        let report = report.at(&"0.005:0.0004:0:0.023:0.09".parse().expect("five prices"));
        let price = report.price.expect("a price");
        assert_eq!((price.requests_micros, price.received_micros), (14_000, 225_000));
        assert_eq!(price.month_micros, 1_150_000);
        let third = "              price: 0.0140 for requests and 0.2250 for bytes received since the mount; 1.1500 a month for 46.6 GiB stored";
        assert!(report.to_string().ends_with(third), "{report}");
    }
}

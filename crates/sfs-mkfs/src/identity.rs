//! The identity of a new volume: from the system's clock and random numbers, or from a seed.

use std::env;
use std::fs;
use std::hash::Hasher as _;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use sfs_core::format::Timestamp;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use crate::fill::FillTimes;
use crate::plan::{Identity, VolumePlan};
use crate::{MkfsError, MkfsOptions};

/// Environment variable with the time that a reproducible build has, in seconds since 1970.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Returns the identity of the volume that `options` describe.
pub(crate) fn of(options: &MkfsOptions) -> Result<Identity, MkfsError> {
    let is_reproducible = options.seed.is_some() || options.from.is_some();
    let date = if is_reproducible { source_date()? } else { None };
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = match (date, &options.seed) {
        (Some(date), _) => date,
        (None, Some(_)) => Timestamp::default(),
        (None, None) => Timestamp { secs: clock().as_secs() as i64, nanos: clock().subsec_nanos() },
    };
    let owner = match is_reproducible {
        true => (0, 0),
        false => fs::metadata("/proc/self").map_or((0, 0), |own| (own.uid(), own.gid())),
    };
    let numbers = match &options.seed {
        Some(seed) => [0, 1, 2, 3].map(|no| derived(seed, no)),
        None => {
            // A UUID of version 4 has six bits that are not random; two halves make a key without them.
            let random = || Uuid::new_v4().as_u64_pair();
            [random().0 ^ random().1, random().0 ^ random().1, 0, 0]
        }
    };
    let [first, second, high, low] = numbers;
    let uuid = options.uuid.unwrap_or_else(|| match options.seed {
        Some(_) => uuid::Builder::from_random_bytes(
            (u128::from(high) << 64 | u128::from(low)).to_le_bytes(),
        )
        .into_uuid(),
        None => Uuid::new_v4(),
    });
    Ok(Identity {
        uuid: uuid.into_bytes(),
        label: options.label,
        hash_key: [first, second],
        now,
        data_layout: options.data_layout,
        owner,
    })
}

/// Returns the times of the files in the volume `plan`.
pub(crate) fn fill_times(plan: &VolumePlan) -> Result<FillTimes, MkfsError> {
    Ok(FillTimes { now: plan.superblock.created, latest: source_date()? })
}

/// Returns number `no` that follows from `seed`.
fn derived(seed: &str, no: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(no, 0x5eed);
    hasher.write(seed.as_bytes());
    hasher.finish()
}

/// Returns the time of a reproducible build, if the environment has one.
fn source_date() -> Result<Option<Timestamp>, MkfsError> {
    let Some(text) = env::var_os(SOURCE_DATE_EPOCH) else { return Ok(None) };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let wrong = || MkfsError::SourceDate(text.to_string_lossy().into_owned());
    Ok(Some(Timestamp { secs: secs.ok_or_else(wrong)?, nanos: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images that were made with earlier versions can be made again.
    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let numbers = [0, 1, 2, 3].map(|no| derived("a seed", no));
        assert_eq!(numbers, [0, 1, 2, 3].map(|no| derived("a seed", no)));
        let others = [0, 1, 2, 3].map(|no| derived("a seee", no));
        assert!(numbers.iter().all(|number| !others.contains(number)));
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

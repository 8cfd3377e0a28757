//! Which of many names have an object, asked at once.

use crate::error::ObjectError;
use crate::frame::{Content, Frame, SEAL_LEN};
use crate::name::{NUMBER_MAX, ObjectName};
use crate::store::{ObjectStore, Part};

/// Returns for each of the numbers, which are in ascending order, whether `name` of it has an object other than a seal. An object that is
/// damaged counts: only the newest has to be sound. A few bytes of each are read.
///
/// # Errors
///
/// [`ObjectError::Damaged`] if a number that no writer reaches is asked about, and all smaller ones have an object.
pub(crate) fn present(
    store: &impl ObjectStore,
    numbers: &[u64],
    name: impl Fn(u64) -> ObjectName,
) -> Result<Vec<bool>, ObjectError> {
    let possible = numbers.iter().take_while(|number| **number <= NUMBER_MAX);
    // One byte more than a seal has tells a longer object from one.
    let part = |number: &u64| Part { name: name(*number), offset: 0, len: SEAL_LEN as u64 + 1 };
    let parts = possible.map(part).collect::<Vec<_>>();
    let found = store.get_parts(&parts, None)?;
    let is_present = |(part, bytes): (&Part, &Option<Vec<u8>>)| {
        bytes.as_ref().is_some_and(|bytes| !is_seal(part.name, bytes))
    };
    let mut present = parts.iter().zip(&found).map(is_present).collect::<Vec<_>>();
    if let Some(beyond) = numbers.get(present.len()) {
        if present.iter().all(|is_present| *is_present) {
            return Err(ObjectError::Damaged(name(*beyond)));
        }
        present.resize(numbers.len(), false);
    }
    Ok(present)
}

fn is_seal(name: ObjectName, bytes: &[u8]) -> bool {
    matches!(Frame::decode(name, bytes), Ok(Frame { content: Content::Seal(_), .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Manifest, Nonce};
    use crate::memory_store::MemoryStore;
    use crate::name::Epoch;
    use crate::store::Object;

    #[test]
    fn a_seal_is_told_from_what_is_longer_shorter_or_damaged() {
        let store = MemoryStore::default();
        let name = |number| ObjectName::Manifest(Epoch(1), number);
        let frame = |content| Frame { nonce: Nonce([1; 16]), content };
        let seal = |number| frame(Content::Seal(Epoch(2))).encode(name(number));
        let manifest = Content::Manifest(Manifest { log_start: 1, state: vec![7; 100] });
        let [mut longer, mut damaged] = [seal(4), seal(5)];
        longer.push(0);
        damaged[40] ^= 1;
        let objects = [seal(1), frame(manifest).encode(name(2)), Vec::new(), longer, damaged];
        for (number, bytes) in (1..).zip(objects) {
            store.put(&Object { name: name(number), bytes });
        }
        let expected = vec![false, true, true, true, true, false];
        assert_eq!(present(&store, &[1, 2, 3, 4, 5, 6], name), Ok(expected));
        assert_eq!(present(&store, &[1, NUMBER_MAX + 1], name), Ok(vec![false, false]));
        let beyond = name(NUMBER_MAX + 1);
        let refused = Err(ObjectError::Damaged(beyond));
        assert_eq!(present(&store, &[2, NUMBER_MAX + 1, u64::MAX], name), refused);
        assert_eq!(present(&store, &[NUMBER_MAX + 1], name), refused);
    }
}

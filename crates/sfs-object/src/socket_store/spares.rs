//! Memory of replies, used again: a mapping of fresh pages for each object takes longer than its bytes do.

use parking_lot::Mutex;

/// Shortest body whose memory is kept.
const LEN_MIN: usize = 512 << 10;
/// Longest one.
const LEN_MAX: usize = 8 << 20;
/// Number that is kept.
const COUNT_MAX: usize = 4;

/// Memory that nobody uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    /// Returns memory for a body of `len` bytes, with any bytes of earlier ones.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        match (LEN_MIN..=LEN_MAX).contains(&len) {
            true => self.0.lock().pop().unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Keeps the memory of bytes that are not needed any more, if it is worth it.
    pub(super) fn give_back(&self, bytes: Vec<u8>) {
        let mut spares = self.0.lock();
        if (LEN_MIN..=2 * LEN_MAX).contains(&bytes.capacity()) && spares.len() < COUNT_MAX {
            spares.push(bytes);
        }
    }

    /// Frees everything.
    pub(super) fn free(&self) {
        let spares = std::mem::take(&mut *self.0.lock());
        drop(spares);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_large_bodies_is_used_again() {
        let spares = Spares::default();
        spares.give_back(vec![1; 100]);
        assert_eq!(spares.take(LEN_MIN).capacity(), 0);
        (0..10).for_each(|_| spares.give_back(vec![1; LEN_MIN]));
        let taken = (0..10).map(|_| spares.take(LEN_MIN));
        let taken = taken.filter(|bytes| bytes.capacity() >= LEN_MIN);
        assert_eq!(taken.count(), COUNT_MAX);
        spares.give_back(vec![1; LEN_MIN]);
        spares.free();
        assert_eq!(spares.take(LEN_MIN).capacity(), 0);
    }
}

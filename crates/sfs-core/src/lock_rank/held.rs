//! Ranks that a thread holds.

use super::rank::Rank;

pub(super) use checked::Held;
#[cfg(test)]
pub(super) use checked::is_none_held;

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::marker::PhantomData;

    use super::Rank;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// A rank that this thread holds. The rank must be dropped by the thread that took it, so it is not `Send`.
    #[derive(Debug)]
    pub(in crate::lock_rank) struct Held(Rank, PhantomData<*const ()>);

    impl Held {
        /// Adds `rank`.
        ///
        /// # Panics
        ///
        /// If this thread holds a lock of a higher rank, or of the same rank.
        pub(in crate::lock_rank) fn check_and_add(rank: Rank) -> Self {
            HELD.with_borrow(|held| {
                // A commit holds the data of many files at once.
                let is_out_of_order =
                    |other: &Rank| *other > rank || *other == rank && rank != Rank::FileData;
                if let Some(other) = held.iter().find(|other| is_out_of_order(other)) {
                    panic!("a lock of rank {rank:?} is taken while one of {other:?} is held");
                }
            });
            Self::add(rank)
        }

        /// Adds `rank` without a check.
        pub(in crate::lock_rank) fn add(rank: Rank) -> Self {
            HELD.with_borrow_mut(|held| held.push(rank));
            Self(rank, PhantomData)
        }
    }

    /// Returns whether this thread holds no rank.
    #[cfg(test)]
    pub(in crate::lock_rank) fn is_none_held() -> bool {
        HELD.with_borrow(Vec::is_empty)
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A thread that ends may have dropped the list already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod checked {
    use super::Rank;

    /// Nothing: ranks are checked in debug builds only.
    #[derive(Debug)]
    pub(in crate::lock_rank) struct Held;

    impl Held {
        pub(in crate::lock_rank) fn check_and_add(_rank: Rank) -> Self {
            Self
        }

        pub(in crate::lock_rank) fn add(_rank: Rank) -> Self {
            Self
        }
    }

    /// Nothing is known in a release build.
    #[cfg(test)]
    pub(in crate::lock_rank) fn is_none_held() -> bool {
        true
    }
}

//! The switch for deliberate bugs, which are called *mutants*: tests prove that they find each of them.
//!
//! A crate with mutants has an enum of them and a feature `mutants`, and calls [`switch!`]. Code that a mutant breaks asks
//! `mutated`. Without the feature the answer is a constant `false`, and the compiler removes the bug. No program that mounts
//! enables the feature.
#![forbid(unsafe_code)]

/// Defines `release`, which enables one mutant of the given type in the present thread, and `mutated`, which asks for one.
///
/// Both are functions of the module that calls the macro, and the feature `mutants` is that of its crate.
#[macro_export]
macro_rules! switch {
    ($mutant:ty) => {
        #[cfg(feature = "mutants")]
        ::std::thread_local! {
            static ENABLED: ::std::cell::Cell<Option<$mutant>> = const { ::std::cell::Cell::new(None) };
        }

        /// Enables `mutant` in this thread and disables all others.
        #[cfg(feature = "mutants")]
        pub fn release(mutant: Option<$mutant>) {
            ENABLED.set(mutant);
        }

        /// Returns whether `mutant` is enabled in this thread.
        #[cfg(feature = "mutants")]
        pub(crate) fn mutated(mutant: $mutant) -> bool {
            ENABLED.get() == Some(mutant)
        }

        /// Returns `false`.
        #[cfg(not(feature = "mutants"))]
        pub(crate) const fn mutated(_: $mutant) -> bool {
            false
        }
    };
}

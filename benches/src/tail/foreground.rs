//! The loads whose requests are timed.

mod listing;
mod overwriting;
mod rounds;

pub use listing::listing;
pub use overwriting::{Choice, Overwriting, fill};
pub use rounds::rounds;

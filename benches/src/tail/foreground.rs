//! The loads whose requests are timed.

mod arrivals;
mod listing;
mod overwriting;
mod rounds;

pub use arrivals::{Arrivals, arrivals};
pub use listing::listing;
pub use overwriting::{Choice, Overwriting, fill};
pub use rounds::rounds;

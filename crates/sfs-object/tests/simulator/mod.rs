//! An object volume on a store that fails and a local cache that loses power, beside a model of what was written.

pub(crate) mod cache;
pub(crate) mod life;
pub(crate) mod model;
pub(crate) mod store;

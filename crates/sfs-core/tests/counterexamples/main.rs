//! Regression tests: one for each way in which a guarantee of the volume was once broken. The comment of a
//! test describes the failure that it guards against.

mod cleaning;
mod crashes;
mod damage;
mod during_sync;
mod errors;
mod files;
mod fixture;
mod forged;
mod full;
mod nearly_full;
mod policies;
mod races;
mod reserves;
mod space;

//! One test for each way in which a promise was once broken.

mod cleaning;
mod crashes;
mod files;
mod full;
mod policies;
mod races;
mod rig;
mod space;

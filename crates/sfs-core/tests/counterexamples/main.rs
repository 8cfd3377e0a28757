//! One test for each way in which a promise was once broken.

mod cleaning;
mod crashes;
mod damage;
mod errors;
mod files;
mod fixture;
mod forged;
mod full;
mod held_up;
mod policies;
mod races;
mod scene;
mod space;

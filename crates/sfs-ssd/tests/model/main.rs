//! The device models from outside: theory, sequences worked out by hand, random histories, queues.

mod controller;
mod determinism;
mod hybrid;
mod integrity;
mod objects;
mod profiles;
mod rig;
mod theory;

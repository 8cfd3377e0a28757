//! Faults that are not crashes: what the fifth and sixth sentence of the durability contract
//! (docs/SEMANTICS.md) say of them.

mod failing;
mod lying;
mod rot;
mod shrinking;
mod witness;

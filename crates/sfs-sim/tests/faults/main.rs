//! Tests of the fifth and sixth sentence of the durability contract (docs/SEMANTICS.md), on faults other than
//! crashes.

mod failing;
mod rot;
mod shrinking;
mod silent;
mod witness;

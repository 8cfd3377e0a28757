//! The state of the SFS policy in a checkpoint.
//!
//! The encoding has a fixed length: epoch, next update, centres, then counts as logarithms, 16 bits a population
//! and 8 bits a count of deaths or a time at risk. Bytes of another length are ignored. Any other bytes decode to
//! counts that are finite and not negative.

use super::ages::CELLS;
use super::digest::ROWS;
use super::groups::Groups;
use super::hazard::{Hazard, Table};
use crate::policy::GROUPS_MAX;

const CENTRES: usize = GROUPS_MAX as usize;
const COUNTS: usize = CELLS * ROWS;
pub(super) const LEN: usize = 8 + CENTRES * 4 + COUNTS * 4;

/// Codes per octave of a 16-bit count; code 0 is zero.
const FINE: f64 = 1024.0;
/// Codes per octave of an 8-bit count.
const COARSE: f64 = 5.0;

fn encode(count: f64, steps: f64, max: f64) -> f64 {
    if count < 0.5 { 0.0 } else { ((count.log2() + 1.0) * steps + 1.0).round().min(max) }
}

fn decode(code: f64, steps: f64) -> f64 {
    if code == 0.0 { 0.0 } else { ((code - 1.0) / steps - 1.0).exp2() }
}

fn counts(table: &Table) -> impl Iterator<Item = f64> {
    table.as_flattened().iter().copied()
}

/// Appends epoch, next update, centres and counts to `state`.
pub(super) fn save(hazard: &Hazard, groups: &Groups, next_draw: u32, state: &mut Vec<u8>) {
    state.extend_from_slice(&hazard.epoch.to_le_bytes());
    state.extend_from_slice(&next_draw.to_le_bytes());
    for centre in groups.centres {
        state.extend_from_slice(&(centre.unwrap_or(f64::NAN) as f32).to_le_bytes());
    }
    for count in counts(&hazard.population) {
        let code = encode(count, FINE, f64::from(u16::MAX)) as u16;
        state.extend_from_slice(&code.to_le_bytes());
    }
    for table in [&hazard.deaths, &hazard.exposure] {
        state.extend(counts(table).map(|count| encode(count, COARSE, 255.0) as u8));
    }
}

/// Restores epoch and counts of `hazard` and the centres of `groups`. Returns the time of the next update, in ticks;
/// `None` for bytes of another length, which change nothing.
pub(super) fn restore(hazard: &mut Hazard, groups: &mut Groups, state: &[u8]) -> Option<u32> {
    if state.len() != LEN {
        return None;
    }
    let (times, state) = state.split_at(8);
    let (centres, state) = state.split_at(CENTRES * 4);
    let (population, state) = state.split_at(COUNTS * 2);
    let (deaths, exposure) = state.split_at(COUNTS);
    let [epoch, next_draw] = [0, 1].map(|no| {
        times.as_chunks().0.get(no).map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes))
    });
    hazard.epoch = epoch;
    let mut restored = groups.centres;
    // The state may come from a mount with more groups.
    let allowed = restored.iter_mut().take(groups.count_max.into());
    for (centre, bytes) in allowed.zip(centres.as_chunks().0) {
        let value = f64::from(f32::from_le_bytes(*bytes));
        *centre = (0.0..64.0).contains(&value).then_some(value);
    }
    groups.restore(restored);
    let into = hazard.population.as_flattened_mut().iter_mut();
    for (count, bytes) in into.zip(population.as_chunks().0) {
        *count = decode(f64::from(u16::from_le_bytes(*bytes)), FINE).min(1e12);
    }
    for (table, codes) in [(&mut hazard.deaths, deaths), (&mut hazard.exposure, exposure)] {
        for (count, code) in table.as_flattened_mut().iter_mut().zip(codes) {
            *count = decode(f64::from(*code), COARSE);
        }
    }
    Some(next_draw)
}

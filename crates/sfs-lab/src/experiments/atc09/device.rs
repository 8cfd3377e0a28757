//! Full devices, the size of a page, and the texts of a row, for all tables.

use anyhow::{Context, Result};
use sfs_ssd::{Ssd, SsdConfig};

/// Size of a page, in bytes.
pub(super) const PAGE: u64 = 4096;

/// Returns the cells of a row.
pub(super) fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns a device that is full and idle.
pub(super) fn filled(config: &SsdConfig) -> Result<Ssd> {
    Ssd::filled(config).context("too few spare blocks")
}

//! The interface between the controller and a translation layer.

use crate::flash::Flash;

/// Page that the host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// Number of the page.
    pub page: u32,
    /// Number of the write, stored in the spare area.
    pub version: u32,
    /// Stream of the page. A layer treats numbers beyond its last stream as its last stream.
    pub stream: u8,
}

/// Flash translation layer.
///
/// Times are in nanoseconds. A call takes the earliest time at which it may begin, and returns the time at
/// which the host's page is written.
pub trait Ftl: Send {
    /// Writes a page and returns the time at which the write ends.
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64;

    /// Unmaps a page.
    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64);

    /// Returns the slot of the last version of a page; `None` if the page holds nothing.
    fn slot(&self, page: u32) -> Option<u32>;

    /// Returns the slot that the next write of a page will take; `None` if the slot is not known yet.
    fn slot_next(&self, flash: &Flash, page: u32, stream: u8) -> Option<u32>;

    /// Cleans one victim if fewer than `low_permille` thousandths of the blocks of any gang are
    /// free.
    ///
    /// Returns whether a victim was cleaned. A layer without background cleaning returns `false`.
    fn clean(&mut self, flash: &mut Flash, low_permille: u32, at_ns: u64) -> bool;
}

//! A 4 KiB buffer whose address is a multiple of 4 KiB, as O_DIRECT asks.

pub(super) const BLOCK: usize = 4096;

#[repr(align(4096))]
pub(super) struct Block(pub(super) [u8; BLOCK]);

impl Block {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0; BLOCK]))
    }
}

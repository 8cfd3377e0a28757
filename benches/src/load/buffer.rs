//! A buffer of 4 KiB that is aligned to 4 KiB, as O_DIRECT requires.

pub(super) const BLOCK: usize = 4096;

#[repr(align(4096))]
pub(super) struct AlignedBlock(pub(super) [u8; BLOCK]);

impl AlignedBlock {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0; BLOCK]))
    }
}

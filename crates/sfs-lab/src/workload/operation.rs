//! One operation of a workload, and the trait of all workloads.

/// A write or deletion of a block. The highest bit of the number marks a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOperation(u32);

impl BlockOperation {
    const DELETE: u32 = 1 << 31;

    /// Returns the write of `block`.
    pub fn write(block: u32) -> Self {
        Self(block)
    }

    /// Returns the deletion of `block`.
    pub fn delete(block: u32) -> Self {
        Self(block | Self::DELETE)
    }

    /// Returns the number of the block.
    pub fn block(self) -> u32 {
        self.0 & !Self::DELETE
    }

    /// Returns the same operation on the block whose number is higher by `count`.
    pub fn shifted(self, count: u32) -> Self {
        Self(self.0 + count)
    }

    /// Returns whether the operation is a deletion.
    pub fn is_delete(self) -> bool {
        self.0 & Self::DELETE != 0
    }
}

/// An endless stream of operations.
pub trait Workload {
    /// Returns the next operation.
    fn next(&mut self) -> BlockOperation;
}

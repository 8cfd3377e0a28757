//! Implementations of [`Device`] for `Arc` and `Box`, which forward each call to the device they point to.

use std::sync::Arc;

use crate::block::Block;
use crate::device::{Device, ReadRun, Stream};
use crate::error::DeviceError;
use crate::geometry::Geometry;

macro_rules! forward_to_pointee {
    ($pointer:ident) => {
        impl<D: Device + ?Sized> Device for $pointer<D> {
            fn geometry(&self) -> &Geometry {
                (**self).geometry()
            }

            fn refresh_block_count(&self) -> Result<u64, DeviceError> {
                (**self).refresh_block_count()
            }

            fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
                (**self).read(address, buffer)
            }

            fn read_many(&self, runs: &mut [ReadRun<'_>]) -> Vec<Result<(), DeviceError>> {
                (**self).read_many(runs)
            }

            fn write(
                &self,
                address: u64,
                parts: &[&[Block]],
                stream: Stream,
            ) -> Result<(), DeviceError> {
                (**self).write(address, parts, stream)
            }

            fn flush(&self) -> Result<(), DeviceError> {
                (**self).flush()
            }

            fn order(&self) -> Result<bool, DeviceError> {
                (**self).order()
            }

            fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
                (**self).discard(address, count)
            }
        }
    };
}

forward_to_pointee!(Arc);
forward_to_pointee!(Box);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamDevice;

    #[test]
    fn requests_to_a_pointer_reach_the_device() {
        let shared = Arc::new(RamDevice::new(4));
        let erased: Box<dyn Device> = Box::new(Arc::clone(&shared));
        let block = Block([7; 4096]);
        erased.write(2, &[std::slice::from_ref(&block)], Stream::default()).unwrap();
        erased.flush().unwrap();
        let mut found = [Block::ZERO];
        shared.read(2, &mut found).unwrap();
        assert_eq!(found, [block]);
        erased.discard(2, 1).unwrap();
        erased.read(2, &mut found).unwrap();
        assert_eq!(found, [Block::ZERO]);
        assert_eq!(erased.geometry().block_count, 4);
    }
}

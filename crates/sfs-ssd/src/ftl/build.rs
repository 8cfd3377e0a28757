//! Construction of the translation layer that a [`Layer`] names.

use super::bast::Bast;
use super::fast::Fast;
use super::interface::Ftl;
use super::layer::{Layer, WearLevelling};
use super::page_mapped::PageMapped;
use super::superblock::Superblock;
use crate::geometry::FlashGeometry;

impl Layer {
    /// Builds the layer for an erased device of this geometry; returns `None` if the device has too few
    /// spare blocks.
    pub fn build(&self, geometry: &FlashGeometry, wear: WearLevelling) -> Option<Box<dyn Ftl>> {
        match *self {
            Layer::PageMapped { collection, streams, isolation } => {
                PageMapped::new(geometry, collection, streams, isolation, wear)
                    .map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
            Layer::Fast { log_blocks } => {
                Fast::new(geometry, log_blocks, wear).map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
            Layer::Bast { log_blocks } => {
                Bast::new(geometry, log_blocks, wear).map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
            Layer::Superblock { log_blocks, width } => {
                Superblock::new(geometry, log_blocks, width, wear)
                    .map(|layer| Box::new(layer) as Box<dyn Ftl>)
            }
        }
    }
}

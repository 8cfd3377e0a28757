//! Data layouts: the places of the data blocks of a commit, and the number of blocks that fit.
//!
//! Data is appended to the log, or overwritten in place, as `sfs-mkfs --layout` has decided. A layout sees staged
//! blocks and a [`SpaceView`]; it neither writes nor changes anything before the commit is certain. The namespace
//! above and the tree below do not know which layout is in use.

mod behaviour;
mod in_place;
mod log;

use crate::format::DataLayout;
use in_place::InPlace;
use log::Appending;

pub(crate) use behaviour::{InPlaceBatch, LayoutBehaviour, SpaceView, Withheld};

/// Returns the behaviour of a data layout.
pub(crate) fn behaviour_of(data_layout: DataLayout) -> Box<dyn LayoutBehaviour> {
    match data_layout {
        DataLayout::Log => Box::new(Appending),
        _ => Box::new(InPlace),
    }
}

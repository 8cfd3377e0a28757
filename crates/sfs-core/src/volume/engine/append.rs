//! The log as an engine: every block is appended to the head of its group.

use super::{Engine, Site};
use crate::format::Layout;
use crate::log::Batch;
use crate::meta::Meta;
use crate::volume::commit::{Chosen, data_head, sort};

/// See the module.
pub(in crate::volume) struct Append;

impl Engine for Append {
    fn ample(&self, layout: &Layout, _meta: &Meta, spare: usize) -> usize {
        // Every block may make a leaf dirty, which a checkpoint has to write.
        spare * Batch::segment_room(layout) / 2
    }

    fn room(&self, site: Site<'_>, spare: usize) -> usize {
        if spare > 0 {
            return self.ample(site.layout, site.meta, spare).max(2);
        }
        // A few more fit where the roomiest head is.
        Batch::head_room(site.log, site.layout, data_head(roomiest(site)))
    }

    fn opens(&self, site: Site<'_>, chosen: &[Chosen]) -> usize {
        let opens = |group| {
            let count = chosen.iter().filter(|c| c.group == group).count();
            Batch::opens(site.log, site.layout, data_head(group), count, 0)
        };
        (0..site.meta.placement.group_count()).map(opens).sum()
    }

    /// There are not segments for all groups: one head takes everything.
    fn narrow(&self, site: Site<'_>, chosen: &mut [Chosen]) {
        let group = roomiest(site);
        chosen.iter_mut().for_each(|c| c.group = group);
        sort(chosen);
    }
}

/// The group whose head has the most room left.
fn roomiest(site: Site<'_>) -> u8 {
    let groups = 0..site.meta.placement.group_count();
    let room = |group: &u8| Batch::head_room(site.log, site.layout, data_head(*group));
    groups.max_by_key(room).unwrap_or(0)
}

//! The answer to the request for the state of the segments.

use super::handler::ControlHandler;
use super::messages::ControlReply;
use crate::stat_report::SegmentsMessage;

impl ControlHandler {
    /// Returns the segments from `first` on, as many as fit into a message.
    pub(super) fn segments(&self, first: u32) -> ControlReply {
        ControlReply::Segments(Box::new(SegmentsMessage::of(&self.volume.now(), first)))
    }
}

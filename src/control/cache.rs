//! Requests about the SSD cache of a mount.

use super::handler::ControlHandler;
use super::messages::{CacheRequest, ControlReply};
use crate::exit_error::ExitError;

impl ControlHandler {
    /// Serves a request about the cache.
    pub(super) fn cache(&self, request: &CacheRequest) -> Result<ControlReply, ExitError> {
        let device = &self.device;
        if *request == CacheRequest::Detach {
            return self.detach_cache();
        }
        let Some(cache) = &self.cache else {
            return Err(ExitError::mount(format_args!(
                "{device}: is mounted without an SSD cache; the log of the mount has the reason"
            )));
        };
        if *request == CacheRequest::Flush {
            let failed = |reason| ExitError::mount(format_args!("{device}: {reason}"));
            cache.flush().map_err(failed)?;
        }
        Ok(ControlReply::Cache(Box::new(cache.report())))
    }

    /// Makes the volume one without a cache, and closes the SSD.
    fn detach_cache(&self) -> Result<ControlReply, ExitError> {
        let device = &self.device;
        let _is_over = self.keep_mounted()?;
        let detached = self.volume.now().set_cache(None);
        detached.map_err(|error| ExitError::mount(format_args!("{device}: {error}")))?;
        if let Some(cache) = &self.cache {
            cache.give_up("it was detached");
        }
        Ok(ControlReply::CacheDetached)
    }
}

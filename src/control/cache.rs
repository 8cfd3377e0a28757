//! Requests about the SSD cache of a mount.

use super::handler::ControlHandler;
use super::messages::CacheRequest;
use crate::exit_error::ExitError;
use crate::volume_cache::CacheReport;

impl ControlHandler {
    /// Serves a request about the cache, and returns the figures after it.
    pub(super) fn cache(&self, request: &CacheRequest) -> Result<CacheReport, ExitError> {
        let device = &self.device;
        let Some(cache) = &self.cache else {
            return Err(ExitError::mount(format_args!(
                "{device}: is mounted without an SSD cache; the log of the mount has the reason"
            )));
        };
        match request {
            CacheRequest::Stat => {}
            CacheRequest::Flush => cache
                .flush()
                .map_err(|reason| ExitError::mount(format_args!("{device}: {reason}")))?,
            CacheRequest::Detach => {
                let _is_over = self.keep_mounted()?;
                let detached = self.volume.set_cache(None);
                detached.map_err(|error| ExitError::mount(format_args!("{device}: {error}")))?;
                cache.give_up("it was detached");
            }
        }
        Ok(cache.report())
    }
}

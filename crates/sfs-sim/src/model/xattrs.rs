//! Operations of the reference on extended attributes.

use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::XATTR_LEN_MAX;
use sfs_core::request::{Caller, XattrMode};

use super::reference::Reference;

impl Reference {
    /// Sets an extended attribute of `ino`.
    ///
    /// # Errors
    ///
    /// The error that the volume has to return.
    pub fn set_xattr(
        &mut self,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        caller: &Caller,
    ) -> Result<(), Error> {
        if value.len() > XATTR_LEN_MAX {
            return Err(Error::ValueTooLong);
        }
        self.node(ino)?.may_remove()?;
        let exists = self.node(ino)?.xattrs.contains_key(name);
        match (exists, mode) {
            (true, XattrMode::Create) => return Err(Error::Exists),
            (false, XattrMode::Replace) => return Err(Error::NoAttribute),
            _ => {}
        }
        let node = self.edit(ino);
        node.xattrs.insert(name.to_vec(), Arc::new(value.to_vec()));
        node.ctime = caller.now;
        Ok(())
    }

    /// Removes an extended attribute of `ino`.
    ///
    /// # Errors
    ///
    /// The error that the volume has to return.
    pub fn remove_xattr(&mut self, ino: u64, name: &[u8], caller: &Caller) -> Result<(), Error> {
        self.node(ino)?.may_remove()?;
        if !self.node(ino)?.xattrs.contains_key(name) {
            return Err(Error::NoAttribute);
        }
        let node = self.edit(ino);
        node.xattrs.remove(name);
        node.ctime = caller.now;
        Ok(())
    }
}

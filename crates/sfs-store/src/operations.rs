//! Doing the work of requests.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use sfs_object::store_protocol::{Reply, Request};
use sfs_object::{ObjectName, Part};

use crate::http_reply::observed;
use crate::{outcome, probe};

/// An object store, and the prefix of the names of one volume.
pub(crate) struct Store {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
}

impl Store {
    /// Does what a request asks for.
    pub(crate) async fn answer(&self, request: Request, body: Vec<u8>) -> Reply {
        match request {
            Request::Put(name) => self.put(&self.path(name), body).await,
            Request::Get(name) => self.get(&self.path(name)).await,
            Request::GetPart(part) => self.get_part(part).await,
            Request::Delete(name) => self.delete(&self.path(name)).await,
            Request::Probe => probe::probe(self).await,
        }
    }

    fn path(&self, name: ObjectName) -> Path {
        self.below(&name.to_string())
    }

    /// Returns the path of a name below the prefix.
    pub(crate) fn below(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(name.split('/').map(Into::into)))
    }

    /// Stores an object, if its name is free.
    pub(crate) async fn put(&self, path: &Path, body: Vec<u8>) -> Reply {
        let put = self.store.put_opts(path, PutPayload::from(body), PutMode::Create.into());
        match observed(put).await {
            (Ok(_), _) => Reply::Done,
            (Err(error), http) => outcome::of_put(&error, &http),
        }
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &Path) -> Reply {
        self.read(path, GetOptions::default()).await
    }

    async fn read(&self, path: &Path, options: GetOptions) -> Reply {
        let read = async { self.store.get_opts(path, options).await?.bytes().await };
        match observed(read).await {
            (Ok(bytes), _) => Reply::Found(bytes.into()),
            (Err(error), http) => outcome::of_access(&error, &http),
        }
    }

    async fn get_part(&self, part: Part) -> Reply {
        let path = self.path(part.name);
        let end = part.offset.saturating_add(part.len);
        if part.len > 0 {
            let range = GetRange::Bounded(part.offset..end);
            let reply = self.read(&path, GetOptions::new().with_range(Some(range))).await;
            if !matches!(reply, Reply::Unknown(_) | Reply::Refused(_)) {
                return reply;
            }
            // A store refuses a part that begins beyond the end.
            return match observed(self.store.head(&path)).await {
                (Ok(object), _) if object.size <= part.offset => Reply::Found(Vec::new()),
                _ => reply,
            };
        }
        match observed(self.store.head(&path)).await {
            (Ok(_), _) => Reply::Found(Vec::new()),
            (Err(error), http) => outcome::of_access(&error, &http),
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, path: &Path) -> Reply {
        let (result, http) = observed(self.store.delete(path)).await;
        match result {
            Ok(()) => Reply::Done,
            // Azure answers 404 inside of a reply about several objects.
            Err(error @ Error::NotFound { .. }) if !outcome::names_bucket(&error) => Reply::Done,
            Err(error) => outcome::of_access(&error, &http),
        }
    }
}

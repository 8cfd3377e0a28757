//! Objects in memory, and what S3 says about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::http::{Reply, Request, encoded};
use crate::multipart::Uploads;

/// Date of all objects.
const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const DATE_OF_LISTS: &str = "2026-01-01T00:00:00.000Z";

#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<Vec<u8>>,
    /// Headers that belong to the object.
    headers: Vec<(String, String)>,
    /// Number of the PUT.
    version: u64,
}

/// The objects of one bucket.
#[derive(Debug, Default)]
pub(crate) struct Objects(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    puts: u64,
    uploads: Uploads,
}

impl Objects {
    /// Does what a request says. `key` is its name in the bucket, empty for the bucket itself.
    pub(crate) fn answer(&self, request: &mut Request, key: &str) -> Reply {
        match (&request.method[..], key.is_empty()) {
            ("GET", true) if request.query.contains_key("location") => {
                Reply::xml(200, "<LocationConstraint/>")
            }
            ("GET", true) => self.list(request),
            ("PUT" | "HEAD", true) => Reply::empty(200),
            ("PUT", false) if request.query.contains_key("uploadId") => {
                self.lock().uploads.put_part(request)
            }
            ("PUT", false) => self.put(request, key),
            ("POST", false) if request.query.contains_key("uploads") => {
                self.lock().uploads.begin(request, key)
            }
            ("POST", false) if request.query.contains_key("uploadId") => {
                self.complete(request, key)
            }
            ("GET" | "HEAD", false) => self.get(request, key),
            ("DELETE", false) if request.query.contains_key("uploadId") => {
                self.lock().uploads.take(request);
                Reply::empty(204)
            }
            ("DELETE", false) => {
                self.lock().objects.remove(key);
                Reply::empty(204)
            }
            _ => Reply::error(501, "NotImplemented"),
        }
    }

    /// Returns whether an object has `bytes`.
    pub(crate) fn hold(&self, bytes: &[u8]) -> bool {
        let has = |object: &Object| object.bytes.windows(bytes.len()).any(|part| part == bytes);
        self.lock().objects.values().any(has)
    }

    /// Returns the number of objects whose names begin with `prefix`, and their bytes.
    pub(crate) fn stored(&self, prefix: &str) -> (u64, u64) {
        let state = self.lock();
        let found = state.objects.iter().filter(|(key, _)| key.starts_with(prefix));
        found.fold((0, 0), |(count, bytes), (_, object)| {
            (count + 1, bytes + object.bytes.len() as u64)
        })
    }

    /// Forgets all objects whose names begin with `prefix`.
    pub(crate) fn clear(&self, prefix: &str) {
        self.lock().objects.retain(|key, _| !key.starts_with(prefix));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, request: &mut Request, key: &str) -> Reply {
        let mut state = self.lock();
        let is_conditional = request.headers.get("if-none-match").is_some_and(|what| what == "*");
        if is_conditional && state.objects.contains_key(key) {
            return Reply::error(412, "PreconditionFailed");
        }
        state.puts += 1;
        let version = state.puts;
        let headers = kept_headers(request);
        let Some(source) = request.headers.get("x-amz-copy-source") else {
            let bytes = Arc::new(std::mem::take(&mut request.body));
            state.objects.insert(key.to_owned(), Object { bytes, headers, version });
            let mut reply = Reply::empty(200);
            reply.headers.push(etag(version));
            return reply;
        };
        let source = crate::http::decoded(source);
        let (_, source) = source.trim_start_matches('/').split_once('/').unwrap_or_default();
        let Some(object) = state.objects.get(source).cloned() else {
            return Reply::error(404, "NoSuchKey");
        };
        let is_replaced =
            request.headers.get("x-amz-metadata-directive").is_some_and(|what| what == "REPLACE");
        let headers = if is_replaced { headers } else { object.headers };
        state.objects.insert(key.to_owned(), Object { bytes: object.bytes, headers, version });
        let (_, tag) = etag(version);
        let copied = format!("<ETag>{tag}</ETag><LastModified>{DATE_OF_LISTS}</LastModified>");
        Reply::xml(200, &format!("<CopyObjectResult>{copied}</CopyObjectResult>"))
    }

    /// Makes an object of the parts that were uploaded.
    fn complete(&self, request: &Request, key: &str) -> Reply {
        let mut state = self.lock();
        let Some(upload) = state.uploads.take(request) else {
            return Reply::error(404, "NoSuchUpload");
        };
        state.puts += 1;
        let version = state.puts;
        let (headers, bytes) = upload.into_object();
        state.objects.insert(key.to_owned(), Object { bytes: Arc::new(bytes), headers, version });
        let (_, tag) = etag(version);
        let (name, key) = (crate::server::BUCKET, key.replace('&', "&amp;").replace('<', "&lt;"));
        Reply::xml(
            200,
            &format!(
                "<CompleteMultipartUploadResult><Bucket>{name}</Bucket><Key>{key}</Key><ETag>{tag}</ETag>\
                 </CompleteMultipartUploadResult>"
            ),
        )
    }

    fn get(&self, request: &Request, key: &str) -> Reply {
        let Some(object) = self.lock().objects.get(key).cloned() else {
            let mut reply = Reply::error(404, "NoSuchKey");
            if request.method == "HEAD" {
                reply.body.clear();
            }
            return reply;
        };
        let mut reply = Reply { headers: object.headers, ..Reply::empty(200) };
        reply.headers.push(etag(object.version));
        reply.headers.push(("last-modified".to_owned(), DATE.to_owned()));
        reply.headers.push(("accept-ranges".to_owned(), "bytes".to_owned()));
        let len = object.bytes.len();
        if request.method == "HEAD" {
            reply.len_of_head = Some(len);
            return reply;
        }
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
            reply.body = object.bytes.to_vec();
            return reply;
        };
        let to = to.parse().map_or(len, |to: usize| len.min(to + 1));
        let from = from.parse().unwrap_or(0);
        if from >= to {
            return Reply::error(416, "InvalidRange");
        }
        reply.status = 206;
        let range = format!("bytes {from}-{}/{len}", to - 1);
        reply.headers.push(("content-range".to_owned(), range));
        reply.body = object.bytes[from..to].to_vec();
        reply
    }

    fn list(&self, request: &Request) -> Reply {
        let asked = |name: &str| request.query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (asked("prefix"), asked("delimiter"));
        let shown = |key: &str| match asked("encoding-type") {
            "url" => encoded(key),
            _ => key.replace('&', "&amp;").replace('<', "&lt;"),
        };
        let state = self.lock();
        let (mut contents, mut common) = (String::new(), BTreeSet::new());
        for (key, object) in state.objects.range(prefix.to_owned()..) {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
                Some(at) => {
                    common.insert(&key[..prefix.len() + at + delimiter.len()]);
                }
                None => {
                    let (_, tag) = etag(object.version);
                    let _ = write!(
                        contents,
                        "<Contents><Key>{}</Key><LastModified>{DATE_OF_LISTS}</LastModified><ETag>{tag}</ETag>\
                         <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                        shown(key),
                        object.bytes.len()
                    );
                }
            }
        }
        for prefix in common {
            let prefix = shown(prefix);
            let _ = write!(contents, "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
        }
        let (name, prefix) = (crate::server::BUCKET, shown(prefix));
        let head =
            format!("<Name>{name}</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>");
        Reply::xml(200, &format!("<ListBucketResult>{head}{contents}</ListBucketResult>"))
    }
}

/// Returns the headers of a PUT that belong to the object.
pub(crate) fn kept_headers(request: &Request) -> Vec<(String, String)> {
    let kept = |name: &str| name.starts_with("x-amz-meta-") || name == "content-type";
    let headers = request.headers.iter().filter(|(name, _)| kept(name));
    headers.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Not the form of an MD5, so that clients compare it with no digest.
fn etag(version: u64) -> (String, String) {
    ("etag".to_owned(), format!("\"put-{version}\""))
}

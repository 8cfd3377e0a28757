//! Objects that are uploaded in parts, as other programs than SFS do.

use std::collections::BTreeMap;

use crate::http::{Reply, Request};
use crate::objects::kept_headers;

/// Uploads that have begun and are not complete, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    begun: BTreeMap<String, Upload>,
    last: u64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Upload {
    headers: Vec<(String, String)>,
    parts: BTreeMap<u64, Vec<u8>>,
}

impl Uploads {
    /// Begins the upload of the object `key`.
    pub(crate) fn begin(&mut self, request: &Request, key: &str) -> Reply {
        self.last += 1;
        let id = format!("upload-{}", self.last);
        let upload = Upload { headers: kept_headers(request), parts: BTreeMap::new() };
        self.begun.insert(id.clone(), upload);
        let (bucket, key) = (crate::server::BUCKET, key.replace('&', "&amp;").replace('<', "&lt;"));
        let said = format!("<Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>");
        Reply::xml(
            200,
            &format!("<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>"),
        )
    }

    /// Keeps a part.
    pub(crate) fn put_part(&mut self, request: &mut Request) -> Reply {
        let number = request.query.get("partNumber").and_then(|number| number.parse().ok());
        let upload = request.query.get("uploadId").and_then(|id| self.begun.get_mut(id));
        let (Some(number), Some(upload)) = (number, upload) else {
            return Reply::error(404, "NoSuchUpload");
        };
        upload.parts.insert(number, std::mem::take(&mut request.body));
        let mut reply = Reply::empty(200);
        reply.headers.push(("etag".to_owned(), format!("\"part-{number}\"")));
        reply
    }

    /// Ends an upload, and returns what it has.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Upload> {
        self.begun.remove(request.query.get("uploadId")?)
    }
}

impl Upload {
    /// Returns the headers and the bytes of the object: all parts in their order.
    pub(crate) fn into_object(self) -> (Vec<(String, String)>, Vec<u8>) {
        (self.headers, self.parts.into_values().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;

    fn request(method: &str, query: &[(&str, &str)], body: &[u8]) -> Request {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Request {
            method: method.to_owned(),
            query: query.collect(),
            body: body.to_vec(),
            ..Request::default()
        }
    }

    #[test]
    fn an_object_has_its_parts_in_their_order_once_it_is_complete() {
        let objects = Objects::default();
        let begun = objects.answer(&mut request("POST", &[("uploads", "")], b""), "name");
        assert!(String::from_utf8_lossy(&begun.body).contains("<UploadId>upload-1<"));
        for (number, part) in [("2", "second"), ("1", "first ")] {
            let query = [("partNumber", number), ("uploadId", "upload-1")];
            let reply = objects.answer(&mut request("PUT", &query, part.as_bytes()), "name");
            assert_eq!(reply.status, 200);
        }
        assert_eq!(objects.answer(&mut request("GET", &[], b""), "name").status, 404);
        let complete = || request("POST", &[("uploadId", "upload-1")], b"");
        assert_eq!(objects.answer(&mut complete(), "name").status, 200);
        assert_eq!(objects.answer(&mut complete(), "name").status, 404, "it has ended");
        assert_eq!(objects.answer(&mut request("GET", &[], b""), "name").body, b"first second");
        assert_eq!(objects.stored("na"), (1, 12));
        objects.clear("na");
        assert_eq!(objects.stored(""), (0, 0));
    }
}

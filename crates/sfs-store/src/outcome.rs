//! Outcomes of requests that have failed: done by another, refused, or unknown.

use std::error::Error as _;
use std::io;

use object_store::Error;
use object_store::client::HttpError;
use sfs_object::store_protocol::Reply;

use crate::http_reply::HttpReply;

/// Returns the outcome of a PUT that has failed.
pub(crate) fn of_put(error: &Error, http: &HttpReply) -> Reply {
    let is_taken = match (error, http.status) {
        // In a directory: the link was there.
        (Error::AlreadyExists { .. }, None) => true,
        (Error::AlreadyExists { .. }, Some(412)) => true,
        // Azure says 409 for two things. From other servers it means that another PUT of the name is under way.
        (Error::AlreadyExists { .. }, Some(409)) => {
            http.azure_code.as_deref() == Some("BlobAlreadyExists")
        }
        _ => false,
    };
    if is_taken { Reply::Taken } else { of_any(error, http) }
}

/// Returns the outcome of a GET or a DELETE that has failed.
pub(crate) fn of_access(error: &Error, http: &HttpReply) -> Reply {
    let is_missing = matches!(error, Error::NotFound { .. });
    match http.status {
        None | Some(404) if is_missing && !names_bucket(error) => Reply::Absent,
        _ => of_any(error, http),
    }
}

/// Returns whether what is missing is the bucket, and not an object.
pub(crate) fn names_bucket(error: &Error) -> bool {
    let text = error.to_string();
    let codes = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"];
    codes.iter().any(|code| text.contains(code))
}

/// Returns whether the store refuses, or nothing is known.
fn of_any(error: &Error, http: &HttpReply) -> Reply {
    let is_refused = match http.status {
        // The connection ended in the middle of the body.
        Some(_) if is_cut(error) => false,
        Some(408 | 409 | 412 | 416 | 425 | 429) => false,
        Some(status @ (400..=499 | 501 | 507)) => !(status == 400 && is_transient(error)),
        Some(_) => false,
        None => is_refused_here(error),
    };
    let text = text(error);
    if is_refused { Reply::Refused(text) } else { Reply::Unknown(text) }
}

/// Returns whether the reply, or the request, was not transferred as a whole.
fn is_cut(error: &Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.any(|cause| cause.downcast_ref::<HttpError>().is_some())
}

/// Some servers say 400 when the request did not arrive in time.
fn is_transient(error: &Error) -> bool {
    error.to_string().contains("RequestTimeout")
}

/// Returns whether a directory, or the configuration, refuses.
fn is_refused_here(error: &Error) -> bool {
    let io_kind = innermost(error).and_then(|error| error.downcast_ref::<io::Error>());
    let is_final = io_kind.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::NotADirectory
        )
    });
    let is_unusable = matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotImplemented { .. }
            | Error::NotSupported { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
    );
    is_final || is_unusable
}

/// Returns the cause that has no cause of its own.
fn innermost<'a>(error: &'a Error) -> Option<&'a (dyn std::error::Error + 'static)> {
    let mut cause = error.source()?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause)
}

/// Returns one line that says what went wrong.
pub(crate) fn text(error: &Error) -> String {
    let whole = error.to_string();
    // What servers answer is XML, of which two elements are for people.
    let element = |name: &str| {
        let (_, rest) = whole.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim().to_owned())
    };
    let text = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{message} ({code})"),
        (Some(code), None) => code,
        _ => innermost(error).map_or(whole, ToString::to_string),
    };
    let line = text.lines().next().unwrap_or_default();
    let printable = line.chars().filter(|char| !char.is_control()).take(300);
    format!("the object store: {}", printable.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: Option<u16>, body: &str) -> Error {
        let source = body.to_owned().into();
        let path = "name".to_owned();
        match status {
            Some(404) => Error::NotFound { path, source },
            Some(409 | 412) => Error::AlreadyExists { path, source },
            Some(403) => Error::PermissionDenied { path, source },
            _ => Error::Generic { store: "test", source },
        }
    }

    fn kind(reply: Reply) -> &'static str {
        match reply {
            Reply::Taken => "taken",
            Reply::Absent => "absent",
            Reply::Unknown(_) => "unknown",
            Reply::Refused(_) => "refused",
            Reply::Done | Reply::Found(_) => "done",
        }
    }

    #[test]
    fn statuses_of_puts_have_the_meaning_that_the_protocol_gives_them() {
        for (status, azure_code, expected) in [
            (Some(412), None, "taken"),
            (Some(409), None, "unknown"),
            (Some(409), Some("BlobAlreadyExists"), "taken"),
            (Some(409), Some("LeaseIdMissing"), "unknown"),
            (Some(403), None, "refused"),
            (Some(404), None, "refused"),
            (Some(400), None, "refused"),
            (Some(507), None, "refused"),
            (Some(501), None, "refused"),
            (Some(408), None, "unknown"),
            (Some(429), None, "unknown"),
            (Some(500), None, "unknown"),
            (Some(503), None, "unknown"),
            // The PUT was done, and its reply is damaged.
            (Some(200), None, "unknown"),
            (None, None, "unknown"),
        ] {
            let http = HttpReply { status, azure_code: azure_code.map(str::to_owned) };
            assert_eq!(kind(of_put(&error(status, "text"), &http)), expected, "{http:?}");
        }
    }

    #[test]
    fn a_missing_object_is_told_from_a_missing_bucket_and_from_missing_credentials() {
        let http = HttpReply { status: Some(404), azure_code: None };
        assert_eq!(kind(of_access(&error(Some(404), "NoSuchKey"), &http)), "absent");
        let no_bucket = "<Error><Code>NoSuchBucket</Code><Message>No bucket.</Message></Error>";
        let reply = of_access(&error(Some(404), no_bucket), &http);
        assert_eq!(reply, Reply::Refused("the object store: No bucket. (NoSuchBucket)".into()));
        // A server of credentials has answered 404.
        assert_eq!(kind(of_access(&error(None, "no role"), &http)), "refused");
        let http = HttpReply { status: Some(503), azure_code: None };
        assert_eq!(kind(of_access(&error(Some(503), "SlowDown"), &http)), "unknown");
    }

    #[test]
    fn a_directory_that_is_full_refuses() {
        for (code, expected) in [(28, "refused"), (13, "refused"), (30, "refused"), (5, "unknown")]
        {
            let source = io::Error::from_raw_os_error(code).into();
            let reply = of_put(&Error::Generic { store: "test", source }, &HttpReply::default());
            assert_eq!(kind(reply), expected, "{code}");
        }
    }
}

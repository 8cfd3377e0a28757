//! The store of a URL. Credentials and endpoints come from the usual environment and files, never from the URL.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use sfs_object::shown_url;
use url::Url;

use crate::aws_files;
use crate::directory::Directory;
use crate::http_reply::ObservedConnector;
use crate::operations::Store;
use crate::outcome::text;

/// Longest time of an HTTP request: 16 MiB at 1 Mbit/s. The server of the socket ends what takes longer.
const HTTP_WAIT: &str = "180 seconds";

/// Returns the store at a URL, without a request to it.
///
/// # Errors
///
/// A line for the user.
pub(crate) fn store_at(argument: &str) -> Result<Store, String> {
    let wrong = |why: &str| format!("{}: {why}", shown_url(argument));
    let url = Url::parse(argument).map_err(|error| wrong(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(wrong(
            "credentials and options do not belong into the URL of a store: others see it; \
             use the environment or files, see docs/object-storage.md",
        ));
    }
    if url.port().is_some() || url.fragment().is_some() {
        return Err(wrong(
            "the URL of a store has no port and no '#'; AWS_ENDPOINT_URL names another server, see docs/object-storage.md",
        ));
    }
    let needs_bucket = || match url.host_str() {
        Some(bucket) if !bucket.is_empty() => Ok(bucket.to_owned()),
        _ => Err(wrong("the URL names no bucket")),
    };
    let prefix = || {
        let path = Path::from_url_path(url.path()).map_err(|error| wrong(&error.to_string()))?;
        Ok::<_, String>(path)
    };
    let store: object_store::Result<Arc<dyn ObjectStore>> = match url.scheme() {
        "file" => {
            let dir = url.to_file_path().map_err(|()| wrong("not the path of a directory"))?;
            if !dir.is_dir() {
                return Err(wrong("there is no such directory"));
            }
            let directory = Directory::open(&dir).map_err(|error| wrong(&error.to_string()))?;
            let store = LocalFileSystem::new_with_prefix(dir).map_err(|error| text(&error))?;
            let store = Arc::new(store.with_fsync(true));
            let directory = Some(directory);
            return Ok(Store { store, prefix: Path::default(), directory });
        }
        "s3" => s3(&needs_bucket()?),
        "az" => azure(&needs_bucket()?),
        "gs" => google(&needs_bucket()?),
        other => {
            return Err(wrong(&format!(
                "{other}: is not known; the URL of a store begins with file:, s3:, az: or gs:"
            )));
        }
    };
    let store = store.map_err(|error| wrong(&text(&error)))?;
    Ok(Store { store, prefix: prefix()?, directory: None })
}

/// Returns no retries: they would hide that nothing is known of the first attempt. The other end of the socket repeats what may be repeated.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

fn s3(bucket: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env();
    let mut profile = aws_files::profile();
    let mut from_file = |builder: AmazonS3Builder, key: AmazonS3ConfigKey, name: &str| match (
        builder.get_config_value(&key),
        profile.remove(name),
    ) {
        (None, Some(value)) => builder.with_config(key, value),
        _ => builder,
    };
    // The parts of one credential come from one place.
    if builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_none() {
        builder = from_file(builder, AmazonS3ConfigKey::AccessKeyId, "aws_access_key_id");
        builder = from_file(builder, AmazonS3ConfigKey::SecretAccessKey, "aws_secret_access_key");
        builder = from_file(builder, AmazonS3ConfigKey::Token, "aws_session_token");
    }
    builder = from_file(builder, AmazonS3ConfigKey::Region, "region");
    builder = from_file(builder, AmazonS3ConfigKey::Endpoint, "endpoint_url");
    let store = builder
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // One DELETE for one object: not every server has the POST that deletes many.
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), HTTP_WAIT)
        .with_retry(no_retries())
        .with_http_connector(ObservedConnector)
        .build()?;
    Ok(Arc::new(store))
}

fn azure(container: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let store = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_config(
            object_store::azure::AzureConfigKey::Client(ClientConfigKey::Timeout),
            HTTP_WAIT,
        )
        .with_retry(no_retries())
        .with_http_connector(ObservedConnector)
        .build()?;
    Ok(Arc::new(store))
}

fn google(bucket: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let store = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_config(
            object_store::gcp::GoogleConfigKey::Client(ClientConfigKey::Timeout),
            HTTP_WAIT,
        )
        .with_retry(no_retries())
        .with_http_connector(ObservedConnector)
        .build()?;
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        store_at(url).map(|_| ()).expect_err("a wrong URL")
    }

    #[test]
    fn wrong_urls_are_refused_and_their_secrets_are_not_shown() {
        assert_eq!(
            refusal("ftp://host/dir"),
            "ftp://host/dir: ftp: is not known; the URL of a store begins with file:, s3:, az: or gs:"
        );
        assert_eq!(refusal("s3:///dir"), "s3:///dir: the URL names no bucket");
        for url in ["s3://bucket:9000/dir", "s3://bucket/dir#part"] {
            assert!(refusal(url).contains("has no port and no '#'"), "{}", refusal(url));
        }
        assert_eq!(
            refusal("file:///no/such/dir"),
            "file:///no/such/dir: there is no such directory"
        );
        for url in ["s3://key:secret@bucket/dir", "az://container/dir?sig=secret"] {
            let refusal = refusal(url);
            assert!(refusal.contains("do not belong into the URL"), "{refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }
}

//! The HTTP reply behind an outcome: `object_store` has one error for statuses that mean different things here.

use std::cell::RefCell;
use std::future::Future;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// The last reply of a server in the course of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpReply {
    /// The status, if there was a reply.
    pub(crate) status: Option<u16>,
    /// Azure's code of the error.
    pub(crate) azure_code: Option<String>,
}

tokio::task_local! {
    static LAST: RefCell<HttpReply>;
}

/// Runs an operation, and returns with its result the last reply that it has met.
pub(crate) async fn observed<T>(operation: impl Future<Output = T>) -> (T, HttpReply) {
    LAST.scope(RefCell::default(), async {
        let result = operation.await;
        (result, LAST.with(RefCell::take))
    })
    .await
}

/// Makes clients whose replies [`observed`] sees.
#[derive(Debug)]
pub(crate) struct ObservedConnector;

impl HttpConnector for ObservedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(ObservedClient(client)))
    }
}

#[derive(Debug)]
struct ObservedClient(HttpClient);

#[async_trait]
impl HttpService for ObservedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The reply to an earlier request, such as one for credentials, says nothing about this one.
        note(HttpReply::default());
        let response = self.0.execute(request).await?;
        let azure_code = response.headers().get("x-ms-error-code");
        let azure_code = azure_code.and_then(|code| code.to_str().ok()).map(str::to_owned);
        note(HttpReply { status: Some(response.status().as_u16()), azure_code });
        Ok(response)
    }
}

fn note(reply: HttpReply) {
    // Nobody observes requests outside of an operation.
    let _ = LAST.try_with(|last| last.replace(reply));
}

//! Paths outside of the API: web page, OpenAPI, connections to pods, and those of the program around the server.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use kcm_apiserver::{ApiServer, ApiStatus, BoxFuture, Connection, Pages, http::response};

use crate::{PodServer, open_api::OpenApi, proxy, streams, ui};

/// Serves paths below `/ui/` and `/debug/`. `None` responds with 404.
///
/// Requests are authenticated as those of other paths.
pub type Extension = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<Option<ExtensionResponse>> + Send + Sync>;

/// Response of an [`Extension`], as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionResponse {
    /// HTTP status code.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
}

/// Returns the pages of `server`.
pub(crate) fn pages(
    server: Arc<ApiServer>,
    extension: Option<Extension>,
    pod_server: Option<PodServer>,
) -> Pages {
    let open_api = OpenApi::new(Arc::clone(&server));
    Arc::new(move |request| {
        let (method, headers) = (request.method(), request.headers());
        let path: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let response = match path.as_slice() {
            [] if *method == Method::GET && ui::accepts_html(headers) => Ok(ui::redirect()),
            [] => return None,
            ["ui"] => get(method).map(|()| ui::page()),
            ["openapi", path @ ..] => get(method).and_then(|()| open_api.get(path, headers)),
            ["ui" | "debug", ..] => {
                let response = extension.as_ref()?(request);
                return Some(Box::pin(async {
                    let ExtensionResponse { status, body } =
                        response.await.ok_or_else(ApiStatus::unknown_path)?;
                    Ok(response::json_text(status, body))
                }));
            }
            _ if request.extensions().get::<Connection>().is_some() => {
                streams::connect(&server, pod_server.as_ref()?, request)
            }
            _ => proxy::proxy(&server, pod_server.as_ref()?, &request),
        };
        Some(Box::pin(ready(response)))
    })
}

/// Rejects other methods than GET.
fn get(method: &Method) -> Result<(), ApiStatus> {
    if *method == Method::GET { Ok(()) } else { Err(ApiStatus::method_not_allowed()) }
}

//! Error responses in the format of an API server.

use http::{HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS};
use serde::Serialize;

use crate::{Request, Response, access::Refusal};

/// Number of characters of a path or URI that a response contains. Clients without credentials choose them, and responses
/// beyond 4 KiB count against the budget of all clients.
///
/// DEVIATION: upstream returns them in full.
const MAX_SHOWN: usize = 256;

/// `metav1.Status` with upstream's order of fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Empty,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Empty>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

/// Response with a `Status`.
pub(crate) fn refusal(
    request: &Request<'_>,
    code: StatusCode,
    reason: &str,
    message: &str,
    has_details: bool,
) -> Response {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details: has_details.then_some(Empty {}),
        code: code.as_u16(),
    };
    Response::new(code, "application/json", request.render(&status))
}

impl Refusal {
    /// Response to the denied request.
    pub(crate) fn response(&self, request: &Request<'_>) -> Response {
        let nosniff = HeaderValue::from_static("nosniff");
        match self {
            Self::Unauthorized => {
                refusal(request, StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", false)
            }
            Self::Forbidden { user, reason } => {
                let verb = request.method.as_str().to_ascii_lowercase();
                let name = &user.name;
                let path = shown(request.path);
                let mut message = sanitize(&format!("forbidden: User {name:?} cannot {verb} path {path:?}"));
                if !reason.is_empty() {
                    message += ": ";
                    message += reason;
                }
                refusal(request, StatusCode::FORBIDDEN, "Forbidden", &message, true)
                    .with(X_CONTENT_TYPE_OPTIONS, nosniff)
            }
            Self::Busy => Response::too_many_requests(),
            Self::Unknown(error) => {
                let query = if request.query.is_empty() { "" } else { "?" };
                let uri = format!("{}{query}{}", request.path, request.query);
                let uri = sanitize(shown(&uri));
                let message = format_args!("Internal Server Error: {uri:?}: {error}");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

/// Returns the beginning of a path.
fn shown(path: &str) -> &str {
    path.char_indices().nth(MAX_SHOWN).map_or(path, |(end, _)| &path[..end])
}

/// Escapes HTML.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

//! Error responses in the format of an API server.

use http::{HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS};
use serde::Serialize;

use crate::{Request, Response, access::Refusal};

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
                let mut message =
                    sanitize(&format!("forbidden: User {name:?} cannot {verb} path {:?}", request.path));
                if !reason.is_empty() {
                    message += ": ";
                    message += reason;
                }
                refusal(request, StatusCode::FORBIDDEN, "Forbidden", &message, true)
                    .with(X_CONTENT_TYPE_OPTIONS, nosniff)
            }
            Self::Unknown(error) => {
                let query = if request.query.is_empty() { "" } else { "?" };
                let uri = sanitize(&format!("{}{query}{}", request.path, request.query));
                let message = format_args!("Internal Server Error: {uri:?}: {error}");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

/// Escapes HTML.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

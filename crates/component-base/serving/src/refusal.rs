//! Refusals as an API server puts them.

use http::{HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS};
use serde::Serialize;

use crate::{Answer, Asked, access::Refusal};

/// `metav1.Status`, field by field in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Nothing,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Nothing>,
    code: u16,
}

#[derive(Serialize)]
struct Nothing {}

/// A `Status` that says why not.
pub(crate) fn refusal(
    asked: &Asked<'_>,
    code: StatusCode,
    reason: &str,
    message: &str,
    has_details: bool,
) -> Answer {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Nothing {},
        status: "Failure",
        message,
        reason,
        details: has_details.then_some(Nothing {}),
        code: code.as_u16(),
    };
    Answer::new(code, "application/json", asked.render(&status))
}

impl Refusal {
    /// What somebody is told who is not let in.
    pub(crate) fn answer(&self, asked: &Asked<'_>) -> Answer {
        let nosniff = HeaderValue::from_static("nosniff");
        match self {
            Self::Unauthorized => {
                refusal(asked, StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", false)
            }
            Self::Forbidden { user, reason } => {
                let verb = asked.method.as_str().to_ascii_lowercase();
                let name = &user.name;
                let mut message =
                    sanitize(&format!("forbidden: User {name:?} cannot {verb} path {:?}", asked.path));
                if !reason.is_empty() {
                    message += ": ";
                    message += reason;
                }
                refusal(asked, StatusCode::FORBIDDEN, "Forbidden", &message, true)
                    .with(X_CONTENT_TYPE_OPTIONS, nosniff)
            }
            Self::Unknown(error) => {
                let query = if asked.query.is_empty() { "" } else { "?" };
                let uri = sanitize(&format!("{}{query}{}", asked.path, asked.query));
                let message = format_args!("Internal Server Error: {uri:?}: {error}");
                Answer::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

/// A browser that takes it for a page finds nothing to run in it.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

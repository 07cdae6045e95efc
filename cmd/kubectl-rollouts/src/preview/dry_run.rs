//! Check of a change by the API server, without a write.

use http::{HeaderMap, header::WARNING};
use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_preview::{Change, ChangeRequest, DryRun, PatchType};
use serde_json::Value;

use super::{CommandError, Target};
use crate::reader::path;

/// Parameters of every request. `dryRun` makes the API server perform no write.
const DRY_RUN: &str = "dryRun=All&fieldManager=kubectl-rollouts";
/// Parameter of manifests.
const STRICT: &str = "&fieldValidation=Strict";
const JSON_PATCH: &str = "application/json-patch+json";

/// Result of a check.
#[derive(Debug)]
pub(super) enum Checked {
    /// The API server accepts the change.
    Server {
        /// Resulting Deployment.
        desired: Value,
        /// Warnings of the API server.
        warnings: Vec<String>,
    },
    /// The API server did not check the change.
    Embedded {
        /// Reason.
        reason: String,
    },
}

impl Checked {
    /// Returns the change to preview: the Deployment that the API server returned, or else `change`.
    pub(super) fn into_change(self, change: Change) -> (Change, DryRun) {
        match self {
            Self::Server { desired, warnings } => {
                (Change::Desired(desired), DryRun { performed: true, reason: None, warnings })
            }
            Self::Embedded { reason } => {
                (change, DryRun { performed: false, reason: Some(reason), warnings: Vec::new() })
            }
        }
    }
}

/// Sends `request` as a dry run. If `is_manifest` is `true`, the API server rejects unknown fields, as with `kubectl apply`.
///
/// # Errors
///
/// If the API server rejects the change as invalid. Without permission, or if the request fails otherwise, the change is
/// not checked.
pub(super) async fn send(
    client: &ApiClient,
    target: &Target,
    request: &ChangeRequest,
    is_manifest: bool,
) -> Result<Checked, CommandError> {
    let Some(request) = dry_run(target, request, if is_manifest { STRICT } else { "" }) else {
        return Ok(Checked::Embedded { reason: "the change has no dry run".to_owned() });
    };
    match client.send_with_headers(&request).await {
        Ok((headers, body)) => match serde_json::from_slice(&body) {
            Ok(desired) => Ok(Checked::Server { desired, warnings: warnings(&headers) }),
            Err(error) => Ok(Checked::Embedded { reason: error.to_string() }),
        },
        Err(error) if is_invalid(&error) => Err(CommandError::Rejected(error)),
        Err(error) => Ok(Checked::Embedded { reason: error.to_string() }),
    }
}

fn dry_run(target: &Target, request: &ChangeRequest, validation: &str) -> Option<Request> {
    let collection = path("apps/v1", Some(&target.namespace), "deployments");
    let object = format!("{collection}/{}?{DRY_RUN}{validation}", target.name);
    Some(match request {
        ChangeRequest::Create(body) => {
            Request::create(format!("{collection}?{DRY_RUN}{validation}"), body.to_string())
        }
        ChangeRequest::Patch { type_: PatchType::Strategic, body } => {
            Request::strategic_merge_patch(object, body.to_string())
        }
        ChangeRequest::Patch { type_: PatchType::Json, body } => {
            let mut request = Request::strategic_merge_patch(object, body.to_string());
            request.content_type = JSON_PATCH;
            request
        }
        ChangeRequest::Patch { .. } | ChangeRequest::Replace(_) => return None,
    })
}

/// Texts of the `Warning` headers, such as `299 - "deprecated"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let mut warnings = Vec::new();
    for value in headers.get_all(WARNING) {
        let characters = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut characters = characters.chars();
        // A value may contain several warnings.
        while characters.any(|c| c == '"') {
            let mut warning = String::new();
            while let Some(c) = characters.next().filter(|c| *c != '"') {
                warning.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
            }
            warnings.push(warning);
        }
    }
    warnings
}

/// Parts of the messages with which admission rejects a change.
const ADMISSION: [&str; 2] = ["admission webhook", " is forbidden: "];
/// Parts of the messages with which authorization refuses a request.
const UNAUTHORIZED: [&str; 2] = ["cannot patch resource", "cannot create resource"];

/// Part of the message with which the API server refuses dry runs because of a webhook with side effects.
const NO_DRY_RUN: &str = "does not support dry run";

/// `true` if the API server has processed the change and rejects it.
fn is_invalid(error: &ApiError) -> bool {
    let message = error.to_string();
    let contains = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match error.code() {
        Some(400) => !message.contains(NO_DRY_RUN),
        // 404: the namespace or the Deployment is gone.
        Some(404 | 413 | 422) => true,
        Some(403) => contains(&ADMISSION) && !contains(&UNAUTHORIZED),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use http::{Request, Response};
    use kcm_api::Status;
    use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
    use kcm_clock::RealClock;
    use serde_json::json;

    use super::*;

    /// API server that returns a Deployment with a warning, if the request is a strict dry run.
    async fn respond<B>(request: Request<B>) -> Result<Response<String>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let is_strict = query.contains("dryRun=All") && query.contains("fieldValidation=Strict");
        let response = Response::builder().status(if is_strict { 200 } else { 400 });
        let response = response.header(WARNING, "299 - \"spec.template is deprecated\"");
        Ok(response.body("{\"spec\":{}}".to_owned()).unwrap())
    }

    #[tokio::test]
    async fn warnings_of_the_api_server() {
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::new(RealClock::new()));
        let factory = ClientFactory::in_process(tower::service_fn(respond), options);
        let client = factory.client("test", RateLimit::UNLIMITED);
        let target = Target { namespace: "shop".to_owned(), name: "web".to_owned() };
        let request = ChangeRequest::Patch { type_: PatchType::Strategic, body: json!({}) };
        let checked = send(&client, &target, &request, true).await.unwrap();
        let (change, dry_run) = checked.into_change(Change::Restart);
        assert_eq!(change, Change::Desired(json!({ "spec": {} })));
        assert_eq!(dry_run.warnings, ["spec.template is deprecated"]);
        assert!(send(&client, &target, &request, false).await.is_err(), "not a manifest");
    }

    #[test]
    fn texts_of_warning_headers() {
        let mut headers = HeaderMap::new();
        for value in ["299 - \"say \\\"no\\\"\", 299 - \"b\"", "299 - \"c"] {
            headers.append(WARNING, value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), ["say \"no\"", "b", "c"]);
        assert_eq!(warnings(&HeaderMap::new()), [""; 0]);
    }

    #[test]
    fn rejected_and_unchecked_changes() {
        struct Case {
            code: u16,
            message: &'static str,
            is_invalid: bool,
        }
        for Case { code, message, is_invalid: expected } in [
            Case { code: 422, message: "spec.replicas: Invalid value: -1", is_invalid: true },
            Case { code: 400, message: "unknown field \"spec.replica\"", is_invalid: true },
            Case { code: 403, message: "admission webhook \"a.b\" denied the request: no", is_invalid: true },
            Case {
                code: 403,
                message: "deployments.apps \"web\" is forbidden: User \"u\" cannot patch resource \"deployments\"",
                is_invalid: false,
            },
            Case {
                code: 400,
                message: "admission webhook \"a.b\" does not support dry run",
                is_invalid: false,
            },
            Case {
                code: 403,
                message: "deployments.apps \"web\" is forbidden: unable to create new content in namespace shop because it is being terminated",
                is_invalid: true,
            },
            Case { code: 403, message: "Forbidden by a proxy", is_invalid: false },
            Case { code: 404, message: "namespaces \"shop\" not found", is_invalid: true },
            Case { code: 500, message: "failed calling webhook \"a.b\"", is_invalid: false },
        ] {
            let message = message.to_owned();
            let error = ApiError::Status(Box::new(Status { code, message, ..Status::default() }));
            assert_eq!(is_invalid(&error), expected, "{error}");
        }
    }
}

//! Check of a change by the API server, without a write.

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_preview::{Change, ChangeRequest, DryRun, PatchType};
use serde_json::Value;

use super::{CommandError, Target};
use crate::reader::path;

/// Parameters of every request. `dryRun` makes the API server perform no write.
const DRY_RUN: &str = "dryRun=All&fieldManager=kubectl-rollouts";
const JSON_PATCH: &str = "application/json-patch+json";

/// Result of a check.
#[derive(Debug)]
pub(super) enum Checked {
    /// The API server accepts the change. Contains the resulting Deployment.
    Server(Value),
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
            Self::Server(desired) => (Change::Desired(desired), DryRun { performed: true, reason: None }),
            Self::Embedded { reason } => (change, DryRun { performed: false, reason: Some(reason) }),
        }
    }
}

/// Sends `request` as a dry run.
///
/// # Errors
///
/// If the API server rejects the change as invalid. Without permission, or if the request fails otherwise, the change is
/// not checked.
pub(super) async fn send(
    client: &ApiClient,
    target: &Target,
    request: &ChangeRequest,
) -> Result<Checked, CommandError> {
    let Some(request) = dry_run(target, request) else {
        return Ok(Checked::Embedded { reason: "the change has no dry run".to_owned() });
    };
    match client.send(&request).await {
        Ok(body) => match serde_json::from_slice(&body) {
            Ok(desired) => Ok(Checked::Server(desired)),
            Err(error) => Ok(Checked::Embedded { reason: error.to_string() }),
        },
        Err(error) if is_invalid(&error) => Err(CommandError::Rejected(error)),
        Err(error) => Ok(Checked::Embedded { reason: error.to_string() }),
    }
}

fn dry_run(target: &Target, request: &ChangeRequest) -> Option<Request> {
    let collection = path("apps/v1", Some(&target.namespace), "deployments");
    let object = format!("{collection}/{}?{DRY_RUN}", target.name);
    Some(match request {
        ChangeRequest::Create(body) => Request::create(format!("{collection}?{DRY_RUN}"), body.to_string()),
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

/// Parts of the messages with which admission rejects a change. Admission and authorization both respond with 403.
const ADMISSION: [&str; 3] = ["admission webhook", "ValidatingAdmissionPolicy", "exceeded quota"];

/// Part of the message with which the API server refuses dry runs because of a webhook with side effects.
const NO_DRY_RUN: &str = "does not support dry run";

/// `true` if the API server has processed the change and rejects it.
fn is_invalid(error: &ApiError) -> bool {
    let message = error.to_string();
    match error.code() {
        Some(400) => !message.contains(NO_DRY_RUN),
        Some(413 | 422) => true,
        Some(403) => ADMISSION.iter().any(|part| message.contains(part)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::Status;

    use super::*;

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
                message: "User \"u\" cannot patch resource \"deployments\"",
                is_invalid: false,
            },
            Case {
                code: 400,
                message: "admission webhook \"a.b\" does not support dry run",
                is_invalid: false,
            },
            Case { code: 500, message: "failed calling webhook \"a.b\"", is_invalid: false },
        ] {
            let message = message.to_owned();
            let error = ApiError::Status(Box::new(Status { code, message, ..Status::default() }));
            assert_eq!(is_invalid(&error), expected, "{error}");
        }
    }
}

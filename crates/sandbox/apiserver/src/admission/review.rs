//! `AdmissionReview`: the request to a webhook, and its response.
//!
//! Upstream counterpart: `admission/plugin/webhook/request` and `errors`.

use base64::{DecodeError, Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Attributes, GroupVersionKind, GroupVersionResource};
use crate::{
    ApiStatus,
    json::{at, bool_at, i64_at, list_at, str_at, type_name},
    webhook,
};

/// Group of admission reviews.
const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The only type of patches.
pub(super) const JSON_PATCH: &str = "JSONPatch";

/// Version in which a webhook is called: kind, resource, and the objects.
pub(super) struct Versioned<'a> {
    pub(super) kind: GroupVersionKind<'a>,
    pub(super) resource: GroupVersionResource<'a>,
    pub(super) object: Option<&'a Value>,
    pub(super) old_object: Option<&'a Value>,
}

/// Answer of a webhook that was understood.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) is_allowed: bool,
    /// Patch of the type `patch_type`.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) patch_type: String,
    /// `metav1.Status` of a refusal.
    pub(super) result: Value,
    pub(super) warnings: Vec<String>,
}

/// Returns the review for a webhook.
pub(super) fn request(version: &str, uid: &str, of: &Versioned<'_>, attributes: &Attributes<'_>) -> Value {
    let mut request = members(of.kind, of.resource, attributes);
    request["uid"] = uid.into();
    request["object"] = of.object.cloned().unwrap_or_default();
    request["oldObject"] = of.old_object.cloned().unwrap_or_default();
    webhook::review(&format!("{GROUP}/{version}"), KIND, &request)
}

/// Returns the members of an `AdmissionRequest` in the version of `kind` and `resource`, without UID and objects. It is also
/// the variable `request` of policies.
///
/// Upstream counterpart: `cel.CreateAdmissionRequest`.
pub(super) fn members(
    kind: GroupVersionKind<'_>,
    resource: GroupVersionResource<'_>,
    attributes: &Attributes<'_>,
) -> Value {
    let shown_kind =
        |kind: GroupVersionKind<'_>| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let shown_resource = |resource: GroupVersionResource<'_>| json!({"group": resource.group, "version": resource.version, "resource": resource.resource});
    let mut request = json!({
        "kind": shown_kind(kind),
        "resource": shown_resource(resource),
        "requestKind": shown_kind(attributes.kind),
        "requestResource": shown_resource(attributes.resource),
        "operation": attributes.operation.name(),
        "userInfo": attributes.user.to_value(),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    request
}

/// Checks the types of the fields that are read.
pub(super) fn check_types(review: &Value) -> Result<(), String> {
    let field = |name| at(review, &["response", name]).unwrap_or(&Value::Null);
    if !matches!(field("allowed"), Value::Null | Value::Bool(_)) {
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field AdmissionResponse.response.allowed of type bool",
            type_name(field("allowed"))
        ));
    }
    match field("patch") {
        Value::Null => Ok(()),
        Value::String(patch) => STANDARD.decode(patch).map(drop).map_err(|error| match error {
            DecodeError::InvalidByte(position, _) => {
                format!("illegal base64 data at input byte {position}")
            }
            _ => format!("illegal base64 data at input byte {}", patch.len()),
        }),
        other => Err(format!(
            "json: cannot unmarshal {} into Go struct field AdmissionResponse.response.patch of type []uint8",
            type_name(other)
        )),
    }
}

/// Reads the answer to a request of `version` with this UID.
pub(super) fn answer(version: &str, uid: &str, is_mutating: bool, review: &Value) -> Result<Answer, String> {
    let Some(response) = review.get("response").filter(|response| response.is_object()) else {
        return Err("webhook response was absent".to_owned());
    };
    let patch = STANDARD.decode(str_at(response, &["patch"])).ok().filter(|patch| !patch.is_empty());
    // Version v1beta1 is not verified, as upstream.
    if version == "v1" {
        let found = str_at(response, &["uid"]);
        if found != uid {
            return Err(format!("expected response.uid={uid:?}, got {found:?}"));
        }
        webhook::check_review_type(review, GROUP, KIND)?;
        check_patch(response, patch.is_some(), is_mutating)?;
    }
    let warnings = list_at(response, &["warnings"]).iter().filter_map(Value::as_str);
    Ok(Answer {
        is_allowed: bool_at(response, &["allowed"]),
        patch: patch.filter(|_| is_mutating),
        patch_type: if version == "v1" { str_at(response, &["patchType"]) } else { JSON_PATCH }.to_owned(),
        result: response.get("status").cloned().unwrap_or_default(),
        warnings: warnings.map(str::to_owned).collect(),
    })
}

fn check_patch(response: &Value, has_patch: bool, is_mutating: bool) -> Result<(), String> {
    let patch_type = at(response, &["patchType"]).and_then(Value::as_str);
    let wrong = match (patch_type, has_patch) {
        (_, true) if !is_mutating => "validating webhook may not return response.patch",
        (Some(_), _) if !is_mutating => "validating webhook may not return response.patchType",
        (None, true) => "webhook returned response.patch but not response.patchType",
        (Some(_), false) => "webhook returned response.patchType but not response.patch",
        (Some(""), true) => "webhook returned invalid response.patchType of \"\"",
        (Some(_), true) | (None, false) => return Ok(()),
    };
    Err(wrong.to_owned())
}

/// Returns the response to a request that the webhook `name` denied.
pub(super) fn denied(name: &str, result: &Value) -> ApiStatus {
    let text = |field: &str| str_at(result, &[field]);
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = i64_at(result, &["code"]).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..=999).contains(code)).unwrap_or(400);
    let details = at(result, &["details"]).filter(|details| details.is_object());
    ApiStatus::of_webhook(code, text("reason"), message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(is_mutating: bool, response: &Value) -> Result<Answer, String> {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        answer("v1", "a", is_mutating, &review)
    }

    #[test]
    fn invalid_answers() {
        struct Case {
            response: Value,
            is_mutating: bool,
            error: &'static str,
        }
        let case = |response, is_mutating, error| Case { response, is_mutating, error };
        for Case { response, is_mutating, error } in [
            case(json!(null), true, "webhook response was absent"),
            case(json!({"uid": "b"}), true, "expected response.uid=\"a\", got \"b\""),
            case(
                json!({"uid": "a", "patch": "W10="}),
                true,
                "webhook returned response.patch but not response.patchType",
            ),
            case(
                json!({"uid": "a", "patchType": "JSONPatch"}),
                true,
                "webhook returned response.patchType but not response.patch",
            ),
            case(
                json!({"uid": "a", "patch": "W10="}),
                false,
                "validating webhook may not return response.patch",
            ),
            case(
                json!({"uid": "a", "patchType": "JSONPatch"}),
                false,
                "validating webhook may not return response.patchType",
            ),
        ] {
            assert_eq!(answered(is_mutating, &response).unwrap_err(), error, "{response}");
        }
        let untyped = json!({"response": {"uid": "a"}});
        assert_eq!(
            answer("v1", "a", true, &untyped).unwrap_err(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
        assert!(answer("v1beta1", "a", true, &untyped).is_ok());
    }

    #[test]
    fn denials() {
        let check = |result: Value, code, message: &str| {
            let status = denied("a.b.c", &result);
            assert_eq!((status.code(), status.message.as_str()), (code, message), "{result}");
        };
        let prefix = "admission webhook \"a.b.c\" denied the request";
        check(Value::Null, 400, &format!("{prefix} without explanation"));
        check(json!({"code": 200}), 400, &format!("{prefix} without explanation"));
        check(json!({"code": 403, "reason": "Forbidden"}), 403, &format!("{prefix}: Forbidden"));
        check(json!({"code": 418, "message": "no", "reason": "Teapot"}), 418, &format!("{prefix}: no"));
        check(json!({"code": 70_000}), 400, &format!("{prefix} without explanation"));
        let status = denied("a.b.c", &json!({"code": 418, "reason": "Teapot"})).to_value();
        assert_eq!((&status["reason"], &status["code"]), (&json!("Teapot"), &json!(418)));
    }
}

//! Conversion of custom resources by a webhook.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/apiserver/conversion`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    ApiStatus, StatusReason,
    json::{at, list_at, str_at},
    kind::group_version_kind,
    webhook::{self, Webhooks},
};

/// Group of conversion reviews.
const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";

/// Maximum duration of a call, as that of upstream's client.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of objects in a review. DEVIATION: upstream converts the objects of a list one by one.
const BATCH: usize = 256;

/// Metadata that a webhook must not change.
const FIXED: [(&str, &str); 3] = [("name", "name"), ("namespace", "namespace"), ("uid", "UID")];

/// Conversion webhook of a CustomResourceDefinition.
#[derive(Debug)]
pub(crate) struct WebhookConversion {
    client_config: Value,
    review_versions: Vec<Value>,
}

impl WebhookConversion {
    /// Returns the webhook of a definition whose strategy is `Webhook`.
    pub(super) fn of(definition: &Value) -> Option<Self> {
        let conversion = at(definition, &["spec", "conversion"])?;
        (str_at(conversion, &["strategy"]) == "Webhook").then(|| Self {
            client_config: at(conversion, &["webhook", "clientConfig"]).cloned().unwrap_or_default(),
            review_versions: list_at(conversion, &["webhook", "conversionReviewVersions"]).to_vec(),
        })
    }

    /// Returns `objects` in the version `to`.
    ///
    /// # Errors
    ///
    /// 500 if the webhook fails, or changes what it must not change.
    pub(crate) async fn convert(
        &self,
        webhooks: &Webhooks,
        objects: &[Value],
        to: &str,
    ) -> Result<Vec<Value>, ApiStatus> {
        let mut converted = Vec::with_capacity(objects.len());
        for batch in objects.chunks(BATCH) {
            self.convert_batch(webhooks, batch, to, &mut converted).await.map_err(|error| {
                // An untyped error upstream, so the status is 500 without a reason.
                ApiStatus::new(StatusReason::Unknown, error)
            })?;
        }
        Ok(converted)
    }

    async fn convert_batch(
        &self,
        webhooks: &Webhooks,
        objects: &[Value],
        to: &str,
        converted: &mut Vec<Value>,
    ) -> Result<(), String> {
        let version = webhook::review_version(&self.review_versions)
            .ok_or_else(|| "no supported conversion review versions".to_owned())?;
        let of = objects.first().map(type_of).unwrap_or_default();
        let uid = webhooks.new_uid();
        let request = json!({"uid": uid, "desiredAPIVersion": to, "objects": objects});
        let review = webhook::review(&format!("{GROUP}/{version}"), KIND, &request);
        let failed = |error: &str| format!("conversion webhook for {of} failed: {error}");
        let review = webhooks.call(&self.client_config, TIMEOUT, &review).await;
        let review = review.map_err(|error| failed(&error.to_string()))?;
        let answers = answers(version, &uid, &review).map_err(|error| failed(&error))?;
        if answers.len() != objects.len() {
            return Err(format!(
                "conversion webhook for {of} returned {} objects, expected {}",
                answers.len(),
                objects.len()
            ));
        }
        for (index, (object, answer)) in objects.iter().zip(answers).enumerate() {
            let object = checked(object, answer, to, index);
            converted.push(object.map_err(|error| format!("conversion webhook for {of} returned {error}"))?);
        }
        Ok(())
    }
}

fn type_of(object: &Value) -> String {
    group_version_kind(str_at(object, &["apiVersion"]), str_at(object, &["kind"]))
}

/// Returns the objects of a response.
fn answers<'a>(version: &str, uid: &str, review: &'a Value) -> Result<&'a [Value], String> {
    if version == "v1" {
        webhook::check_review_type(review, GROUP, KIND)?;
    }
    let response = review.get("response").filter(|response| response.is_object());
    let response = response.ok_or_else(|| "no response provided".to_owned())?;
    let found = str_at(response, &["uid"]);
    // Version v1beta1 is not verified, as upstream.
    if version == "v1" && found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    match (str_at(response, &["result", "status"]), str_at(response, &["result", "message"])) {
        ("Success", _) => Ok(list_at(response, &["convertedObjects"])),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Returns a converted object with the metadata of the original, except for labels and annotations.
fn checked(original: &Value, answer: &Value, to: &str, index: usize) -> Result<Value, String> {
    let mut converted = answer.clone();
    let invalid = |what: String| format!("invalid object at index {index}: invalid {what}");
    let found = str_at(&converted, &["apiVersion"]);
    if found != to {
        return Err(invalid(format!("groupVersion (expected {to}, received {found})")));
    }
    let kinds = [original, answer].map(|object| str_at(object, &["kind"]));
    if kinds[0] != kinds[1] {
        return Err(invalid(format!("kind (expected {}, received {})", kinds[0], kinds[1])));
    }
    for (field, name) in FIXED {
        let [expected, found] = [original, answer].map(|object| str_at(object, &["metadata", field]));
        if expected != found {
            return Err(format!("invalid object: must have the same {name}: {expected} != {found}"));
        }
    }
    let Some(given) = answer.get("metadata") else {
        return Err("invalid metadata: missing metadata in converted object".to_owned());
    };
    let mut metadata = original.get("metadata").cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        crate::json::remove(&mut metadata, &[field]);
        match given.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(texts)) if texts.values().all(Value::is_string) => {
                crate::json::set(&mut metadata, &[field], texts.clone());
            }
            Some(_) => {
                return Err(format!("invalid metadata: invalid metadata.{field} in converted object"));
            }
        }
    }
    crate::json::set(&mut converted, &["metadata"], metadata);
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept() {
        let object = |version: &str, metadata: Value| json!({"apiVersion": version, "kind": "A", "metadata": metadata});
        let original =
            object("x/v1", json!({"name": "a", "uid": "1", "labels": {"a": "b"}, "generation": 2}));
        let check = |answer: Value, expected: Result<Value, &str>| {
            let found = checked(&original, &answer, "x/v2", 0);
            assert_eq!(found, expected.map_err(str::to_owned), "{answer}");
        };
        check(
            object("x/v2", json!({"name": "a", "uid": "1", "annotations": {"c": "d"}, "generation": 7})),
            Ok(object("x/v2", json!({"name": "a", "uid": "1", "generation": 2, "annotations": {"c": "d"}}))),
        );
        check(
            object("x/v1", json!({"name": "a", "uid": "1"})),
            Err("invalid object at index 0: invalid groupVersion (expected x/v2, received x/v1)"),
        );
        check(
            object("x/v2", json!({"name": "b", "uid": "1"})),
            Err("invalid object: must have the same name: a != b"),
        );
        check(
            object("x/v2", json!({"name": "a", "uid": "1", "labels": {"a": 1}})),
            Err("invalid metadata: invalid metadata.labels in converted object"),
        );
        check(json!(7), Err("invalid object at index 0: invalid groupVersion (expected x/v2, received )"));
    }
}

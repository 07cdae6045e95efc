//! Lossless objects and pod templates in protobuf, as the embedded API server encodes and decodes them.

use kcm_api::{
    Deployment, LabelSelector, PodTemplate, ProtobufError, ReplicaSet, hash,
    protobuf::{MessageBuilder, envelope, open_envelope},
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[path = "../../../../apimachinery/api/src/recorded.rs"]
mod recorded;

/// Sends the spec of a template through protobuf.
fn through_protobuf(template: &Value) -> Value {
    let template_of_pod = PodTemplate::from_value(template).unwrap();
    let spec = template_of_pod.spec_protobuf().unwrap();
    let mut pod = MessageBuilder::default();
    pod.bytes(2, spec);
    let mut decoded = kcm_apiserver::protobuf::decode(&envelope("v1", "Pod", &pod)).unwrap();
    let mut template = template.clone();
    template["spec"] = decoded["spec"].take();
    template
}

/// Removes unset and empty values, which protobuf does not distinguish. Structs remain: they may be behind a pointer.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_empty);
            fields.retain(|_, value| !matches!(value, Value::Null) && *value != json!([]));
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

#[test]
fn recorded_hashes_are_the_same_from_either_encoding() {
    for recorded::Case { template, collision_count, hash } in recorded::cases() {
        let decoded = through_protobuf(template);
        let (json, protobuf) = (PodTemplate::from_value(template), PodTemplate::from_value(&decoded));
        assert!(json.unwrap().equal_ignore_hash(&protobuf.unwrap()), "{template}\n{decoded}");

        let computed = hash::compute(&decoded, *collision_count).unwrap();
        if computed != *hash {
            // The hash distinguishes empty lists and maps from unset ones.
            let mut template = template.clone();
            without_empty(&mut template);
            assert_eq!(
                computed,
                hash::compute(&template, *collision_count).unwrap(),
                "{template}\n{decoded}"
            );
        }
    }
}

/// Reads a recorded template from protobuf.
fn message(template: &Value) -> PodTemplate {
    let message = PodTemplate::from_value(template).unwrap().to_protobuf().unwrap();
    PodTemplate::from_protobuf(&message).unwrap()
}

#[test]
fn templates_are_the_same_from_either_encoding() {
    for recorded::Case { template, collision_count, .. } in recorded::cases() {
        // Protobuf does not distinguish empty lists and maps from unset ones.
        let mut template = template.clone();
        without_empty(&mut template);
        let (json, protobuf) = (PodTemplate::from_value(&template).unwrap(), message(&template));
        assert!(json.equal_ignore_hash(&protobuf), "{template}\n{protobuf:?}");
        assert_eq!(
            json.compute_hash(*collision_count),
            protobuf.compute_hash(*collision_count),
            "{template}"
        );
        assert_eq!(json.labels(), protobuf.labels());
        assert_eq!(json.annotations(), protobuf.annotations());
        assert_eq!(json.finalizers(), protobuf.finalizers());
        assert_eq!(json.spec_protobuf(), protobuf.spec_protobuf());
        // The JSON text of the message is the template again.
        let again = PodTemplate::from_value(&protobuf.to_value()).unwrap();
        assert!(again.equal_ignore_hash(&json), "{template}\n{protobuf:?}");
        assert_eq!(again.compute_hash(None), json.compute_hash(None), "{template}\n{protobuf:?}");
    }
}

#[test]
fn label_of_a_message_is_set_and_removed() {
    let template = json!({
        "metadata": {"labels": {"a": "b", "pod-template-hash": "x"}, "annotations": {"pod-template-hash": "y"}},
        "spec": {"containers": [{"name": "c"}]},
    });
    let labelled = message(&template).with_label("pod-template-hash", Some("z")).unwrap();
    let mut expected = template.clone();
    expected["metadata"]["labels"]["pod-template-hash"] = json!("z");
    assert_eq!(labelled, PodTemplate::from_value(&expected).unwrap());
    let removed = labelled.with_label("pod-template-hash", None).unwrap();
    expected["metadata"]["labels"].as_object_mut().unwrap().remove("pod-template-hash");
    assert_eq!(removed, PodTemplate::from_value(&expected).unwrap());
    assert_eq!(removed.spec_protobuf(), labelled.spec_protobuf());
    let added = PodTemplate::from_protobuf(&[]).unwrap().with_label("a", Some("b")).unwrap();
    assert_eq!(added.to_value(), json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}));
}

#[test]
fn equal_messages_share_one_template() {
    let template =
        json!({"metadata": {"labels": {"shared": "yes"}}, "spec": {"containers": [{"name": "c"}]}});
    let (one, other) = (message(&template), message(&template));
    // The digest that one computes is the other's.
    assert!(std::ptr::eq(one.digest(), other.digest()));
}

fn metadata() -> Value {
    json!({
        "name": "web", "generateName": "w", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:05Z",
        "deletionGracePeriodSeconds": 0, "labels": {"app": "web", "empty": ""}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u-2",
                             "controller": false, "blockOwnerDeletion": true}],
        "finalizers": ["f"], "selfLink": "/old",
    })
}

fn spec() -> Value {
    json!({
        "replicas": 0, "minReadySeconds": 5,
        "selector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]},
                                 {"key": "x", "operator": "Exists"}],
        },
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
            "spec": {
                "containers": [{
                    "name": "web", "image": "nginx:1.27", "resources": {"limits": {"cpu": "500m"}},
                    "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
                }],
                "volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0,
                "securityContext": {"supplementalGroups": [0, -1], "runAsNonRoot": false},
            },
        },
    })
}

fn deployment() -> Value {
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(), "spec": spec(),
        "status": {
            "observedGeneration": 3, "replicas": 4, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 1,
            "unavailableReplicas": -3, "terminatingReplicas": 0, "collisionCount": 0,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "r", "message": "m",
                            "lastUpdateTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "1960-01-02T03:04:05Z"}],
        },
    });
    for (key, value) in [
        (
            "strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}),
        ),
        ("revisionHistoryLimit", json!(0)),
        ("paused", json!(true)),
        ("progressDeadlineSeconds", json!(0)),
    ] {
        deployment["spec"][key] = value;
    }
    deployment
}

fn replica_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata(), "spec": spec(),
        "status": {
            "replicas": 4, "fullyLabeledReplicas": 3, "readyReplicas": 2, "availableReplicas": 1,
            "terminatingReplicas": 0, "observedGeneration": 3,
            "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "r", "message": "m",
                            "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        },
    })
}

/// Decodes an object that the embedded API server encodes, and returns its protobuf as that server decodes it.
macro_rules! there_and_back {
    ($type:ty, $json:expr) => {{
        let body = kcm_apiserver::protobuf::encode($json).unwrap();
        let decoded = <$type>::decode_protobuf(open_envelope(&body).unwrap()).unwrap();
        let from_json: $type = serde_json::from_value($json.clone()).unwrap();
        assert_eq!(decoded, from_json);
        assert_eq!(
            decoded.spec.template.compute_hash(None).unwrap(),
            from_json.spec.template.compute_hash(None).unwrap()
        );
        let body = from_json.encode_protobuf().unwrap();
        assert_eq!(<$type>::decode_protobuf(open_envelope(&body).unwrap()).unwrap(), from_json);
        kcm_apiserver::protobuf::decode(&decoded.encode_protobuf().unwrap()).unwrap()
    }};
}

/// Removes what the embedded API server's decoder normalizes later.
fn normalized(mut object: Value) -> Value {
    without_empty(&mut object);
    object
}

#[test]
fn objects_are_the_same_from_either_encoding() {
    let returned = there_and_back!(Deployment, &deployment());
    assert_eq!(
        serde_json::from_value::<Deployment>(normalized(returned)).unwrap(),
        serde_json::from_value::<Deployment>(normalized(deployment())).unwrap()
    );
    let returned = there_and_back!(ReplicaSet, &replica_set());
    assert_eq!(
        serde_json::from_value::<ReplicaSet>(normalized(returned)).unwrap(),
        serde_json::from_value::<ReplicaSet>(normalized(replica_set())).unwrap()
    );
    let empty =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {}, "status": {}});
    let decoded = Deployment::decode_protobuf(&[]).unwrap();
    assert_eq!(
        decoded.encode_protobuf(),
        serde_json::from_value::<Deployment>(empty).unwrap().encode_protobuf()
    );
}

/// Returns copies of `message` with one further field each: in it, and in each message that it contains. Texts that can be
/// read as messages are changed, too.
fn with_unknown_field(message: &[u8]) -> Vec<Vec<u8>> {
    let mut unknown = MessageBuilder::default();
    unknown.fields(message).bytes(1000, b"future");
    let mut copies = vec![unknown.into_vec()];
    let (mut before, mut rest) = (&message[..0], message);
    while let Some((number, content, after)) = split(rest) {
        for changed in content.map(with_unknown_field).unwrap_or_default() {
            let mut copy = MessageBuilder::default();
            copy.fields(before).bytes(number, changed).fields(after);
            copies.push(copy.into_vec());
        }
        rest = after;
        before = &message[..message.len() - rest.len()];
    }
    copies
}

/// Number of a field, its content if it has a length, and the rest of the message.
type Field<'a> = (u32, Option<&'a [u8]>, &'a [u8]);

/// Splits the first field off. `None` if `message` is empty or no message.
fn split(message: &[u8]) -> Option<Field<'_>> {
    let mut rest = message.iter();
    let mut varint = || {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = rest.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let (key, value) = (varint()?, varint()?);
    let (number, rest) = (u32::try_from(key >> 3).ok()?, rest.as_slice());
    match key & 7 {
        0 => Some((number, None, rest)),
        2 => {
            let (content, after) = rest.split_at_checked(usize::try_from(value).ok()?)?;
            Some((number, Some(content), after))
        }
        _ => None,
    }
}

/// A field that this version does not define would be lost, at whatever level it is. `managedFields` is not kept.
#[test]
fn unknown_fields_are_refused_at_every_level() {
    let mut deployment = deployment();
    let body = kcm_apiserver::protobuf::encode(&deployment).unwrap();
    let message = open_envelope(&body).unwrap().to_vec();
    let copies = with_unknown_field(&message);
    let unknown = |copy: &Vec<u8>| {
        let result = Deployment::decode_protobuf(copy);
        assert!(copy == &message || result != Deployment::decode_protobuf(&message), "a field was lost");
        matches!(result, Err(ProtobufError::UnknownField { .. }))
    };
    let refused = copies.iter().filter(|copy| unknown(copy)).count();
    // The object has 41 messages; the other copies have changed texts.
    assert!(refused >= 41, "{refused} of {}", copies.len());
    // An unknown field of an object from JSON is not encoded.
    deployment["spec"]["template"]["spec"]["containers"][0]["futureField"] = json!(1);
    let newer: Deployment = serde_json::from_value(deployment).unwrap();
    assert_eq!(newer.encode_protobuf(), None);
    let newer = Deployment {
        spec: kcm_api::DeploymentSpec {
            selector: serde_json::from_value::<Option<LabelSelector>>(json!({"future": 1})).unwrap(),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(newer.encode_protobuf(), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_kept(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(decoded) = Deployment::decode_protobuf(&bytes) {
            let body = decoded.encode_protobuf().unwrap();
            prop_assert_eq!(Deployment::decode_protobuf(open_envelope(&body).unwrap()).unwrap(), decoded);
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_kept(at in 0_usize..2000, byte in any::<u8>()) {
        let body = kcm_apiserver::protobuf::encode(&replica_set()).unwrap();
        let mut message = open_envelope(&body).unwrap().to_vec();
        let at = at % message.len();
        message[at] = byte;
        if let Ok(decoded) = ReplicaSet::decode_protobuf(&message) {
            let body = decoded.encode_protobuf().unwrap();
            let again = ReplicaSet::decode_protobuf(open_envelope(&body).unwrap()).unwrap();
            prop_assert_eq!(again, decoded);
        }
    }
}

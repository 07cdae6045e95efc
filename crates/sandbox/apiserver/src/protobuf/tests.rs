use kcm_api::{
    list::{ListItem, ListSplitter},
    protobuf::MessageBuilder,
};
use proptest::prelude::*;
use serde_json::json;

use super::{encode::envelope, *};
use crate::{
    defaults,
    schema::{
        KINDS,
        arbitrary::{Arbitrary, cases},
    },
    strict,
};

/// Body sent by `kubectl create deployment foo --image=busybox --replicas=2 --port=80 -- sleep 5`.
const DEPLOYMENT: &str = "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412c6010a1f0a03666f6f12001a0022002a00320038\
    0042005a0a0a036170701203666f6f1294010802120c0a0a0a036170701203666f6f1a7a0a1c0a0012001a0022002a003200380042005a0a0a03\
    6170701203666f6f125a123c0a0762757379626f78120762757379626f781a05736c6565701a01352a00320a0a001000185022002a0042006a00\
    7200800100880100900100a201001a00320042004a0052005800600068008201008a01009a0100c2010022020a00280038001a0c080010001800\
    2000280038001a002200";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    // The tag of a number above 15 has two bytes, and so has a length above 127.
    let varint = |value: usize| match value {
        0..128 => vec![u8::try_from(value).unwrap()],
        _ => vec![u8::try_from(value % 128).unwrap() | 0x80, u8::try_from(value / 128).unwrap()],
    };
    [varint(usize::from(number) * 8 + 2), varint(bytes.len()), bytes.to_vec()].concat()
}

/// A CustomResourceDefinition with this schema, in protobuf.
fn definition(schema: &[u8]) -> Vec<u8> {
    let subresources = field(1, b"");
    let version = [field(1, b"v1"), field(4, &field(1, schema)), field(5, &subresources)].concat();
    let spec = [field(1, b"example.com"), field(7, &version)].concat();
    envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, &spec))
}

#[test]
fn schemas_of_definitions_are_decoded() {
    let leaf = |ty: &str| field(5, ty.as_bytes());
    let property =
        |name: &str, schema: &[u8]| field(29, &[field(1, name.as_bytes()), field(2, schema)].concat());
    let minimum = [&[0x59][..], &1.5_f64.to_le_bytes()].concat();
    let maximum = [&[0x49][..], &3.0_f64.to_le_bytes()].concat();
    // Tag 30 << 3 | 2: a boolean in `additionalProperties`.
    let (allowed, refused) = (field(30, &[8, 1]), field(30, &[8, 0]));
    let schema = [
        leaf("object"),
        field(6, b""),
        property("number", &[leaf("number"), minimum, maximum].concat()),
        property("default", &field(8, &field(1, br#"{"a":[1]}"#))),
        property("enum", &[field(20, &field(1, b"1")), field(20, &field(1, br#""b""#))].concat()),
        property("list", &field(24, &field(1, &leaf("string")))),
        property("map", &field(30, &field(2, &leaf("string")))),
        property("open", &allowed),
        property("closed", &refused),
        property("preserved", &[0xb0, 0x02, 0x01]),
        field(23, b"number"),
        field(44, &[field(1, b"true"), field(2, b"why")].concat()),
    ];
    let object = decode(&definition(&schema.concat())).unwrap();
    assert_eq!(
        object["spec"]["versions"][0],
        json!({
            "name": "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "number": {"type": "number", "minimum": 1.5, "maximum": 3},
                    "default": {"default": {"a": [1]}},
                    "enum": {"enum": [1, "b"]},
                    "list": {"items": {"type": "string"}},
                    "map": {"additionalProperties": {"type": "string"}},
                    "open": {"additionalProperties": true},
                    "closed": {"additionalProperties": false},
                    "preserved": {"x-kubernetes-preserve-unknown-fields": true},
                },
                "required": ["number"],
                "x-kubernetes-validations": [{"rule": "true", "message": "why"}],
            }},
        })
    );
}

#[test]
fn deeply_nested_schema_is_refused() {
    let nested = (0..70).fold(Vec::new(), |inner, _| field(28, &inner));
    assert_eq!(decode(&definition(&nested)), Err(ProtobufError::TooDeep));
}

#[test]
fn kubectl_body_is_decoded() {
    let body = bytes(DEPLOYMENT);
    assert_eq!(body.len(), 232);
    let object = decode(&body).unwrap();
    assert_eq!(
        object,
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "foo", "labels": {"app": "foo"}},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "foo"}},
                "template": {
                    "metadata": {"labels": {"app": "foo"}},
                    "spec": {"containers": [{
                        "name": "busybox",
                        "image": "busybox",
                        "command": ["sleep", "5"],
                        "ports": [{"containerPort": 80}],
                        "resources": {},
                    }]},
                },
                "strategy": {},
            },
            "status": {},
        })
    );
    // The JSON body decodes to the same object.
    let mut decoded = strict::decode_value("apps/v1", "Deployment", object.clone()).unwrap();
    assert_eq!((&decoded.object, decoded.strict_errors.len()), (&object, 0));
    defaults::apply("Deployment", &mut decoded.object);
    assert_eq!(decoded.object["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
}

fn pod(spec: Message) -> Vec<u8> {
    envelope("v1", "Pod", Message::default().bytes(2, spec))
}

/// Namespace with a managed fields entry that has these `fieldsV1`.
fn with_fields_v1(json: &str) -> Vec<u8> {
    let entry = Message::default().bytes(7, Message::default().bytes(1, json));
    let metadata = Message::default().bytes(17, entry);
    envelope("v1", "Namespace", Message::default().bytes(1, metadata))
}

#[test]
fn lists_metadata_and_failures_are_encoded() {
    let namespace = json!({"metadata": {"name": "team"}});
    let message = |object: &Value| decode_raw(&encode(object).unwrap());
    let list = json!({"apiVersion": "v1", "kind": "NamespaceList",
                      "metadata": {"resourceVersion": "7", "continue": "c", "remainingItemCount": 2}, "items": [namespace]});
    let list = encode(&list).unwrap();
    let (mut splitter, mut body) = (ListSplitter::new(), &*list);
    let item = splitter.next(&mut body).unwrap();
    assert!(
        matches!(item, Some(ListItem::Protobuf(item)) if kcm_api::protobuf::object_name(item).0 == "team")
    );
    assert_eq!(splitter.next(&mut body).unwrap(), None);
    let meta = splitter.finish().unwrap();
    assert_eq!((&*meta.resource_version, meta.continue_token.as_deref()), ("7", Some("c")));
    assert_eq!(meta.remaining_item_count, Some(2));

    let mut partial = namespace;
    partial["apiVersion"] = json!("meta.k8s.io/v1");
    partial["kind"] = json!("PartialObjectMetadata");
    assert_eq!(kcm_api::protobuf::object_name(&message(&partial)).0, "team");

    let failure = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "m", "reason": "Invalid", "code": 422,
        "details": {"name": "n", "group": "g", "kind": "k", "uid": "u", "retryAfterSeconds": 3,
                    "causes": [{"reason": "r", "message": "m", "field": "f"}]},
    });
    let status = kcm_api::Status::decode_protobuf(&message(&failure)).unwrap();
    assert_eq!(status, serde_json::from_value(failure).unwrap());
    assert_eq!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Pod"})), None);
}

fn decode_raw(body: &[u8]) -> Vec<u8> {
    kcm_api::protobuf::open_envelope(body).unwrap().to_vec()
}

#[test]
fn zero_is_absent_unless_behind_pointer() {
    let spec = Message::default().varint(1, 0).varint(5, 0).varint(7, 0);
    let object = decode(&envelope("apps/v1", "Deployment", Message::default().bytes(2, spec))).unwrap();
    assert_eq!(object["spec"], json!({"replicas": 0}));
}

#[test]
fn embedded_messages_are_flattened() {
    let key = Message::default().bytes(1, Message::default().bytes(1, "config")).bytes(2, "key").varint(3, 0);
    let env = Message::default().bytes(1, "A").bytes(3, Message::default().bytes(3, key));
    let port = Message::default().varint(1, 1).bytes(3, "http");
    let probe = Message::default()
        .bytes(1, Message::default().bytes(2, Message::default().bytes(1, "/").bytes(2, port)))
        .varint(4, 5);
    let container = Message::default().bytes(1, "c").bytes(7, env).bytes(11, probe);
    let volume = Message::default().bytes(1, "v").bytes(2, Message::default().bytes(2, Message::default()));
    let common = Message::default().bytes(1, Message::default().bytes(1, "e")).bytes(2, "c");
    let spec = Message::default().bytes(1, volume).bytes(2, container).bytes(34, common);
    assert_eq!(
        decode(&pod(spec)).unwrap()["spec"],
        json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "name": "c",
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "key", "optional": false}}}],
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            }],
            "ephemeralContainers": [{"name": "e", "targetContainerName": "c"}],
        })
    );
}

#[test]
fn special_types_have_json_form() {
    let cpu = Message::default().bytes(1, "cpu").bytes(2, Message::default().bytes(1, "500m"));
    let spec = Message::default().bytes(32, cpu).varint(4, u64::MAX);
    assert_eq!(
        decode(&pod(spec)).unwrap()["spec"],
        json!({"overhead": {"cpu": "500m"}, "terminationGracePeriodSeconds": -1})
    );
    let data = Message::default().bytes(1, "k").bytes(2, b"\xff\x00");
    let secret = decode(&envelope("v1", "Secret", Message::default().bytes(2, data))).unwrap();
    assert_eq!(secret["data"], json!({"k": "/wA="}));

    // Micro times have six fractional digits, other times none.
    for (nanos, digits) in [(0, "000000"), (123_450_000, "123450"), (123_456_789, "123456")] {
        let time = || Message::default().varint(1, 1_767_323_045).varint(2, nanos);
        let lease = Message::default()
            .bytes(1, Message::default().bytes(8, time()))
            .bytes(2, Message::default().bytes(4, time()).bytes(1, ""));
        let lease = decode(&envelope("coordination.k8s.io/v1", "Lease", lease)).unwrap();
        assert_eq!(lease["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
        let renewed = format!("2026-01-02T03:04:05.{digits}Z");
        assert_eq!(lease["spec"], json!({"renewTime": renewed, "holderIdentity": ""}));
    }

    let groups = Message::default().bytes(1, "a").bytes(2, Message::default().bytes(1, "x").bytes(1, "y"));
    let review = Message::default().bytes(2, Message::default().bytes(5, groups));
    let review = decode(&envelope("authorization.k8s.io/v1", "SubjectAccessReview", review)).unwrap();
    assert_eq!(review["spec"], json!({"extra": {"a": ["x", "y"]}}));

    let namespace = decode(&with_fields_v1("{\"f:spec\":{}}")).unwrap();
    assert_eq!(namespace["metadata"]["managedFields"], json!([{"fieldsV1": {"f:spec": {}}}]));
}

#[test]
fn unknown_field_numbers_are_skipped() {
    let mut object = MessageBuilder::default();
    object.varint(1000, 1).bytes(1001, "x");
    object.fields([0xb9, 0x3f, 1, 2, 3, 4, 5, 6, 7, 8, 0xbd, 0x3f, 1, 2, 3, 4]);
    object.bytes(1, Message::default().bytes(1, "n"));
    assert_eq!(
        decode(&envelope("v1", "Namespace", object)).unwrap(),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    );
}

#[test]
fn numbers_may_be_packed() {
    let context = Message::default().varint(4, 5).bytes(4, [6, 7]);
    let object = decode(&pod(Message::default().bytes(14, context))).unwrap();
    assert_eq!(object["spec"]["securityContext"]["supplementalGroups"], json!([5, 6, 7]));
}

#[test]
fn unknown_volume_source_is_rejected() {
    let volume = Message::default().bytes(1, "v").bytes(2, Message::default().bytes(99, ""));
    assert_eq!(
        decode(&pod(Message::default().bytes(1, volume))).unwrap_err().to_string(),
        "the source of a volume (protobuf field 99) is not supported"
    );
}

#[test]
fn malformed_bodies_are_rejected() {
    use ProtobufError::*;
    assert_eq!(decode(b"{}"), Err(Prefix));
    assert_eq!(decode(b""), Err(Prefix));
    assert_eq!(decode(b"k8s\0\x0a"), Err(CutOff));
    assert_eq!(decode(b"k8s\0\x0a\x7f"), Err(CutOff));
    assert_eq!(decode(b"k8s\0\x0b"), Err(WireType { number: 1, wire_type: 3 }));
    assert_eq!(decode(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), Err(CutOff));
    assert_eq!(
        decode(&envelope("v1", "Widget", "")),
        Err(UnknownKind { api_version: "v1".to_owned(), kind: "Widget".to_owned() })
    );
    assert_eq!(
        decode(&envelope("v1", "Pod", Message::default().varint(1, 1))),
        Err(WireType { number: 1, wire_type: 0 })
    );
    assert_eq!(decode(&pod(Message::default().bytes(3, b"\xff"))), Err(Text { number: 3 }));
    assert_eq!(decode(&pod(Message::default().bytes(4, "5"))), Err(WireType { number: 4, wire_type: 2 }));
    let meta = Message::default().bytes(8, Message::default().varint(1, i64::MAX as u64));
    assert_eq!(decode(&envelope("v1", "Pod", Message::default().bytes(1, meta))), Err(Time { number: 8 }));
    assert_eq!(decode(&with_fields_v1("{")), Err(Json { number: 7 }));
    let envelope = Message::default().bytes(4, "application/json");
    let foreign = decode(&[PREFIX, envelope.as_ref()].concat()).unwrap_err();
    assert_eq!(foreign, Encoding { encoding: "application/json".to_owned() });
}

/// Removes values that protobuf cannot express: the time 1970-01-01T00:00:00Z and empty lists and maps.
fn make_sayable(value: &mut Value, ty: &Type) {
    match (value, ty) {
        (Value::Object(fields), Type::Struct(id)) => fields.retain(|name, value| {
            let Some(field) = SCHEMA.get(*id).field(name) else { return true };
            make_sayable(value, &field.ty);
            match (&*value, &field.ty) {
                (Value::Array(list), _) => !list.is_empty(),
                (Value::Object(map), Type::Map(_)) => !map.is_empty(),
                (Value::String(text), Type::Time) => !text.starts_with("1970"),
                _ => true,
            }
        }),
        (Value::Array(list), Type::List(ty)) => list.iter_mut().for_each(|value| make_sayable(value, ty)),
        (Value::Object(map), Type::Map(ty)) => {
            map.retain(|_, value| !value.as_str().is_some_and(|text| text.starts_with("1970")));
            map.values_mut().for_each(|value| make_sayable(value, ty));
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn object_in_protobuf_is_the_same_object(seed in any::<u64>()) {
        // Definitions are not encoded.
        for (api_version, kind) in KINDS.iter().filter(|(_, kind)| *kind != "CustomResourceDefinition") {
            let mut object = Arbitrary::new(seed).object(api_version, kind);
            let id = SCHEMA.kind(api_version, kind).unwrap();
            make_sayable(&mut object, &Type::Struct(id));
            let object = strict::decode_value(api_version, kind, object).unwrap().object;
            let body = encode(&object).unwrap();
            let decoded = strict::decode_value(api_version, kind, decode(&body).unwrap()).unwrap();
            prop_assert_eq!(&decoded.object, &object);
            prop_assert!(decoded.strict_errors.is_empty());
        }
    }

    /// The lean pod of the controllers is the same from both encodings.
    #[test]
    fn pod_in_protobuf_is_the_same_lean_pod(seed in any::<u64>()) {
        let mut pod = Arbitrary::new(seed).object("v1", "Pod");
        make_sayable(&mut pod, &Type::Struct(SCHEMA.kind("v1", "Pod").unwrap()));
        let pod = strict::decode_value("v1", "Pod", pod).unwrap().object;
        let decoder = kcm_api::PodDecoder::default();
        let body = encode(&pod).unwrap();
        let from_protobuf = decoder.decode_protobuf(kcm_api::protobuf::open_envelope(&body).unwrap());
        prop_assert_eq!(from_protobuf.unwrap(), decoder.decode_value(&pod).unwrap());
    }

    /// Pods are created with the spec of a template in either encoding.
    #[test]
    fn template_in_protobuf_has_the_same_spec(seed in any::<u64>()) {
        let mut pod = Arbitrary::new(seed).object("v1", "Pod");
        make_sayable(&mut pod, &Type::Struct(SCHEMA.kind("v1", "Pod").unwrap()));
        let spec = &strict::decode_value("v1", "Pod", pod).unwrap().object["spec"];
        let template = kcm_api::PodTemplate::from_value(&json!({"spec": spec})).unwrap();
        let body = envelope("v1", "Pod", Message::default().bytes(2, template.spec_protobuf().unwrap()));
        let decoded = strict::decode_value("v1", "Pod", decode(&body).unwrap()).unwrap();
        prop_assert_eq!(&decoded.object["spec"], spec);
    }

    #[test]
    fn any_bytes_are_an_object_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode(&[PREFIX, &bytes].concat());
        for (api_version, kind) in KINDS {
            let _ = decode(&envelope(api_version, kind, &bytes));
        }
    }

    #[test]
    fn damaged_body_is_an_object_or_an_error(at in 0_usize..232, by in 1_u8.., cut in 0_usize..232) {
        let mut body = bytes(DEPLOYMENT);
        body[at] = body[at].wrapping_add(by);
        let _ = decode(&body);
        let _ = decode(&body[..cut]);
    }
}

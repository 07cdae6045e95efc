use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{
    KINDS,
    arbitrary::{Arbitrary, cases},
};

fn decode_text(kind: &str, text: &str) -> Decoded {
    let api_version = if kind == "Pod" { "v1" } else { "apps/v1" };
    decode(api_version, kind, text.as_bytes()).unwrap()
}

fn error(text: &str) -> String {
    decode("apps/v1", "Deployment", text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let decoded = decode_text(
        "Deployment",
        r#"{"spec":{"repliccas":2,"replicas":3,"template":{"spec":{"containers":[{"name":"a"},{"name":"c","imagee":"x"}]}}},
            "metdata":{}}"#,
    );
    assert_eq!(
        decoded.strict_errors,
        [
            r#"unknown field "spec.repliccas""#,
            r#"unknown field "spec.template.spec.containers[1].imagee""#,
            r#"unknown field "metdata""#,
        ]
    );
    assert_eq!(decoded.object["spec"]["replicas"], 3);
    assert!(decoded.object["spec"].get("repliccas").is_none());
    assert_eq!(
        strict_message("apps/v1", "Deployment", &decoded.strict_errors[..1]),
        r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.repliccas""#
    );
}

#[test]
fn duplicate_fields_are_reported_and_the_last_is_used() {
    let decoded = decode_text(
        "Deployment",
        r#"{"spec":{"replicas":1,"replicas":2,"replicas":3},"metadata":{"labels":{"a":"1","a":"2"}}}"#,
    );
    assert_eq!(
        decoded.strict_errors,
        [r#"duplicate field "spec.replicas""#, r#"duplicate field "metadata.labels.a""#]
    );
    assert_eq!(decoded.object["spec"]["replicas"], 3);
    assert_eq!(decoded.object["metadata"]["labels"]["a"], "2");
}

#[test]
fn number_of_errors_is_limited() {
    let fields: Vec<String> = (0..150).map(|n| format!("\"x{n}\":1")).collect();
    assert_eq!(decode_text("Pod", &format!("{{{}}}", fields.join(","))).strict_errors.len(), 100);
}

#[test]
fn omitempty_values_are_absent() {
    let decoded = decode_text(
        "Pod",
        r#"{"metadata":{"name":"p","labels":{},"creationTimestamp":null,"generateName":""},
            "spec":{"hostNetwork":false,"securityContext":{},"nodeSelector":{},"priority":0,"hostname":null,
            "containers":[{"name":"c","args":[],"stdin":false,"securityContext":{"privileged":false}}]}}"#,
    );
    assert_eq!(
        decoded.object,
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {
                "securityContext": {},
                "priority": 0,
                "containers": [{"name": "c", "resources": {}, "securityContext": {"privileged": false}}],
            },
            "status": {},
        })
    );
    assert!(decoded.strict_errors.is_empty());
}

#[test]
fn always_written_fields_are_present() {
    assert_eq!(
        decode_text("Deployment", "{}").object,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
            "spec": {"strategy": {}, "template": {"metadata": {}, "spec": {}}},
        })
    );
    let replica_set = decode_text("ReplicaSet", "{}").object;
    assert_eq!(replica_set["status"], json!({"replicas": 0}));
}

#[test]
fn explicit_zero_behind_pointer_is_kept() {
    let decoded =
        decode_text("Deployment", r#"{"spec":{"replicas":0,"revisionHistoryLimit":0,"minReadySeconds":0}}"#);
    assert_eq!(decoded.object["spec"]["replicas"], 0);
    assert_eq!(decoded.object["spec"]["revisionHistoryLimit"], 0);
    assert!(decoded.object["spec"].get("minReadySeconds").is_none());
}

#[test]
fn null_elements_are_zero_values() {
    let decoded = decode_text(
        "Pod",
        r#"{"metadata":{"labels":{"a":null}},"spec":{"containers":[null,{"name":"c","command":["x",null]}]}}"#,
    );
    assert_eq!(decoded.object["spec"]["containers"][0], json!({"name": "", "resources": {}}));
    assert_eq!(decoded.object["spec"]["containers"][1]["command"], json!(["x", ""]));
    assert_eq!(decoded.object["metadata"]["labels"], json!({"a": ""}));
}

#[test]
fn quantities_are_canonical() {
    let decoded = decode_text(
        "Pod",
        r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1000m","memory":"1024Mi","a":2,"b":0.5,"c":1e3}}}]}}"#,
    );
    assert_eq!(
        decoded.object["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "1", "memory": "1Gi", "a": "2", "b": "500m", "c": "1k"})
    );
    let error = decode("v1", "Pod", br#"{"spec":{"overhead":{"cpu":"much"}}}"#).unwrap_err().to_string();
    assert!(error.contains("quantities must match the regular expression"), "{error}");
}

#[test]
fn times_are_normalized() {
    let pod = decode_text("Pod", r#"{"status":{"startTime":"2026-01-02T03:04:05.999+01:00"}}"#);
    assert_eq!(pod.object["status"]["startTime"], "2026-01-02T02:04:05Z");
    let lease = decode(
        "coordination.k8s.io/v1",
        "Lease",
        br#"{"spec":{"renewTime":"2026-01-02T03:04:05.123456+01:00"}}"#,
    )
    .unwrap();
    assert_eq!(lease.object["spec"]["renewTime"], "2026-01-02T02:04:05.123456Z");
    for (fraction, rest) in [("Z", "\"Z\" as \".000000\""), (".1234567Z", "\"7Z\" as \"Z07:00\"")] {
        let text = format!(r#"{{"spec":{{"renewTime":"2026-01-02T03:04:05{fraction}"}}}}"#);
        let error = decode("coordination.k8s.io/v1", "Lease", text.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("cannot parse {rest}")), "{error}");
    }
    for (given, kept) in [
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z"),
        ("1969-12-31T23:59:58.5Z", "1969-12-31T23:59:58Z"),
    ] {
        let pod = decode_text("Pod", &format!(r#"{{"status":{{"startTime":"{given}"}}}}"#));
        assert_eq!(pod.object["status"]["startTime"], kept);
    }
    let error = decode("v1", "Pod", br#"{"status":{"startTime":"2026-13-02T03:04:05Z"}}"#).unwrap_err();
    assert!(error.to_string().contains("parsing time \"2026-13-02T03:04:05Z\""), "{error}");
}

#[test]
fn type_errors_have_go_format() {
    let prefix = r#"Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal "#;
    let cases: BTreeMap<String, String> =
        serde_saphyr::from_str(include_str!("tests/type_errors.yaml")).unwrap();
    for (text, end) in cases {
        assert_eq!(error(&text), format!("{prefix}{end}"), "{text}");
    }
}

#[test]
fn syntax_errors_quote_the_beginning() {
    assert!(
        error("{\"spec\": ")
            .starts_with("the object provided is unrecognized (must be of type Deployment): ")
    );
    assert!(error("spec").ends_with("(73706563)"));
    assert!(error("").ends_with("(<empty>)"));
    assert!(error("{} {}").contains("invalid character '{' after top-level value"));
    assert!(error("{").contains("json parse error: unexpected end of JSON input"));
    assert!(error("[]").ends_with("Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)"));
    assert!(error(&"[".repeat(100_000)).contains("array into Go value"));
    let deep = format!("{{\"metadata\":{{\"managedFields\":[{{\"fieldsV1\":{}", "[".repeat(100_000));
    let deep = decode("apps/v1", "Deployment", deep.as_bytes()).unwrap_err().to_string();
    assert!(deep.contains("recursion limit"), "{deep}");
}

#[test]
fn other_kind_or_version_is_rejected() {
    assert_eq!(
        error(r#"{"apiVersion":"apps/v1beta1"}"#),
        "Deployment in version \"v1beta1\" cannot be handled as a Deployment: no kind \"Deployment\" is registered for \
         version \"apps/v1beta1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    );
    assert_eq!(
        decode("autoscaling/v1", "HorizontalPodAutoscaler", br#"{"apiVersion":"autoscaling/v2"}"#)
            .unwrap_err()
            .to_string(),
        "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)"
    );
    assert_eq!(
        error(r#"{"apiVersion":"v1","kind":"Pod"}"#),
        "Pod in version \"v1\" cannot be handled as a Deployment: converting (v1.Pod) to (apps.Deployment): unknown \
         conversion"
    );
    assert_eq!(
        decode("v2", "Pod", b"{}").unwrap_err().to_string(),
        "no kind \"Pod\" is registered for version \"v2\""
    );
    assert!(decode("v1", "DeleteOptions", br#"{"kind":"DeleteOptions","apiVersion":"apps/v1"}"#).is_ok());
}

#[test]
fn base64_is_validated() {
    let secret = |data: &str| decode("v1", "Secret", format!(r#"{{"data":{{"a":"{data}"}}}}"#).as_bytes());
    assert_eq!(secret("aGVs\\nbG8=").unwrap().object["data"]["a"], "aGVsbG8=");
    assert!(secret("***").unwrap_err().to_string().ends_with("illegal base64 data at input byte 0"));
}

#[test]
fn arbitrary_json_is_unchanged() {
    let fields = json!({"b": [null, 1.5, {}], "a": {"x": null, "y": 0}});
    let object = json!({"metadata": {"managedFields": [{"fieldsV1": fields}]}});
    let decoded = decode_text("Deployment", &object.to_string());
    assert_eq!(decoded.object["metadata"], object["metadata"]);
    let again = decode_value("apps/v1", "Deployment", decoded.object.clone()).unwrap();
    assert_eq!(again.object, decoded.object);
}

#[test]
fn empty_objects_of_every_kind_round_trip() {
    for (api_version, kind) in KINDS {
        let first = decode(api_version, kind, b"{}").unwrap();
        let second = decode_value(api_version, kind, first.object.clone()).unwrap();
        assert_eq!(first, second, "{api_version} {kind}");
        assert_eq!(first.object["kind"], *kind);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn decoding_twice_is_decoding_once(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let object = Arbitrary::new(seed).object(api_version, kind);
            let once = decode_value(api_version, kind, object.clone()).unwrap();
            prop_assert!(once.strict_errors.is_empty(), "{:?}", once.strict_errors);
            let twice = decode_value(api_version, kind, once.object.clone()).unwrap();
            prop_assert_eq!(&twice, &once);
            let text = decode(api_version, kind, object.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&text, &once);
        }
    }

    #[test]
    fn any_text_is_an_object_or_an_error(text in r#"[\[\]{}:, "a-z0-9.-]{0,60}"#) {
        let _ = decode("apps/v1", "Deployment", text.as_bytes());
        let _ = decode("apps/v1", "Deployment", format!("{{\"spec\":{text}}}").as_bytes());
    }
}

//! The texts were recorded from kube-controller-manager v1.36.2.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use kcm_clock::{FakeClock, Timestamp};

use super::*;
use crate::{Request, Routes, User};

const CURL: &str = "curl/7.88.1";

fn ask(
    handler: &Handler,
    method: &Method,
    path: &str,
    accept: Option<&'static str>,
    body: &'static str,
) -> Response {
    let mut headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(CURL))]);
    headers.extend(accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept))));
    let (user, body) = (User::default(), Bytes::from_static(body.as_bytes()));
    handler(&Request { method, path, query: "", headers: &headers, body: &body, user: &user })
}

fn get(handler: &Handler, accept: Option<&'static str>) -> Response {
    ask(handler, &Method::GET, "/", accept, "")
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

fn content_type(response: &Response) -> &str {
    response.headers[header::CONTENT_TYPE].to_str().unwrap()
}

fn status_page(notices: &[&str]) -> Handler {
    let started: Timestamp = "2026-11-21T08:09:32.7Z".parse().unwrap();
    let now: Timestamp = "2026-11-21T09:11:23Z".parse().unwrap();
    let status = StatuszInfo {
        component: "kube-controller-manager".to_owned(),
        started,
        binary_version: "1.36".to_owned(),
        emulation_version: "1.36".to_owned(),
        compiler: "rustc 1.95.0".to_owned(),
        paths: ["/metrics/slis", "/metrics", "/healthz", "/", "/flagz", "/configz"]
            .map(str::to_owned)
            .to_vec(),
        notices: notices.iter().map(|notice| (*notice).to_owned()).collect(),
    };
    statusz(status, Arc::new(FakeClock::new(now)))
}

fn flags_page() -> Handler {
    let flags = [
        ("v", "2"),
        ("leader-elect", "true"),
        ("kubeconfig", "/etc/k"),
        ("controllers", "[*]"),
        ("master", ""),
    ];
    flagz("kube-controller-manager", flags.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

#[test]
fn statusz_text_equals_upstream() {
    let expected = "
kube-controller-manager statusz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started: Sat Nov 21 08:09:32 UTC 2026
Up: 1 hr 01 min 51 sec
Go version: rustc 1.95.0
Binary version: 1.36
Emulation version: 1.36
Paths: /configz /flagz /healthz /metrics
";
    for accept in [
        None,
        Some(""),
        Some("  "),
        Some("*/*"),
        Some("text/plain"),
        Some("text/*"),
        Some("application/json, text/plain"),
    ] {
        let response = get(&status_page(&[]), accept);
        assert_eq!(
            (response.status.as_u16(), content_type(&response)),
            (200, "text/plain; charset=utf-8"),
            "{accept:?}"
        );
        assert_eq!(text(&response), expected, "{accept:?}");
    }
}

#[test]
fn notices_follow_upstreams_lines() {
    let page = status_page(&["first", "second"]);
    assert!(text(&get(&page, None)).ends_with("/metrics\nNotice: first\nNotice: second\n"));
    let json: serde_json::Value = serde_json::from_str(text(&get(
        &page,
        Some("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"),
    )))
    .unwrap();
    assert_eq!(json["notices"], serde_json::json!(["first", "second"]));
}

#[test]
fn statusz_json_and_yaml_equal_upstream() {
    let accept = "text/html, application/json;v=v1beta1;g=config.k8s.io;as=Statusz;q=0.5, text/plain;q=0.1";
    let response = get(&status_page(&[]), Some(accept));
    assert_eq!(content_type(&response), "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
    assert_eq!(response.headers.get("warning"), None);
    let expected = r#"{
  "kind": "Statusz",
  "apiVersion": "config.k8s.io/v1beta1",
  "metadata": {
    "name": "kube-controller-manager"
  },
  "startTime": "2026-11-21T08:09:32Z",
  "uptimeSeconds": 3711,
  "goVersion": "rustc 1.95.0",
  "binaryVersion": "1.36",
  "emulationVersion": "1.36",
  "paths": [
    "/configz",
    "/flagz",
    "/healthz",
    "/metrics"
  ]
}"#;
    assert_eq!(text(&response), expected);
    let old = get(&status_page(&[]), Some("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz"));
    assert_eq!(
        old.headers["warning"],
        "299 - \"This version of the statusz endpoint is deprecated. Please use a newer version.\""
    );
    let yaml = get(&status_page(&[]), Some("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz"));
    assert_eq!(content_type(&yaml), "application/yaml;g=config.k8s.io;v=v1beta1;as=Statusz");
    let expected = "apiVersion: config.k8s.io/v1beta1
binaryVersion: \"1.36\"
emulationVersion: \"1.36\"
goVersion: \"rustc 1.95.0\"
kind: Statusz
metadata:
  name: kube-controller-manager
paths:
- /configz
- /flagz
- /healthz
- /metrics
startTime: \"2026-11-21T08:09:32Z\"
uptimeSeconds: 3711
";
    assert_eq!(text(&yaml), expected);
}

#[test]
fn statusz_rejects_other_media_types() {
    let expected = r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
  "reason": "NotAcceptable",
  "code": 406
}"#;
    for accept in [
        "application/json",
        "application/*",
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz",
        "application/json;as=Statusz;v=v1;g=config.k8s.io",
        "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
        "application/json;v=v1beta1",
        "nonsense",
        ";;;,,=",
    ] {
        let response = get(&status_page(&[]), Some(accept));
        assert_eq!(response.status.as_u16(), 406, "{accept}");
        assert_eq!(text(&response), expected);
    }
}

#[test]
fn flagz_lists_sorted_flags() {
    let expected = "
kube-controller-manager flagz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
controllers=[*]
kubeconfig=/etc/k
leader-elect=true
master=
v=2
";
    assert_eq!(text(&get(&flags_page(), None)), expected);
    let json = get(&flags_page(), Some("application/json;v=v1beta1;g=config.k8s.io;as=Flagz"));
    let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    assert_eq!(json["flags"]["controllers"], "[*]");
    assert_eq!(
        (&json["kind"], &json["metadata"]["name"]),
        (&"Flagz".into(), &"kube-controller-manager".into())
    );
    let yaml = get(&flags_page(), Some("application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz"));
    let expected = "apiVersion: config.k8s.io/v1beta1
flags:
  controllers: \"[*]\"
  kubeconfig: /etc/k
  leader-elect: \"true\"
  master: \"\"
  v: \"2\"
kind: Flagz
metadata:
  name: kube-controller-manager
";
    assert_eq!(text(&yaml), expected);
}

#[test]
fn configz_contains_the_configuration() {
    let page = configz("kubecontrollermanager.config.k8s.io", &serde_json::json!({"kind": "K"}));
    let response = get(&page, None);
    assert_eq!(content_type(&response), "application/json");
    assert_eq!(text(&response), r#"{"kubecontrollermanager.config.k8s.io":{"kind":"K"}}"#);
}

#[test]
fn put_sets_the_verbosity() {
    let set = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&set);
    let routes = debug_flags(Routes::new(), move |verbosity| set.store(verbosity, Ordering::SeqCst));
    let route = routes.find("/debug/flags/v").unwrap();
    assert!(route.reads_body(&Method::PUT) && !route.reads_body(&Method::POST));
    let page = &route.handler;
    let put = |body| {
        let response = ask(page, &Method::PUT, "/debug/flags/v", None, body);
        assert_eq!(content_type(&response), "text/plain");
        (response.status.as_u16(), text(&response).to_owned())
    };
    assert_eq!(put("5"), (200, "successfully set klog.logging.verbosity to 5\n".to_owned()));
    assert_eq!(seen.load(Ordering::SeqCst), 5);
    assert_eq!(put("abc"), (400, "strconv.ParseUint: parsing \"abc\": invalid syntax\n".to_owned()));
    assert_eq!(put(""), (400, "strconv.ParseUint: parsing \"\": invalid syntax\n".to_owned()));
    assert_eq!(put("+1").0, 400);
    assert_eq!(
        put("9999999999"),
        (400, "strconv.ParseUint: parsing \"9999999999\": value out of range\n".to_owned())
    );
    let klog = "failed set klog.logging.verbosity 4294967295: \
        strconv.ParseInt: parsing \"4294967295\": value out of range\n";
    assert_eq!(put("4294967295"), (400, klog.to_owned()));
    let post = ask(page, &Method::POST, "/debug/flags/v", None, "4");
    assert_eq!((post.status.as_u16(), text(&post)), (406, "unsupported http method\n"));
    assert_eq!(seen.load(Ordering::SeqCst), 5);
    for index in ["/debug/flags", "/debug/flags/", "/debug/flags/v2"] {
        let response = ask(&routes.find(index).unwrap().handler, &Method::GET, index, None, "");
        assert_eq!((response.status.as_u16(), response.body.len()), (200, 168), "{index}");
    }
}

#[test]
fn profiles_are_not_implemented() {
    let routes = profiling(Routes::new());
    let get = |path: &str| ask(&routes.find(path).unwrap().handler, &Method::GET, path, None, "");
    assert_eq!(get("/debug/pprof").headers[header::LOCATION], "/debug/pprof/");
    assert!(text(&get("/debug/pprof/")).contains("perf record"));
    assert_eq!(get("/debug/pprof/profile").status.as_u16(), 501);
    let unknown = get("/debug/pprof/cmdline");
    assert_eq!((unknown.status.as_u16(), text(&unknown)), (404, "Unknown profile\n"));
}

proptest::proptest! {
    #[test]
    fn any_accept_header_gets_a_response(accept in "[ -~]{0,60}") {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(&accept).unwrap());
        let (user, body) = (User::default(), Bytes::new());
        let request = Request { method: &Method::GET, path: "/statusz", query: &accept, headers: &headers, body: &body, user: &user };
        proptest::prop_assert!(matches!(status_page(&[])(&request).status.as_u16(), 200 | 406));
    }
}

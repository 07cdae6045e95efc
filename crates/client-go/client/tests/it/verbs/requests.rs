//! Requests on the wire, and their repetition.

use kcm_api::Lease;
use kcm_client::{
    ApiError, ApplyOptions, DeleteOptions, Idempotency, ListParams, Patch, Preconditions, Propagation, Scale,
    WatchOptions, WriteOptions,
};
use kcm_testkit::{FakeApiServer, FakeResponse};

use super::*;

fn leases(server: &FakeApiServer) -> Api<Lease> {
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
    let client = ClientFactory::in_process(server.service(), options).client("test", RateLimit::UNLIMITED);
    client.api().namespaced("shop")
}

fn uid() -> DeleteOptions {
    let preconditions = Preconditions { uid: Some("u".to_owned()), resource_version: None };
    DeleteOptions { preconditions, ..DeleteOptions::default() }
}

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";

#[tokio::test(start_paused = true)]
async fn paths_media_types_and_bodies() {
    let server = FakeApiServer::new(|_| FakeResponse::ok("{}"));
    let leases = leases(&server);
    let apply = ApplyOptions { force: true, ..ApplyOptions::new("operator") };
    leases.patch("a", &Patch::json(&json!([]))).await.unwrap();
    leases.patch("a", &Patch::merge(&json!({"spec": null}))).await.unwrap();
    leases.patch("a", &Patch::strategic("{\"spec\": {}}".to_owned())).await.unwrap();
    leases.patch("a", &Patch::apply(&json!({"spec": {}}), apply)).await.unwrap();
    leases.patch_scale("a", &Patch::merge(&json!({"spec": {"replicas": 1}}))).await.unwrap();
    let scale: Scale = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    leases.replace_scale(&scale).await.unwrap();
    let writer = WriteOptions {
        field_manager: Some("a b".to_owned()),
        dry_run: true,
        field_validation: Some(kcm_client::FieldValidation::Strict),
        ..WriteOptions::default()
    };
    let lease = Lease::new(&ObjectKey::new("shop", "a"));
    leases.with_write_options(writer.clone()).create(&lease).await.unwrap();
    let all = DeleteOptions {
        preconditions: Preconditions { uid: Some("u".to_owned()), resource_version: Some("7".to_owned()) },
        grace_period_seconds: Some(0),
        propagation: Some(Propagation::Orphan),
    };
    leases.with_write_options(writer).delete("a", &all).await.unwrap();
    leases.delete_collection(&ListParams::labels("a=b"), &DeleteOptions::default()).await.unwrap();
    leases.evict("a", &uid()).await.unwrap();

    struct Expected {
        line: String,
        media: &'static str,
        body: &'static str,
    }
    let expected = [
        Expected { line: format!("PATCH {PATH}/a"), media: "json-patch+json", body: "[]" },
        Expected { line: format!("PATCH {PATH}/a"), media: "merge-patch+json", body: r#"{"spec":null}"# },
        Expected {
            line: format!("PATCH {PATH}/a"),
            media: "strategic-merge-patch+json",
            body: r#"{"spec": {}}"#,
        },
        Expected {
            line: format!("PATCH {PATH}/a?fieldManager=operator&force=true"),
            media: "apply-patch+yaml",
            body: r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{}}"#,
        },
        Expected {
            line: format!("PATCH {PATH}/a/scale"),
            media: "merge-patch+json",
            body: r#"{"spec":{"replicas":1}}"#,
        },
        Expected {
            line: format!("PUT {PATH}/a/scale"),
            media: "json",
            body: r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a"},"spec":{"replicas":0},"status":{"replicas":0,"selector":""}}"#,
        },
        Expected {
            line: format!("POST {PATH}?fieldManager=a%20b&dryRun=All&fieldValidation=Strict"),
            media: "json",
            body: r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a","namespace":"shop"},"spec":{}}"#,
        },
        Expected {
            line: format!("DELETE {PATH}/a"),
            media: "json",
            body: r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"resourceVersion":"7","uid":"u"},"propagationPolicy":"Orphan","dryRun":["All"]}"#,
        },
        Expected {
            line: format!("DELETE {PATH}?labelSelector=a%3Db"),
            media: "json",
            body: r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#,
        },
        Expected {
            line: format!("POST {PATH}/a/eviction"),
            media: "json",
            body: r#"{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"a","namespace":"shop"},"deleteOptions":{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}}"#,
        },
    ];
    let requests = server.requests();
    assert_eq!(requests.len(), expected.len());
    for (request, Expected { line, media, body }) in requests.iter().zip(expected) {
        assert_eq!(request.to_string(), line);
        assert_eq!(request.header("content-type"), Some(&*format!("application/{media}")), "{line}");
        assert_eq!(request.body, body, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_and_accepted_media_types() {
    let server = FakeApiServer::new(|_| FakeResponse::ok(r#"{"metadata": {}}"#));
    let leases = leases(&server);
    let params = ListParams {
        labels: "a in (b,c)".to_owned(),
        fields: "metadata.name=x".to_owned(),
        metadata_only: true,
        ..ListParams::default()
    };
    leases.list(&params).await.unwrap();
    drop(leases.watch(&params, &WatchOptions::default()).await.unwrap());
    let selectors = "labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx";
    assert_eq!(
        server.request_lines(),
        [
            format!("GET {PATH}?{selectors}&limit=500"),
            format!("GET {PATH}?watch=true&allowWatchBookmarks=true&{selectors}&timeoutSeconds=300"),
        ]
    );
    for (request, kind) in
        server.requests().iter().zip(["PartialObjectMetadataList", "PartialObjectMetadata"])
    {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
        assert_eq!(request.header("accept"), Some(&*accept));
    }
}

#[tokio::test(start_paused = true)]
async fn accepted_media_types_of_writes() {
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let server = FakeApiServer::new(|_| FakeResponse::ok(r#"{"metadata": {}}"#));
    let whole = leases(&server);
    let metadata_only =
        whole.with_write_options(WriteOptions { metadata_only: true, ..WriteOptions::default() });
    let lease = Lease::new(&ObjectKey::new("shop", "a"));
    for (api, accept) in [(whole, "application/json"), (metadata_only, METADATA)] {
        api.create(&lease).await.unwrap();
        api.create_json("{}").await.unwrap();
        api.replace(&lease).await.unwrap();
        api.replace_status(&lease).await.unwrap();
        api.patch("a", &Patch::merge(&json!({}))).await.unwrap();
        api.patch_status("a", &Patch::merge(&json!({}))).await.unwrap();
        for request in server.requests().iter().rev().take(6) {
            assert_eq!(request.header("accept"), Some(accept), "{request}");
        }
        // The response is not read.
        api.delete("a", &uid()).await.unwrap();
        assert_eq!(server.requests().last().unwrap().header("accept"), Some(METADATA));
    }
}

#[test]
fn json_patches_that_fail_when_repeated() {
    struct Case {
        patch: Value,
        idempotency: Idempotency,
    }
    let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
    let replace = json!({"op": "replace", "path": "/spec/replicas", "value": 2});
    let append = json!({"op": "add", "path": "/spec/hosts/-", "value": "a"});
    let cases = [
        Case { patch: json!([]), idempotency: Idempotency::NotIdempotent },
        Case { patch: json!([append]), idempotency: Idempotency::NotIdempotent },
        Case { patch: json!([replace]), idempotency: Idempotency::NotIdempotent },
        Case {
            patch: json!([test("/metadata/resourceVersion", json!("7")), append]),
            idempotency: Idempotency::Change,
        },
        Case {
            patch: json!([test("/spec/replicas", json!(1)), replace, append]),
            idempotency: Idempotency::Change,
        },
        // These pass again after the patch.
        Case {
            patch: json!([test("/spec/replicas", json!(2)), replace, append]),
            idempotency: Idempotency::NotIdempotent,
        },
        Case {
            patch: json!([test("/metadata/uid", json!("u")), append]),
            idempotency: Idempotency::NotIdempotent,
        },
    ];
    for Case { patch, idempotency } in cases {
        assert_eq!(Patch::<Lease>::json(&patch).idempotency(), idempotency, "{patch}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_patches_are_not_sent() {
    let server = FakeApiServer::scripted([]);
    let leases = leases(&server);
    let cases = [
        (Patch::merge("{}"), "the patch is not a JSON object"),
        (Patch::merge(&json!([])), "the patch is not a JSON object"),
        (Patch::json(&json!({})), "the patch is not a JSON array of operations"),
        (Patch::json(&json!([{"path": "/a"}])), "the patch is not a JSON patch: missing field `op`"),
    ];
    for (patch, message) in cases {
        let error = leases.patch("a", &patch).await.unwrap_err();
        let ApiError::InvalidRequest(found) = &error else { panic!("{error:?}") };
        let expected = format!("invalid request for leases.coordination.k8s.io: {message}");
        assert!(found.to_string().starts_with(&expected), "{found}");
    }
    assert!(server.requests().is_empty());
}

/// Requests that are sent again after a broken connection: see the table at `Api`.
#[tokio::test(start_paused = true)]
async fn repetition_after_a_broken_connection() {
    async fn times(send: impl AsyncFnOnce(Api<Lease>) -> Result<(), ApiError>) -> usize {
        let server = FakeApiServer::scripted([FakeResponse::reset(), FakeResponse::ok("{}")]);
        drop(send(leases(&server)).await);
        server.requests().len()
    }
    let lease = || Lease::new(&ObjectKey::new("shop", "a"));
    let generated = || {
        let mut lease = lease();
        lease.metadata.name = "".into();
        lease.metadata.generate_name = "a-".to_owned();
        lease
    };
    let tested = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]);

    assert_eq!(times(async |api| api.get("a").await.map(drop)).await, 2);
    assert_eq!(times(async |api| api.list(&ListParams::default()).await.map(drop)).await, 2);
    assert_eq!(times(async |api| api.create(&lease()).await.map(drop)).await, 2);
    assert_eq!(times(async |api| api.delete("a", &uid()).await).await, 2);
    assert_eq!(times(async |api| api.evict("a", &uid()).await).await, 2);
    let apply = || Patch::apply(&json!({}), ApplyOptions::new("operator"));
    assert_eq!(times(async |api| api.patch("a", &apply()).await.map(drop)).await, 2);

    assert_eq!(times(async |api| api.create(&generated()).await.map(drop)).await, 1);
    assert_eq!(times(async |api| api.replace(&lease()).await.map(drop)).await, 1);
    assert_eq!(times(async |api| api.delete("a", &DeleteOptions::default()).await).await, 1);
    assert_eq!(times(async |api| api.evict("a", &DeleteOptions::default()).await).await, 1);
    for patch in [|| Patch::merge(&json!({})), || Patch::strategic(&json!({})), || Patch::json(&json!([]))] {
        assert_eq!(times(async |api| api.patch("a", &patch()).await.map(drop)).await, 1);
    }
    assert_eq!(times(async |api| api.patch("a", &Patch::json(&tested)).await.map(drop)).await, 1);
}

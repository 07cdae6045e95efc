//! Admission and conversion webhooks, answered by functions.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::poll;
use http_body_util::BodyExt as _;
use kcm_apiserver::{BoxFuture, WebhookClient, WebhookError, WebhookRequest, WebhookResponse, WriteGate};
use serde_json::{Value, json};

use crate::{
    client::{Client, DEPLOYMENTS},
    website::{DEFINITIONS, WEBSITES, definition, website},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

type Handler = Box<dyn Fn(&str, &Value) -> Result<Value, WebhookError> + Send + Sync>;

/// Webhooks whose answers a function of the path and the request makes. Records the requests.
pub(crate) struct FakeWebhooks {
    handler: Handler,
    requests: Mutex<Vec<(String, Value)>>,
}

impl FakeWebhooks {
    fn new(
        handler: impl Fn(&str, &Value) -> Result<Value, WebhookError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { handler: Box::new(handler), requests: Mutex::default() })
    }

    /// Webhooks that refuse all connections.
    pub(crate) fn refusing() -> Arc<Self> {
        Self::new(|_, _| Err(WebhookError("dial tcp 127.0.0.1:1: connect: connection refused".to_owned())))
    }

    fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|(path, _)| path).collect()
    }
}

impl WebhookClient for FakeWebhooks {
    fn post(&self, request: WebhookRequest) -> BoxFuture<Result<WebhookResponse, WebhookError>> {
        let path = request.url.trim_start_matches("https://hooks").split('?').next().unwrap().to_owned();
        let review: Value = serde_json::from_slice(&request.body).unwrap();
        self.requests.lock().unwrap().push((path.clone(), review["request"].clone()));
        if path == "/silent" {
            return Box::pin(std::future::pending());
        }
        let answer = (self.handler)(&path, &review["request"]).map(|mut response| {
            response["uid"] = review["request"]["uid"].clone();
            let review =
                json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
            WebhookResponse { code: 200, content_type: String::new(), body: review.to_string().into() }
        });
        Box::pin(async { answer })
    }
}

fn client(webhooks: &Arc<FakeWebhooks>) -> Client {
    Client::with(|config| config.webhooks = Some(Arc::clone(webhooks) as Arc<dyn WebhookClient>))
}

/// Webhook for all writes of `resources`, at a path of its name.
fn webhook(name: &str, resources: &[&str]) -> Value {
    json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": format!("https://hooks/{name}")},
        "rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources,
        }],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

async fn configure(client: &Client, path: &str, webhooks: Vec<Value>) {
    let kind =
        if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "hooks"}, "webhooks": webhooks,
    });
    client.post(path, &configuration).await.expect(201);
}

fn with(mut webhook: Value, field: &str, value: Value) -> Value {
    webhook[field] = value;
    webhook
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

fn allowed() -> Value {
    json!({"allowed": true})
}

fn add_data(key: &str) -> Value {
    patch(json!([
        {"op": "add", "path": "/data", "value": {key: "x"}},
    ]))
}

#[tokio::test]
async fn objects_are_changed_and_then_validated() {
    let webhooks = FakeWebhooks::new(|path, request| {
        Ok(match path {
            "/change" => add_data("a"),
            _ => json!({"allowed": request["object"]["data"]["a"] == "x", "warnings": ["w", "w"]}),
        })
    });
    let client = client(&webhooks);
    configure(&client, MUTATING, vec![webhook("change", &["configmaps"])]).await;
    configure(&client, VALIDATING, vec![webhook("check", &["configmaps"])]).await;
    let mut new = config_map("");
    new["metadata"]["generateName"] = json!("a-");
    let answer = client.post(&format!("{CONFIG_MAPS}?fieldManager=me"), &new).await;
    assert_eq!(answer.warnings(), ["299 - \"w\""]);
    let created = answer.expect(201);
    assert_eq!(created["data"], json!({"a": "x"}));
    let requests = webhooks.requests();
    let [(_, change), (_, check)] = requests.as_slice() else { panic!("{requests:?}") };
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!((&change["name"], &check["name"]), (&Value::Null, &json!(name)));
    assert_eq!(change["object"]["metadata"]["uid"], Value::Null);
    assert_eq!(check["object"]["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(
        change["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );
    assert_eq!(change["userInfo"]["username"], "system:admin");
    assert_eq!(change["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(change["oldObject"], Value::Null);
}

#[tokio::test]
async fn denials_and_failures() {
    struct Case {
        answer: fn() -> Result<Value, WebhookError>,
        policy: &'static str,
        expected: (u16, &'static str, &'static str),
    }
    let case = |answer, policy, expected| Case { answer, policy, expected };
    let failure = "Internal error occurred: failed calling webhook \"a.example.com\": ";
    let refused = || Err(WebhookError("dial tcp 127.0.0.1:1: connect: connection refused".to_owned()));
    for Case { answer, policy, expected: (code, reason, message) } in [
        case(
            || Ok(json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "no"}})),
            "Ignore",
            (403, "Forbidden", "admission webhook \"a.example.com\" denied the request: no"),
        ),
        case(
            || Ok(json!({"allowed": false})),
            "Fail",
            (400, "", "admission webhook \"a.example.com\" denied the request without explanation"),
        ),
        case(
            refused,
            "Fail",
            (
                500,
                "InternalError",
                "failed to call webhook: Post \"https://hooks/a?timeout=10s\": dial tcp 127.0.0.1:1: connect: \
                 connection refused",
            ),
        ),
        case(refused, "Ignore", (201, "", "")),
        case(
            || Ok(json!({"allowed": true, "patch": "W10="})),
            "Fail",
            (
                500,
                "InternalError",
                "received invalid webhook response: webhook returned response.patch but not response.patchType",
            ),
        ),
        case(
            || {
                Ok(
                    json!({"allowed": true, "patchType": "JSONPatch", "patch": "W3sib3AiOiJmb28iLCJwYXRoIjoiL2EifV0="}),
                )
            },
            "Ignore",
            (500, "InternalError", ""),
        ),
    ] {
        let webhooks = FakeWebhooks::new(move |_, _| answer());
        let client = client(&webhooks);
        let hook = with(webhook("a", &["configmaps"]), "failurePolicy", json!(policy));
        configure(&client, MUTATING, vec![hook]).await;
        let answer = client.post(CONFIG_MAPS, &config_map("a")).await;
        if code == 201 {
            answer.expect(201);
            continue;
        }
        let found = answer.refused(code, reason);
        let expected = if code == 500 { format!("{failure}{message}") } else { message.to_owned() };
        assert!(found == expected || message.is_empty(), "{found}");
        assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.code, 404);
    }
}

#[tokio::test]
async fn services_are_not_reached() {
    let webhooks = FakeWebhooks::new(|_, _| Ok(allowed()));
    let client = client(&webhooks);
    let service = json!({"service": {"namespace": "default", "name": "hooks", "path": "/a"}});
    configure(&client, VALIDATING, vec![with(webhook("a", &["configmaps"]), "clientConfig", service)]).await;
    assert_eq!(
        client.post(CONFIG_MAPS, &config_map("a")).await.refused(500, "InternalError"),
        "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \
         \"https://hooks.default.svc:443/a?timeout=10s\": service \"hooks\" not found"
    );
    assert_eq!(webhooks.paths(), [""; 0]);
}

/// A webhook is called again if one after it has changed the object.
#[tokio::test]
async fn reinvocation() {
    let webhooks = FakeWebhooks::new(|path, request| {
        Ok(match path {
            "/b" if request["object"]["data"].is_null() => add_data("b"),
            _ => allowed(),
        })
    });
    let client = client(&webhooks);
    let needed = |name| with(webhook(name, &["configmaps"]), "reinvocationPolicy", json!("IfNeeded"));
    let hooks = vec![needed("a"), webhook("never", &["configmaps"]), needed("b"), needed("c")];
    configure(&client, MUTATING, hooks).await;
    client.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(webhooks.paths(), ["/a", "/never", "/b", "/c", "/a"]);
}

#[tokio::test]
async fn operations_and_subresources() {
    let webhooks = FakeWebhooks::new(|_, _| Ok(allowed()));
    let client = client(&webhooks);
    configure(&client, VALIDATING, vec![webhook("a", &["*/*"])]).await;
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    });
    client.post(DEPLOYMENTS, &deployment).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    let merge = json!({"metadata": {"labels": {"x": "y"}}});
    client.patch(&path, &merge).await.expect(200);
    let scale = json!({"spec": {"replicas": 3}});
    client.patch(&format!("{path}/scale"), &scale).await.expect(200);
    let status = json!({"status": {"replicas": 3}});
    client.patch(&format!("{path}/status"), &status).await.expect(200);
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let apply_path = format!("{CONFIG_MAPS}/a?fieldManager=me");
    let media_type = [("content-type", "application/apply-patch+yaml")];
    client.call("PATCH", &apply_path, &media_type, apply.to_string()).await.expect(201);
    client.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    client.delete(CONFIG_MAPS, &Value::Null).await.expect(200);
    client.delete(&path, &json!({"propagationPolicy": "Background"})).await.expect(200);
    let calls: Vec<String> = webhooks
        .requests()
        .into_iter()
        .map(|(_, request)| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let objects = ["object", "oldObject"].map(|name| match &request[name] {
                Value::Null => "-".to_owned(),
                object => text(&object["kind"]),
            });
            [
                text(&request["operation"]),
                text(&request["resource"]["resource"]),
                text(&request["subResource"]),
                text(&request["name"]),
                objects.join(" "),
                text(&request["options"]["kind"]),
            ]
            .join(" ")
        })
        .collect();
    assert_eq!(
        calls,
        [
            "CREATE deployments  web Deployment - CreateOptions",
            "UPDATE deployments  web Deployment Deployment UpdateOptions",
            "UPDATE deployments scale web Scale Scale UpdateOptions",
            "UPDATE deployments status web Deployment Deployment UpdateOptions",
            "CREATE configmaps  a ConfigMap - CreateOptions",
            "CREATE configmaps  b ConfigMap - CreateOptions",
            "DELETE configmaps   - ConfigMap DeleteOptions",
            "DELETE configmaps   - ConfigMap DeleteOptions",
            "DELETE deployments  web - Deployment DeleteOptions",
        ]
    );
}

#[tokio::test]
async fn deletions_are_denied() {
    let webhooks = FakeWebhooks::new(|_, request| Ok(json!({"allowed": request["operation"] != "DELETE"})));
    let client = client(&webhooks);
    configure(&client, VALIDATING, vec![webhook("a", &["*"])]).await;
    client.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    client.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null).await.refused(400, "");
    client.delete(CONFIG_MAPS, &Value::Null).await.refused(400, "");
    client.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    // Configurations of admission are exempt.
    client.delete(&format!("{VALIDATING}/hooks"), &Value::Null).await.expect(200);
    client.delete(CONFIG_MAPS, &Value::Null).await.expect(200);
}

/// A conflict with another write changes the object, so the webhook is called again, with the changed object.
#[tokio::test]
async fn a_patch_is_admitted_again_after_a_conflict() {
    let webhooks = FakeWebhooks::new(|_, _| Ok(add_data("hook")));
    let client = Arc::new(client(&webhooks));
    client.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    configure(&client, MUTATING, vec![webhook("a", &["configmaps"])]).await;
    let path = format!("{CONFIG_MAPS}/a");
    let label = json!({"metadata": {"labels": {"first": "1"}}});
    let gate = Arc::new(tokio::sync::Notify::new());
    let wait = {
        let (gate, client) = (Arc::clone(&gate), Arc::clone(&client));
        let waits = Mutex::new(0);
        Arc::new(move || {
            // The second seat is taken after the call of the webhook.
            *waits.lock().unwrap() += 1;
            if *waits.lock().unwrap() == 2 {
                let stored = client.server.get(kcm_apiserver::Resource::CONFIG_MAPS, "default", "a").unwrap();
                let mut changed = stored.value().clone();
                changed["metadata"]["labels"] = json!({"second": "2"});
                let options = kcm_apiserver::WriteOptions::default();
                client
                    .server
                    .update(kcm_apiserver::Resource::CONFIG_MAPS, "default", changed, &options)
                    .unwrap();
            }
            gate.notify_one();
            Box::pin(async { Box::new(()) as Box<dyn Send> }) as BoxFuture<Box<dyn Send>>
        }) as WriteGate
    };
    let mut request = http::Request::patch(&path)
        .header("content-type", "application/merge-patch+json")
        .body(http_body_util::Full::new(bytes::Bytes::from(label.to_string())))
        .unwrap();
    request.extensions_mut().insert(wait);
    assert_eq!(client.send(request).await.status(), 200);
    let stored = client.get(&path).await.expect(200);
    assert_eq!(stored["metadata"]["labels"], json!({"first": "1", "second": "2"}));
    assert_eq!(stored["data"], json!({"hook": "x"}));
    let labels: Vec<Value> = webhooks
        .requests()
        .iter()
        .map(|(_, request)| request["object"]["metadata"]["labels"].clone())
        .collect();
    assert_eq!(labels, [json!({"first": "1"}), json!({"first": "1", "second": "2"})]);
}

/// A webhook that does not answer delays its own request only.
#[tokio::test]
async fn a_silent_webhook_times_out() {
    let webhooks = FakeWebhooks::new(|_, _| Ok(allowed()));
    let client = client(&webhooks);
    let hook = with(webhook("silent", &["configmaps"]), "timeoutSeconds", json!(3));
    configure(&client, VALIDATING, vec![hook]).await;
    let created = config_map("a");
    let mut slow = pin!(client.post(CONFIG_MAPS, &created));
    assert!(matches!(poll!(&mut slow), Poll::Pending));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    client.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    client.clock.step(Duration::from_secs(2));
    assert!(matches!(poll!(&mut slow), Poll::Pending));
    client.clock.step(Duration::from_secs(1));
    assert_eq!(
        slow.await.refused(500, "InternalError"),
        "Internal error occurred: failed calling webhook \"silent.example.com\": failed to call webhook: Post \
         \"https://hooks/silent?timeout=3s\": context deadline exceeded"
    );
}

#[tokio::test]
async fn dry_runs_require_webhooks_without_side_effects() {
    let webhooks = FakeWebhooks::new(|_, _| Ok(add_data("a")));
    let client = client(&webhooks);
    configure(&client, MUTATING, vec![webhook("a", &["configmaps"])]).await;
    let created = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await.expect(201);
    assert_eq!(created["data"], json!({"a": "x"}));
    assert_eq!(webhooks.requests()[0].1["dryRun"], true);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.code, 404);
}

mod conversion {
    use super::*;

    const WEBSITES_V2: &str = "/apis/example.com/v2/namespaces/default/websites";

    /// `v2` has the field `address` in place of `host`.
    fn converted(_: &str, request: &Value) -> Result<Value, WebhookError> {
        let to = &request["desiredAPIVersion"];
        let objects = request["objects"].as_array().unwrap().iter().map(|object| {
            let mut object = object.clone();
            let (from_field, to_field) =
                if to == "example.com/v2" { ("host", "address") } else { ("address", "host") };
            object["apiVersion"] = to.clone();
            let value = object["spec"].as_object_mut().unwrap().remove(from_field).unwrap();
            object["spec"][to_field] = value;
            object["metadata"]["uid"] = object["metadata"]["uid"].clone();
            object
        });
        Ok(json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>()}))
    }

    fn two_versions() -> Value {
        let version = |name: &str, field: &str| {
            json!({
                "name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "properties": {field: {"type": "string"}},
                }}}},
            })
        };
        let mut definition = definition();
        definition["spec"]["versions"] = json!([version("v1", "host"), version("v2", "address")]);
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hooks/convert"},
        }});
        definition
    }

    #[tokio::test]
    async fn reads_and_writes() {
        let webhooks = FakeWebhooks::new(converted);
        let client = client(&webhooks);
        client.post(DEFINITIONS, &two_versions()).await.expect(201);
        client.post(WEBSITES, &website("a", json!({"host": "x"}))).await.expect(201);
        assert_eq!(webhooks.paths(), [""; 0]);
        let path = format!("{WEBSITES_V2}/a");
        let shown = client.get(&path).await.expect(200);
        assert_eq!(
            (&shown["apiVersion"], &shown["spec"]),
            (&json!("example.com/v2"), &json!({"address": "x"}))
        );

        let merge = json!({"spec": {"address": "y"}});
        let patched = client.patch(&path, &merge).await.expect(200);
        assert_eq!(patched["spec"], json!({"address": "y"}));
        let stored = client.get(&format!("{WEBSITES}/a")).await.expect(200);
        assert_eq!(stored["spec"], json!({"host": "y"}));

        let mut new = website("b", json!({"address": "z"}));
        new["apiVersion"] = json!("example.com/v2");
        let created = client.post(WEBSITES_V2, &new).await.expect(201);
        assert_eq!(created["spec"], json!({"address": "z"}));
        let list = client.get(WEBSITES_V2).await.expect(200);
        let addresses: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["address"]).collect();
        assert_eq!(addresses, ["y", "z"]);
        let watch = http::Request::get(format!("{WEBSITES_V2}?watch=1"));
        let watch = client.send(watch.body(http_body_util::Full::default()).unwrap()).await;
        let events = watch.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        let events = String::from_utf8(events.to_vec()).unwrap();
        assert!(events.contains("\"address\":\"y\"") && !events.contains("\"host\":"), "{events}");
        client.delete(&path, &Value::Null).await.expect(200);
    }

    #[tokio::test]
    async fn failures() {
        let webhooks = FakeWebhooks::new(|_, request| {
            let mut answer = converted("", request)?;
            match request["objects"][0]["spec"]["host"].as_str() {
                Some("renamed") => answer["convertedObjects"][0]["metadata"]["name"] = json!("b"),
                Some("lost") => answer["convertedObjects"] = json!([]),
                Some("refused") => answer["result"] = json!({"status": "Failure", "message": "no"}),
                _ => return Err(WebhookError("EOF".to_owned())),
            }
            Ok(answer)
        });
        let client = client(&webhooks);
        client.post(DEFINITIONS, &two_versions()).await.expect(201);
        let of = "conversion webhook for example.com/v1, Kind=Website";
        for (host, expected) in [
            ("renamed", "returned invalid object: must have the same name: renamed != b"),
            ("lost", "returned 0 objects, expected 1"),
            ("refused", "failed: no"),
            ("broken", "failed: Post \"https://hooks/convert?timeout=30s\": EOF"),
        ] {
            client.post(WEBSITES, &website(host, json!({"host": host}))).await.expect(201);
            let answer = client.get(&format!("{WEBSITES_V2}/{host}")).await;
            assert_eq!(answer.refused(500, ""), format!("{of} {expected}"));
        }
        let without = Client::new();
        without.post(DEFINITIONS, &two_versions()).await.expect(201);
        without.post(WEBSITES, &website("a", json!({"host": "a"}))).await.expect(201);
        without.get(&format!("{WEBSITES_V2}/a")).await.refused(500, "InternalError");
    }
}

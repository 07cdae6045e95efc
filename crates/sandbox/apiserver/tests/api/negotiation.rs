//! Paths, media types, limits, discovery.

use std::sync::{Arc, Mutex};

use kcm_apiserver::AuditEvent;
use serde_json::{Value, json};

use crate::client::{Client, DEPLOYMENTS, deployment};

#[tokio::test]
async fn unknown_path_is_not_found() {
    let client = Client::new();
    for path in ["/apis/apps/v1/foos", "/apis/apps/v2/deployments"] {
        let answer = client.get(path).await;
        assert_eq!(
            answer.refused(404, "NotFound"),
            "the server could not find the requested resource",
            "{path}"
        );
        assert_eq!(answer.json()["details"], json!({}));
    }
    client.call("PUT", DEPLOYMENTS, &[], "{}").await.refused(405, "MethodNotAllowed");
    client.call("POST", &format!("{DEPLOYMENTS}/web"), &[], "{}").await.refused(405, "MethodNotAllowed");
    client.call("POST", "/version", &[], "{}").await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn unsupported_media_type_is_rejected() {
    let client = Client::new();
    client.call("GET", DEPLOYMENTS, &[("accept", "text/html")], "").await.refused(406, "NotAcceptable");
    let answer = client.call("POST", DEPLOYMENTS, &[("content-type", "text/plain")], "x").await;
    assert!(answer.refused(415, "UnsupportedMediaType").contains("application/json"));
}

#[tokio::test]
async fn body_may_be_yaml() {
    let client = Client::new();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: b\n";
    let path = "/api/v1/namespaces/default/configmaps";
    let created = client.call("POST", path, &[("content-type", "application/yaml")], yaml).await.expect(201);
    assert_eq!(created["data"], json!({"a": "b"}));
    client
        .call("POST", path, &[("content-type", "application/yaml")], "a: [")
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn body_may_be_protobuf() {
    // `kubectl create deployment foo --image=busybox --replicas=2 --port=80 -- sleep 5`
    let hex = "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412c6010a1f0a03666f6f12001a0022002a00320038004200\
               5a0a0a036170701203666f6f1294010802120c0a0a0a036170701203666f6f1a7a0a1c0a0012001a0022002a00320038004200\
               5a0a0a036170701203666f6f125a123c0a0762757379626f78120762757379626f781a05736c6565701a01352a00320a0a0010\
               00185022002a0042006a007200800100880100900100a201001a00320042004a0052005800600068008201008a01009a0100c2\
               010022020a00280038001a0c0800100018002000280038001a002200";
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect();
    let client = Client::new();
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    let created = client.call("POST", DEPLOYMENTS, &protobuf, bytes).await.expect(201);
    assert_eq!((&created["metadata"]["name"], &created["spec"]["replicas"]), (&json!("foo"), &json!(2)));
    assert_eq!(created["spec"]["template"]["spec"]["containers"][0]["command"], json!(["sleep", "5"]));
    client.call("POST", DEPLOYMENTS, &protobuf, "k8s\0nonsense").await.refused(400, "BadRequest");
}

#[tokio::test]
async fn long_or_deep_body_is_rejected() {
    let client = Client::new();
    let long = vec![b' '; (3 << 20) + 1];
    let message = client.call("POST", DEPLOYMENTS, &[], long).await.refused(413, "RequestEntityTooLarge");
    assert_eq!(message, "Request entity too large: limit is 3145728");
    for (media, body) in [
        ("application/json", "[".repeat(100_000)),
        ("application/json", "{\"a\":".repeat(100_000)),
        ("application/yaml", "[".repeat(10_000)),
    ] {
        client.call("POST", DEPLOYMENTS, &[("content-type", media)], body).await.refused(400, "BadRequest");
    }
    let patch = [("content-type", "application/merge-patch+json")];
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    client
        .call("PATCH", &format!("{DEPLOYMENTS}/web"), &patch, "{\"a\":".repeat(100_000))
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn large_object_is_rejected() {
    let client = Client::new();
    let mut big = deployment("web");
    big["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_600_000)]);
    client.post(DEPLOYMENTS, &big).await.refused(413, "RequestEntityTooLarge");
}

#[tokio::test]
async fn discovery_forms_agree() {
    let client = Client::new();
    let mut plain = Vec::new();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in client.get("/apis").await.expect(200)["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        assert_eq!(client.get(&format!("/apis/{name}")).await.expect(200)["name"], name);
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    for path in versions {
        let list = client.get(&path).await.expect(200);
        for resource in list["resources"].as_array().unwrap() {
            plain.push(format!(
                "{} {} {}",
                list["groupVersion"],
                resource["name"].as_str().unwrap(),
                resource["verbs"]
            ));
        }
    }
    let mut aggregated = Vec::new();
    for path in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let answer = client.call("GET", path, &[("accept", accept)], "").await;
        let list = answer.expect(200);
        assert!(answer.header("content-type").contains("as=APIGroupDiscoveryList"));
        let group = |item: &Value, version: &Value| match item["metadata"]["name"].as_str() {
            Some(group) => json!(format!("{group}/{}", version["version"].as_str().unwrap())),
            None => version["version"].clone(),
        };
        for item in list["items"].as_array().unwrap() {
            for version in item["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    let name = resource["resource"].as_str().unwrap();
                    aggregated.push(format!("{} {name} {}", group(item, version), resource["verbs"]));
                    for part in resource["subresources"].as_array().into_iter().flatten() {
                        let part_name = part["subresource"].as_str().unwrap();
                        aggregated.push(format!(
                            "{} {name}/{part_name} {}",
                            group(item, version),
                            part["verbs"]
                        ));
                    }
                }
            }
        }
    }
    plain.sort();
    aggregated.sort();
    assert_eq!(plain, aggregated);
    assert!(plain.iter().any(|line| line.starts_with("\"v1\" pods/eviction")), "required by kubectl drain");
}

#[tokio::test]
async fn unchanged_document_is_not_sent() {
    let client = Client::new();
    for path in ["/api", "/apis", "/apis/apps/v1", "/version"] {
        let first = client.get(path).await;
        first.expect(200);
        let again = client.call("GET", path, &[("if-none-match", first.header("etag"))], "").await;
        assert_eq!((again.code, again.text.as_str()), (304, ""), "{path}");
    }
}

#[tokio::test]
async fn discovery_has_hashes_of_storage_versions() {
    let client = Client::new();
    let hash = async |path: &str, name: &str| {
        let list = client.get(path).await.expect(200);
        let resources = list["resources"].as_array().unwrap();
        let resource = resources.iter().find(|resource| resource["name"] == name).unwrap();
        resource["storageVersionHash"].clone()
    };
    // As kube-apiserver.
    assert_eq!(hash("/apis/apps/v1", "deployments").await, "8aSe+NMegvE=");
    assert_eq!(hash("/api/v1", "pods").await, "xPOwRZ+Yhw8=");
    assert_eq!(hash("/apis/apps/v1", "deployments/scale").await, Value::Null);
}

#[tokio::test]
async fn invalid_timeout_is_refused() {
    let message = Client::new().get("/version?timeout=soon").await.refused(400, "BadRequest");
    assert_eq!(message, "invalid timeout specified in the request URL - time: invalid duration \"soon\"");
}

#[tokio::test]
async fn version_and_health() {
    let client = Client::with(|config| config.advertise_version = "v1.31.4+x".to_owned());
    let version = client.get("/version?timeout=5s").await.expect(200);
    assert_eq!(
        (&version["major"], &version["minor"], &version["gitVersion"]),
        (&json!("1"), &json!("31"), &json!("v1.31.4+x"))
    );
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        let answer = client.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"));
    }
}

#[tokio::test]
async fn reviews_allow_everything() {
    let client = Client::new();
    let question = json!({"spec": {"resourceAttributes": {"verb": "create", "resource": "deployments", "group": "apps"}}});
    let answer =
        client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question).await.expect(201);
    assert_eq!((&answer["status"]["allowed"], &answer["spec"]), (&json!(true), &question["spec"]));
    let who = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    assert_eq!(who["status"]["userInfo"]["username"], "system:admin");
    let token = json!({"spec": {"token": "x"}});
    let answer = client.post("/apis/authentication.k8s.io/v1/tokenreviews", &token).await.expect(201);
    assert_eq!(answer["status"], json!({"user": {}, "error": "invalid bearer token"}));
    client
        .get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .await
        .refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn audit_records_user_and_request() {
    let events: Arc<Mutex<Vec<AuditEvent>>> = Arc::default();
    let sink = Arc::clone(&events);
    let client = Client::with(|config| {
        config.audit = Some(Arc::new(move |event: &AuditEvent| sink.lock().unwrap().push(event.clone())));
    });
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    client.get(&format!("{DEPLOYMENTS}/nope/scale")).await.refused(404, "NotFound");
    client.get(&format!("{DEPLOYMENTS}?limit=5")).await.expect(200);
    client.get("/version").await.expect(200);
    let events = events.lock().unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let object = event.object.as_ref();
            let object =
                object.map(|object| format!("{}/{}/{}", object.resource, object.name, object.subresource));
            (event.verb, object.unwrap_or_default(), event.code, event.user_agent.as_str())
        })
        .collect();
    let expected = [
        ("create", "deployments//".to_owned(), 201, "test/1"),
        ("get", "deployments/nope/scale".to_owned(), 404, "test/1"),
        ("list", "deployments//".to_owned(), 200, "test/1"),
        ("get", String::new(), 200, "test/1"),
    ];
    assert_eq!(told, expected);
    assert_eq!(events[0].request_object, Some(deployment("web")));
    assert_eq!(events[0].uri, DEPLOYMENTS);
    assert!(events[1].failure.as_ref().unwrap().is_not_found());
}

#[tokio::test]
async fn review_is_not_a_table() {
    let client = Client::new();
    let (path, body) = (
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "{\"kind\":\"SelfSubjectReview\",\"apiVersion\":\"authentication.k8s.io/v1\"}",
    );
    for (accept, code) in [
        ("application/json;as=Table;g=meta.k8s.io;v=v1", 406),
        ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", 201),
        ("application/vnd.kubernetes.protobuf,application/json", 201),
        ("application/json", 201),
    ] {
        let headers = [("accept", accept), ("content-type", "application/json")];
        assert_eq!(client.call("POST", path, &headers, body).await.code, code, "{accept}");
    }
}

#[tokio::test]
async fn health_checks_are_listed() {
    let client = Client::new();
    assert_eq!(client.get("/readyz").await.text, "ok");
    assert_eq!(
        client.get("/livez?verbose&exclude=etcd").await.text,
        "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\nlivez check passed\n"
    );
    let ready = client.get("/readyz?verbose").await.text;
    assert!(
        ready.starts_with("[+]ping ok\n") && ready.ends_with("\n[+]shutdown ok\nreadyz check passed\n"),
        "{ready}"
    );
}

/// `kubectl auth can-i --list` of 1.32 and 1.33.
#[tokio::test]
async fn rules_review_may_be_protobuf() {
    let client = Client::new();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"}});
    let body = kcm_apiserver::protobuf::encode(&review).unwrap();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    let reviewed = client.call("POST", path, &headers, body).await.expect(201);
    assert_eq!(reviewed["status"]["resourceRules"][0]["verbs"], json!(["*"]));
}

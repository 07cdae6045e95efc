//! Tokens of service accounts.

use std::{sync::Arc, time::Duration};

use http::Request;
use http_body_util::{BodyExt, Full};
use kcm_apiserver::{ApiServer, Program, User};
use serde_json::{Value, json};

use crate::client::Client;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A client with the accounts `robot` and `other`.
async fn client() -> Client {
    let client = Client::new();
    for name in ["robot", "other"] {
        client.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await.expect(201);
    }
    client
}

async fn token(client: &Client, account: &str, spec: Value) -> String {
    let path = format!("{ACCOUNTS}/{account}/token");
    let answer = client.post(&path, &json!({ "spec": spec })).await.expect(201);
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns the user that the server authenticates, or the code of the refusal.
async fn user(client: &Client, token: &str) -> Result<Value, u16> {
    let authorization = format!("Bearer {token}");
    let answer = client.call("POST", SELF_REVIEWS, &[("authorization", &authorization)], "{}").await;
    if answer.code == 201 { Ok(answer.json()["status"]["userInfo"].take()) } else { Err(answer.code) }
}

async fn review(client: &Client, token: &str, audiences: &[&str]) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    client.post(REVIEWS, &body).await.expect(201)["status"].take()
}

/// Returns the error of a review, with the UIDs left out.
async fn refused(client: &Client, token: &str) -> String {
    assert_eq!(user(client, token).await, Err(401));
    let error = review(client, token, &[]).await["error"].as_str().unwrap().to_owned();
    let words = error.split(' ').map(|word| if word.matches('-').count() == 4 { "UID" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn user_of_a_token() {
    let client = client().await;
    let robot = token(&client, "robot", json!({})).await;
    let found = user(&client, &robot).await.unwrap();
    assert_eq!(found["username"], "system:serviceaccount:default:robot");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(found["groups"], json!(groups));
    let id = found["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(id.starts_with("JTI="), "{id}");
    let status = review(&client, &robot, &[]).await;
    assert_eq!((&status["authenticated"], &status["user"]), (&json!(true), &found));
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    // Other clients of a server without tokens are administrators.
    assert_eq!(user(&client, "unknown").await.unwrap()["username"], "system:admin");
}

#[tokio::test]
async fn token_is_for_its_audiences() {
    let client = client().await;
    let robot = token(&client, "robot", json!({"audiences": ["x", "y"]})).await;
    assert_eq!(
        refused(&client, &robot).await,
        "[invalid bearer token, token audiences [\"x\" \"y\"] is invalid for the target audiences \
         [\"https://kubernetes.default.svc.cluster.local\"]]"
    );
    let status = review(&client, &robot, &["y", "z"]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["y"])));
}

#[tokio::test]
async fn token_expires() {
    let client = client().await;
    let robot = token(&client, "robot", json!({"expirationSeconds": 600})).await;
    client.clock.step(Duration::from_secs(660));
    user(&client, &robot).await.unwrap();
    client.clock.step(Duration::from_secs(1));
    assert_eq!(refused(&client, &robot).await, "[invalid bearer token, service account token has expired]");
}

#[tokio::test]
async fn token_ends_with_its_account() {
    let client = client().await;
    let robot = token(&client, "robot", json!({})).await;
    client.delete(&format!("{ACCOUNTS}/robot"), &Value::Null).await.expect(200);
    assert_eq!(refused(&client, &robot).await, "[invalid bearer token, serviceaccounts \"robot\" not found]");
    client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    assert_eq!(
        refused(&client, &robot).await,
        "[invalid bearer token, service account UID UID does not match claim UID"
    );
    user(&client, &token(&client, "other", json!({})).await).await.unwrap();
}

#[tokio::test]
async fn token_ends_with_the_bound_object() {
    let client = client().await;
    let secret = json!({"metadata": {"name": "s"}});
    client.post(SECRETS, &secret).await.expect(201);
    let bound = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}});
    let robot = token(&client, "robot", bound).await;
    user(&client, &robot).await.unwrap();
    client.delete(&format!("{SECRETS}/s"), &Value::Null).await.expect(200);
    assert_eq!(
        refused(&client, &robot).await,
        "[invalid bearer token, service account token has been invalidated]"
    );
    client.post(SECRETS, &secret).await.expect(201);
    assert_eq!(
        refused(&client, &robot).await,
        "[invalid bearer token, secret UID UID does not match service account secret ref claim UID"
    );
}

#[tokio::test]
async fn token_of_a_pod_names_pod_and_node() {
    let client = client().await;
    let spec = json!({"serviceAccountName": "robot", "nodeName": "gone", "containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let pod = client.post(crate::client::PODS, &pod).await.expect(201);
    let bound = json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let robot = token(&client, "robot", bound).await;
    let extra = user(&client, &robot).await.unwrap()["extra"].take();
    let of = |key| &extra[format!("authentication.kubernetes.io/{key}")];
    assert_eq!((of("pod-name"), of("node-name")), (&json!(["p"]), &json!(["gone"])));
    assert_eq!((of("pod-uid"), of("node-uid")), (&json!([pod["metadata"]["uid"]]), &Value::Null));
    // The lifetime that kubelets request is extended.
    client.clock.step(Duration::from_secs(24 * 60 * 60));
    user(&client, &robot).await.unwrap();
}

#[tokio::test]
async fn tokens_beside_those_of_users() {
    let users = |server: &Arc<ApiServer>| {
        server.service().with_program(Program {
            users: Some(Arc::new(|token| Some(User::admin()).filter(|_| token == "admin"))),
            ..Program::default()
        })
    };
    let client = Client::of(users, |config| config.rbac = true);
    let send = async |method: &str, path: &str, token: &str, body: Value| {
        let authorization = format!("Bearer {token}");
        let request = Request::builder().method(method).uri(path).header("authorization", authorization);
        let response = client.send(request.body(Full::from(body.to_string())).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    send("POST", ACCOUNTS, "admin", json!({"metadata": {"name": "robot"}})).await;
    let (code, answer) = send("POST", &format!("{ACCOUNTS}/robot/token"), "admin", json!({})).await;
    assert_eq!(code, 201);
    let robot = answer["status"]["token"].as_str().unwrap();
    let (code, answer) = send("GET", SECRETS, robot, Value::Null).await;
    let expected = "secrets is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \
                    \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, answer["message"].as_str()), (403, Some(expected)));
    let forged = format!("{}AAAA", &robot[..robot.len() - 4]);
    for unknown in ["other", &forged] {
        assert_eq!(send("GET", SECRETS, unknown, Value::Null).await.0, 401);
    }
    let review = async |token: &str, audiences: &[&str]| {
        let body = json!({"spec": {"token": token, "audiences": audiences}});
        send("POST", REVIEWS, "admin", body).await.1["status"].take()
    };
    assert_eq!(review("admin", &[]).await["user"]["username"], "system:admin");
    assert_eq!(review("admin", &["z"]).await, json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(review(&forged, &[]).await["error"], "invalid bearer token");
}

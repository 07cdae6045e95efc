//! Requests and the handling of responses, with a scripted server in simulated time.

mod metrics;
mod service_accounts;
mod watches;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::StreamExt;
use http::Method;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_client::{ApiClient, ClientMetrics, ClientOptions, DeleteOptions, RateLimit, Request, RequestInfo};
use kcm_clock::{Clock, SimulatedClock, Timestamp};
use kcm_informer::{ListOptions, ListWatchError, ListWatchErrorKind, WatchEvent, WatchOptions};
use kcm_testkit::{FakeApiServer, FakeResponse, RecordedRequest};
use serde_json::{Value, json};

use crate::support::{Clients as _, Sources as _, options};

fn scripted(responses: impl IntoIterator<Item = FakeResponse>) -> FakeApiServer {
    FakeApiServer::scripted(responses)
}

fn ok(body: impl ToString) -> FakeResponse {
    FakeResponse::ok(body)
}

fn refused(code: u16, retry_after: Option<&'static str>) -> FakeResponse {
    let failure = FakeResponse::failure(code, "", "refused");
    retry_after.into_iter().fold(failure, |failure, seconds| failure.header("retry-after", seconds))
}

fn post() -> Request {
    Request::json(Method::POST, "/api/v1/namespaces/default/pods", "{}")
}

fn pod(name: &str, version: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version}})
}

fn event(type_: &str, object: &Value) -> String {
    format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n")
}

mod retries {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn post_504_is_sent_once() {
        for retry_after in [None, Some("1")] {
            let server = scripted([refused(504, retry_after), ok("{}")]);
            let error = server.client().send(&post()).await.unwrap_err();
            assert_eq!(error.code(), Some(504));
            assert_eq!(server.requests().len(), 1, "Retry-After: {retry_after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn post_with_broken_connection_is_sent_once() {
        let server = scripted([FakeResponse::reset(), ok("{}")]);
        let error = server.client().send(&post()).await.unwrap_err();
        let ApiError::Transport(message) = error else { panic!("{error:?}") };
        assert_eq!(
            message.to_string(),
            "POST /api/v1/namespaces/default/pods: connection reset by the script"
        );
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn headers_are_those_of_the_last_attempt() {
        let first = refused(429, Some("1")).header("warning", "299 - \"first\"");
        let second = ok("{\"a\":1}").header("warning", "299 - \"second\"");
        let server = scripted([first, second]);
        let (headers, body) = server.client().send_with_headers(&Request::get("/version")).await.unwrap();
        assert_eq!(headers.get_all("warning").iter().collect::<Vec<_>>(), ["299 - \"second\""]);
        assert_eq!(body, "{\"a\":1}");
    }

    #[tokio::test(start_paused = true)]
    async fn named_create_is_retried_for_ten_seconds() {
        let create = Request::create("/api/v1/namespaces/default/pods", r#"{"metadata":{"name":"web"}}"#);
        let server = scripted([FakeResponse::reset(), FakeResponse::reset(), ok("{}")]);
        server.client().send(&create).await.unwrap();
        let seconds: Vec<_> = server.requests().iter().map(|seen| seen.at.as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2]);

        let server = scripted((0..20).map(|_| FakeResponse::reset()));
        let error = server.client().send(&create).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport(_)), "{error:?}");
        assert_eq!(server.requests().last().unwrap().at.as_secs(), 10);

        for refusal in [refused(500, None), refused(504, None), refused(409, Some("1"))] {
            let server = scripted([refusal, ok("{}")]);
            server.client().send(&create).await.unwrap_err();
            assert_eq!(server.requests().len(), 1);
        }
    }

    /// The first attempt may have used up the quota that refuses the second one, or may be executed later.
    #[tokio::test(start_paused = true)]
    async fn refusal_after_a_lost_attempt_is_not_definite() {
        let create = Request::create("/api/v1/namespaces/default/pods", r#"{"metadata":{"name":"web"}}"#);
        for first in [FakeResponse::reset(), refused(504, Some("1"))] {
            let server = scripted([first, refused(403, None)]);
            let error = server.client().send(&create).await.unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), (Some(403), "refused"));
            assert!(error.may_have_taken_effect() && !error.is_definite_refusal());
        }
        let server = scripted([refused(429, Some("1")), refused(403, None)]);
        assert!(server.client().send(&create).await.unwrap_err().is_definite_refusal());
    }

    #[tokio::test(start_paused = true)]
    async fn post_429_is_retried_after_the_requested_delay() {
        let server = scripted([refused(429, Some("3")), refused(429, Some("2")), ok("{}")]);
        server.client().send(&post()).await.unwrap();
        let seconds: Vec<_> = server.requests().iter().map(|seen| seen.at.as_secs()).collect();
        assert_eq!(seconds, [0, 3, 5]);
        assert!(server.requests().iter().all(|seen| seen.body == "{}"));
    }

    #[tokio::test(start_paused = true)]
    async fn post_429_without_retry_after_is_sent_once() {
        let server = scripted([refused(429, None), ok("{}")]);
        assert!(server.client().send(&post()).await.unwrap_err().is_too_many_requests());
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn get_is_sent_eleven_times() {
        let server = scripted((0..20).map(|_| refused(503, Some("1"))));
        let error = server.client().send(&Request::get("/x")).await.unwrap_err();
        assert_eq!(error.code(), Some(503));
        assert_eq!(error.retry_after_seconds(), Some(1));
        assert_eq!(server.requests().len(), 11);
    }

    #[tokio::test(start_paused = true)]
    async fn get_with_broken_connection_is_retried() {
        let server = scripted([FakeResponse::reset(), ok("{}")]);
        server.client().send(&Request::get("/x")).await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_response_times_out() {
        let server = scripted([FakeResponse::pending()]);
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let error = patient(&server).send(&post()).await.unwrap_err();
        assert!(matches!(error, ApiError::Timeout(_)), "{error:?}");
        assert_eq!(error.to_string(), "POST /api/v1/namespaces/default/pods: request timed out");
        assert_eq!(clock.monotonic(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_response_times_out() {
        let server = scripted([FakeResponse::endless(["{".to_owned()])]);
        let error = patient(&server).send(&Request::get("/x")).await.unwrap_err();
        assert!(matches!(error, ApiError::Timeout(_)), "{error:?}");
    }

    /// Client whose requests time out after a minute.
    fn patient(server: &FakeApiServer) -> ApiClient {
        server.factory().with_timeout(Duration::from_secs(60)).client("test", RateLimit::UNLIMITED)
    }

    #[tokio::test(start_paused = true)]
    async fn no_timeout_by_default() {
        for answer in [FakeResponse::pending(), FakeResponse::endless(["{".to_owned()])] {
            let server = scripted([answer]);
            let (client, request) = (server.client(), post());
            tokio::time::timeout(Duration::from_secs(3600), client.send(&request)).await.unwrap_err();
        }
    }
}

mod rate_limit {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clones_share_it() {
        let server = scripted((0..8).map(|_| ok(json!({"metadata": {}}))));
        let factory = server.factory();
        let one = factory.client("one", RateLimit { qps: 1.0, burst: 1 });
        let other = factory.client("other", RateLimit { qps: 1.0, burst: 1 });
        one.send(&post()).await.unwrap();
        one.clone().send(&post()).await.unwrap();
        one.send(&post()).await.unwrap();
        other.send(&post()).await.unwrap();
        let seconds: Vec<_> = server.requests().iter().map(|seen| seen.at.as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_takes_no_token() {
        let server = scripted((0..5).map(|_| FakeResponse::endless([])));
        let client = server.factory().client("one", RateLimit { qps: 0.001, burst: 1 });
        let pods = client.pods();
        for _ in 0..5 {
            drop(pods.watch(&WatchOptions::default()).await.unwrap());
        }
        assert!(server.requests().iter().all(|seen| seen.at.is_zero()));
    }
}

#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<String>>);

impl ClientMetrics for Recorded {
    fn throttled(&self, request: RequestInfo<'_>, waited: Duration) {
        self.0.lock().unwrap().push(format!("{} {} waited {waited:?}", request.client, request.method));
    }

    fn answered(&self, request: RequestInfo<'_>, code: Option<u16>, took: Duration) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{} {} answered {code:?} after {took:?}", request.client, request.method));
    }

    fn retried(&self, request: RequestInfo<'_>, code: Option<u16>) {
        self.0.lock().unwrap().push(format!("{} {} retried {code:?}", request.client, request.method));
    }
}

mod objects {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_and_media_types() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "future": 1,
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "7"},
            "spec": {"template": {"spec": {"new": [true]}}}, "status": {},
        });
        // As it comes in a list.
        let replica_set = json!({
            "metadata": {"namespace": "shop", "name": "web-1", "resourceVersion": "8"},
            "spec": {"template": {"spec": {}}}, "status": {"replicas": 0},
        });
        let server = scripted([
            ok(&deployment),
            ok(&deployment),
            ok(&deployment),
            ok(&replica_set),
            ok(&replica_set),
            ok(&replica_set),
            ok("{}"),
            ok("{}"),
        ]);
        let client = server.client();
        let key = ObjectKey::new("shop", "web");
        let deployments = client.api::<Deployment>();
        let whole = deployments.get(&key).await.unwrap();
        deployments.replace(&whole).await.unwrap();
        deployments.replace_status(&whole).await.unwrap();
        let set: ReplicaSet = serde_json::from_value(replica_set).unwrap();
        let replica_sets = client.api::<ReplicaSet>().namespaced("shop");
        replica_sets.create(&set).await.unwrap();
        replica_sets.replace(&set).await.unwrap();
        replica_sets.replace_status(&set).await.unwrap();
        let defaults = DeleteOptions::default();
        replica_sets.delete("web-1", &defaults).await.unwrap();
        client.api::<Pod>().delete(&ObjectKey::new("shop", "web-1-x"), &defaults).await.unwrap();

        let seen = server.requests();
        assert_eq!(
            server.request_lines(),
            [
                "GET /apis/apps/v1/namespaces/shop/deployments/web",
                "PUT /apis/apps/v1/namespaces/shop/deployments/web",
                "PUT /apis/apps/v1/namespaces/shop/deployments/web/status",
                "POST /apis/apps/v1/namespaces/shop/replicasets",
                "PUT /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "PUT /apis/apps/v1/namespaces/shop/replicasets/web-1/status",
                "DELETE /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "DELETE /api/v1/namespaces/shop/pods/web-1-x",
            ]
        );
        let body = |at: usize| seen[at].json();
        assert_eq!(body(1), deployment, "nothing is lost");
        assert_eq!(body(3)["kind"], "ReplicaSet", "an item of a list gets its type back");
        assert_eq!(body(3)["apiVersion"], "apps/v1");
        assert_eq!(body(7), json!({"kind": "DeleteOptions", "apiVersion": "v1"}));
        for seen in &seen {
            let header = |name| seen.header(name);
            let agent = header("user-agent").unwrap();
            assert!(
                agent.starts_with("test-binary/v1.2.3 (") && agent.ends_with(") kubernetes/abcdef0/test"),
                "{agent}"
            );
            let accept = match seen.method {
                // The response is not read.
                Method::DELETE => {
                    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
                }
                _ => "application/json",
            };
            assert_eq!(header("accept"), Some(accept));
            assert_eq!(header("accept-encoding"), None);
            assert_eq!(header("content-type"), (seen.method != Method::GET).then_some("application/json"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn error_contains_the_status() {
        let body = json!({
            "kind": "Status", "status": "Failure", "message": "forbidden: terminating", "reason": "Forbidden", "code": 403,
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "m", "field": "f"}]},
        });
        let server = scripted([FakeResponse::new(403, body)]);
        let error = server
            .client()
            .api::<Pod>()
            .namespaced("a")
            .delete("b", &DeleteOptions::default())
            .await
            .unwrap_err();
        assert!(error.is_forbidden() && error.is_namespace_terminating());
        assert_eq!(error.to_string(), "forbidden: terminating");
    }

    #[tokio::test(start_paused = true)]
    async fn decode_error_contains_the_request() {
        let server = scripted([ok(r#"{"metadata": "secret"}"#)]);
        let error = server.client().api::<Deployment>().namespaced("a").get("b").await.unwrap_err();
        let ApiError::Decode(message) = error else { panic!("{error:?}") };
        assert!(
            message
                .to_string()
                .starts_with("GET /apis/apps/v1/namespaces/a/deployments/b: failed to decode the response: ")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn find_lists_by_name() {
        let bad = json!({"metadata": {"namespace": "default", "name": "web-1", "labels": 5}});
        let server =
            scripted([page(&[pod("web-1", "1")], "9", ""), page(&[], "9", ""), page(&[bad], "9", "")]);
        let key = ObjectKey::new("default", "web-1");
        let pods = server.client().api::<Pod>();
        assert_eq!(pods.find(&key).await.unwrap().unwrap().key, key);
        assert!(pods.find(&key).await.unwrap().is_none());
        assert!(matches!(pods.find(&key).await, Err(ApiError::Decode(_))));
        let path = "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dweb-1&limit=500";
        assert!(server.requests().iter().all(|seen| seen.uri == path), "{:?}", server.requests());
    }
}

fn page(items: &[Value], version: &str, next: &str) -> FakeResponse {
    ok(json!({"kind": "PodList", "metadata": {"resourceVersion": version, "continue": next}, "items": items}))
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.key.to_string()).collect()
}

mod lists {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn newest_state_is_read_in_pages() {
        let server =
            scripted([page(&[pod("a", "1"), pod("b", "2")], "9", "t/1="), page(&[pod("c", "3")], "9", "")]);
        let list = server.client().pods().list(&ListOptions::default()).await.unwrap();
        assert_eq!(names(&list.items), ["default/a", "default/b", "default/c"]);
        assert_eq!(list.resource_version, "9");
        let paths: Vec<_> = server.requests().into_iter().map(|seen| seen.uri).collect();
        assert_eq!(paths, ["/api/v1/pods?limit=500", "/api/v1/pods?limit=500&continue=t%2F1%3D"]);
    }

    #[tokio::test(start_paused = true)]
    async fn given_version_is_read_at_once() {
        let server = scripted([page(&[], "9", "")]);
        let options = ListOptions { resource_version: Some("0".to_owned()) };
        let list = server.client().pods().list(&options).await.unwrap();
        assert!(list.items.is_empty());
        assert_eq!(server.requests()[0].uri, "/api/v1/pods?resourceVersion=0");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_token_leads_to_a_full_list() {
        let gone = FakeResponse::failure(410, "Expired", "too old");
        let server = scripted([
            page(&[pod("a", "1")], "5", "t"),
            gone,
            page(&[pod("a", "1"), pod("b", "2")], "9", ""),
        ]);
        let list = server.client().pods().list(&ListOptions::default()).await.unwrap();
        assert_eq!(names(&list.items), ["default/a", "default/b"]);
        assert_eq!(list.resource_version, "9");
        assert_eq!(server.requests()[2].uri, "/api/v1/pods");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_version() {
        let server = scripted([FakeResponse::failure(410, "Expired", "too old")]);
        let options = ListOptions { resource_version: Some("3".to_owned()) };
        let error = server.client().pods().list(&options).await.unwrap_err();
        assert_eq!(error.kind(), ListWatchErrorKind::Expired);
    }

    #[tokio::test(start_paused = true)]
    async fn undecodable_object() {
        let bad =
            json!({"metadata": {"namespace": "default", "name": "bad", "resourceVersion": "2", "labels": 5}});
        let server = scripted([page(&[pod("a", "1"), bad, pod("c", "3")], "9", "")]);
        let list = server.client().pods().list(&ListOptions::default()).await.unwrap();
        assert_eq!(names(&list.items), ["default/a", "default/c"]);
        assert_eq!(list.undecodable.len(), 1);
        assert_eq!(list.undecodable[0].name, "default/bad");
    }

    #[tokio::test(start_paused = true)]
    async fn null_items() {
        let server = scripted([ok(r#"{"metadata": {"resourceVersion": "1"}, "items": null}"#)]);
        let list = server.client().deployments().list(&ListOptions::default()).await.unwrap();
        assert!(list.items.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn not_a_list() {
        let server = scripted([ok("<html>")]);
        let error = server.client().pods().list(&ListOptions::default()).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(ApiError::Decode(_))), "{error:?}");
    }
}

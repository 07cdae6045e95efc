use super::*;

/// Records paths, attempts and sizes.
#[derive(Debug, Default)]
struct Sizes(Mutex<Vec<String>>);

impl Sizes {
    fn note(&self, request: RequestInfo<'_>, what: &str) {
        let RequestInfo { path, attempt, watch, .. } = request;
        let watch = if watch { " watch" } else { "" };
        self.0.lock().unwrap().push(format!("{path} #{attempt}{watch} {what}"));
    }
}

impl ClientMetrics for Sizes {
    fn answered(&self, request: RequestInfo<'_>, code: Option<u16>, _: Duration) {
        self.note(request, &format!("answered {code:?}"));
    }

    fn denied(&self, request: RequestInfo<'_>) {
        self.note(request, "denied");
    }

    fn sent(&self, request: RequestInfo<'_>, bytes: usize) {
        self.note(request, &format!("sent {bytes}"));
    }

    fn received(&self, request: RequestInfo<'_>, bytes: usize) {
        self.note(request, &format!("received {bytes}"));
    }

    fn finished(&self, request: RequestInfo<'_>, took: Duration) {
        self.note(request, &format!("finished {took:?}"));
    }
}

fn with_sizes(server: &FakeApiServer) -> (Arc<Sizes>, ApiClient) {
    let recorded = Arc::new(Sizes::default());
    let options = ClientOptions { metrics: Arc::clone(&recorded) as _, ..options(server.clock()) };
    (recorded, server.factory_with(options).client("one", RateLimit { qps: 0.1, burst: 1 }))
}

#[tokio::test(start_paused = true)]
async fn sizes_and_duration() {
    let server = scripted([refused(429, Some("1")), ok("{}")]);
    let (recorded, client) = with_sizes(&server);
    client.send(&Request::post("/api/v1/pods?dryRun=All", "12345")).await.unwrap();
    let recorded = recorded.0.lock().unwrap();
    assert_eq!(recorded[..2], ["/api/v1/pods #1 sent 5", "/api/v1/pods #1 answered Some(429)"]);
    assert!(recorded[2].starts_with("/api/v1/pods #1 received "), "{recorded:?}");
    // A second for the server, nine more for the token that the second attempt takes.
    assert_eq!(
        recorded[3..],
        [
            "/api/v1/pods #2 sent 5",
            "/api/v1/pods #2 answered Some(200)",
            "/api/v1/pods #2 received 2",
            "/api/v1/pods #2 finished 10s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn denied_requests() {
    let refusal = |message: &str| {
        let status = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message});
        FakeResponse::new(403, status)
    };
    let server = scripted([
        refusal(
            r#"pods is forbidden: User "kcm" cannot create resource "pods" in API group "" at the cluster scope"#,
        ),
        refusal(r#"pods "web-1" is forbidden: exceeded quota: few"#),
    ]);
    let (recorded, client) = with_sizes(&server);
    for denied in [1, 0] {
        client.send(&post()).await.unwrap_err();
        let recorded = std::mem::take(&mut *recorded.0.lock().unwrap());
        assert_eq!(
            recorded.iter().filter(|line| line.ends_with("#1 denied")).count(),
            denied,
            "{recorded:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_request() {
    let server = scripted([FakeResponse::pending(), FakeResponse::endless([])]);
    let (recorded, client) = with_sizes(&server);
    tokio::time::timeout(Duration::from_secs(60), client.send(&post())).await.unwrap_err();
    assert!(recorded.0.lock().unwrap().iter().any(|line| line.ends_with("answered None")), "{recorded:?}");
    recorded.0.lock().unwrap().clear();
    drop(client.pods().watch(&WatchOptions::default()).await.unwrap());
    assert_eq!(
        *recorded.0.lock().unwrap(),
        ["/api/v1/pods #1 watch sent 0", "/api/v1/pods #1 watch answered Some(200)"]
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_and_waits() {
    let server = scripted([refused(429, Some("1")), ok("{}"), ok("{}")]);
    let recorded = Arc::new(Recorded::default());
    let options = ClientOptions { metrics: Arc::clone(&recorded) as _, ..options(server.clock()) };
    let client = server.factory_with(options).client("one", RateLimit { qps: 0.1, burst: 2 });
    client.send(&post()).await.unwrap();
    client.send(&post()).await.unwrap();
    assert_eq!(
        *recorded.0.lock().unwrap(),
        [
            "one POST waited 0ns",
            "one POST answered Some(429) after 0ns",
            "one POST retried Some(429)",
            "one POST waited 0ns",
            "one POST answered Some(200) after 0ns",
            "one POST waited 9s",
            "one POST answered Some(200) after 0ns",
        ]
    );
}

use super::*;

const TOKEN: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts/web-controller/token";

fn token(text: &str, expires: &str) -> FakeResponse {
    ok(json!({"status": {"token": text, "expirationTimestamp": expires}}))
}

async fn as_service_account(server: &FakeApiServer) -> ApiClient {
    let root = server.client();
    let factory = server.factory().with_service_accounts("kube-system", root).await.unwrap();
    factory.controller_client("web-controller", RateLimit::UNLIMITED)
}

fn authorizations(server: &FakeApiServer) -> Vec<(String, Option<String>)> {
    let text = |seen: &RecordedRequest| (seen.to_string(), seen.header("authorization").map(str::to_owned));
    server.requests().iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn account_is_created_and_token_renewed() {
    let server = scripted([
        refused(404, None),
        ok("{}"),
        token("first", "1970-01-01T01:00:00Z"),
        ok("{}"),
        ok("{}"),
        ok("{}"),
        token("second", "1970-01-01T02:00:00Z"),
        ok("{}"),
    ]);
    let client = as_service_account(&server).await;
    let read = Request::get("/api/v1/pods");
    client.send(&read).await.unwrap();
    server.clock().sleep(Duration::from_secs(47 * 60)).await;
    client.send(&read).await.unwrap();
    server.clock().sleep(Duration::from_secs(2 * 60)).await;
    client.send(&read).await.unwrap();

    let account = "/api/v1/namespaces/kube-system/serviceaccounts";
    let with = |token: &str| ("GET /api/v1/pods".to_owned(), Some(format!("Bearer {token}")));
    assert_eq!(
        authorizations(&server),
        [
            (format!("GET {account}/web-controller"), None),
            (format!("POST {account}"), None),
            (TOKEN.to_owned(), None),
            with("first"),
            with("first"),
            (format!("GET {account}/web-controller"), None),
            (TOKEN.to_owned(), None),
            with("second"),
        ]
    );
    let agent = server.requests()[3].header("user-agent").unwrap().to_owned();
    assert!(agent.ends_with("/system:serviceaccount:kube-system:web-controller"), "{agent}");
}

#[tokio::test(start_paused = true)]
async fn rejected_token_is_replaced() {
    let server = scripted([
        ok("{}"),
        token("first", "1970-01-01T01:00:00Z"),
        refused(401, None),
        ok("{}"),
        token("second", "1970-01-01T01:00:00Z"),
        ok("{}"),
    ]);
    let client = as_service_account(&server).await;
    assert_eq!(client.send(&post()).await.unwrap_err().code(), Some(401));
    client.send(&post()).await.unwrap();
    let last = authorizations(&server).pop().unwrap();
    assert_eq!(last.1.as_deref(), Some("Bearer second"));
}

#[tokio::test(start_paused = true)]
async fn request_is_not_sent_without_token() {
    let server = scripted(std::iter::repeat_with(|| refused(403, None)).take(8));
    let client = as_service_account(&server).await;
    let error = client.send(&post()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to get token for kube-system/web-controller: refused");
    assert!(!error.is_forbidden(), "that would be said of the request itself");
    let seconds: Vec<_> = server.requests().iter().map(|seen| seen.at.as_millis()).collect();
    assert_eq!(seconds, [0, 500, 1500, 3500]);
}

#[tokio::test(start_paused = true)]
async fn token_is_kept_if_renewal_fails() {
    let first = token("first", "1970-01-01T01:00:00Z");
    let refusals = std::iter::repeat_with(|| refused(500, None)).take(4);
    let script: Vec<_> = [ok("{}"), first, ok("{}")].into_iter().chain(refusals).chain([ok("{}")]).collect();
    let server = scripted(script);
    let client = as_service_account(&server).await;
    client.send(&post()).await.unwrap();
    server.clock().sleep(Duration::from_secs(49 * 60)).await;
    client.send(&post()).await.unwrap();
    let last = authorizations(&server).pop().unwrap();
    assert_eq!(last.1.as_deref(), Some("Bearer first"));
}

#[tokio::test(start_paused = true)]
async fn error_does_not_contain_the_token() {
    let strange =
        || ok(r#"{"status": {"token": "secret\nsecret", "expirationTimestamp": "1970-01-01T01:00:00Z"}}"#);
    let other = || ok(r#"{"status": {"token": "secret"}}"#);
    let server = scripted([ok("{}"), strange(), ok("{}"), strange(), ok("{}"), strange(), ok("{}"), other()]);
    let error = as_service_account(&server).await.send(&post()).await.unwrap_err().to_string();
    assert!(error.ends_with("/web-controller/token: the response is not a TokenRequest"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

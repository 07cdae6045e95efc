//! Authentication and authorization.

use super::*;

#[tokio::test]
async fn anonymous_users_can_read_health_only() {
    let world = world().await;
    for is_http1 in [false, true] {
        let client = Client { is_http1, ..Client::default() };
        let seen = client.get(&world, "/healthz").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "ok"));
        assert_eq!(seen.header(header::CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(seen.header(header::CACHE_CONTROL), "no-cache, private");
        assert_eq!(seen.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        let seen = client.get(&world, "/metrics?a=1").await;
        assert_eq!((seen.status, seen.body), (403, forbidden("system:anonymous", "get", "/metrics")));
        assert_eq!(seen.headers[header::CONTENT_TYPE], "application/json");
        assert_eq!(seen.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(client.get(&world, "/nowhere").await.status, 403);
    }
    let post = Client { method: Method::POST, ..Client::default() };
    let seen = post.get(&world, "/api/v1/pods").await;
    assert_eq!((seen.status, seen.body), (403, forbidden("system:anonymous", "post", "/api/v1/pods")));
}

#[tokio::test]
async fn errors_are_formatted_for_people() {
    let world = world().await;
    let curl = Client { headers: vec![("user-agent", "curl/7.88.1".to_owned())], ..Client::default() };
    let expected = r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
  "reason": "Forbidden",
  "details": {},
  "code": 403
}"#;
    let seen = curl.get(&world, "/metrics").await;
    assert_eq!(seen.body, expected);
    assert_eq!(seen.header(header::CONTENT_LENGTH), "224");
}

#[tokio::test]
async fn tokens_are_reviewed_and_authorized() {
    let world = world().await;
    let alice = Client::with_token("good");
    let seen = alice.get(&world, "/metrics").await;
    assert_eq!((seen.status, seen.body.as_str()), (200, "up 1\n"));
    let spec = json!({
        "user": "alice", "groups": ["dev", "system:authenticated"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!(last_spec(&world.api), spec);
    assert_eq!(alice.get(&world, "/%6detrics").await.status, 200, "percent-encoded path");
    assert_eq!(count(&world.api, "subjectaccessreviews"), 1);
    let seen = alice.get(&world, "/nowhere").await;
    assert_eq!((seen.status, seen.body), (403, forbidden("alice", "get", "/nowhere")));
    let seen = Client::with_token("poor").get(&world, "/metrics").await;
    assert_eq!((seen.status, seen.body), (403, forbidden("bob", "get", "/metrics")));
    for path in ["/metrics", "/healthz"] {
        let seen = Client::with_token("bad").get(&world, path).await;
        assert_eq!((seen.status, seen.body.as_str()), (401, UNAUTHORIZED));
        assert_eq!(seen.headers[header::CONTENT_TYPE], "application/json");
        assert_eq!(seen.headers.get(header::X_CONTENT_TYPE_OPTIONS), None);
    }
}

#[tokio::test]
async fn reviews_are_cached_for_their_ttl() {
    let world = world().await;
    for _ in 0..3 {
        assert_eq!(Client::with_token("good").get(&world, "/metrics").await.status, 200);
        assert_eq!(Client::with_token("bad").get(&world, "/metrics").await.status, 401);
        assert_eq!(Client::default().get(&world, "/metrics").await.status, 403);
    }
    assert_eq!((count(&world.api, "tokenreviews"), count(&world.api, "subjectaccessreviews")), (2, 2));
    world.clock.step(TTL);
    assert_eq!(Client::with_token("good").get(&world, "/metrics").await.status, 200);
    assert_eq!((count(&world.api, "tokenreviews"), count(&world.api, "subjectaccessreviews")), (3, 3));
}

#[tokio::test]
async fn reasons_are_returned_and_api_server_errors_are_500() {
    let world = world().await;
    let client = Client::with_token("good");
    world.api.set_handler(|request| match request.path().ends_with("tokenreviews") {
        true => ordinary(request),
        false => FakeResponse::new(201, json!({"status": {"allowed": false, "reason": "because"}})),
    });
    let seen = client.get(&world, "/a").await;
    assert!(seen.body.contains(r#"cannot get path \"/a\": because""#), "{}", seen.body);

    let failures = [
        (500, "".to_owned()),
        (403, "".to_owned()),
        (429, "".to_owned()),
        (201, "garbage <secret>".to_owned()),
        (201, json!({"status": {"allowed": true, "denied": true}}).to_string()),
    ];
    for (at, (code, answer)) in failures.into_iter().enumerate() {
        let before = count(&world.api, "subjectaccessreviews");
        world.api.set_handler(move |_| FakeResponse::new(code, &answer));
        let path = format!("/b{at}?x=1&y");
        let seen = hurried(&world, Client::default(), &path).await;
        assert_eq!(seen.status, 500, "{code}");
        let begins = format!("Internal Server Error: \"/b{at}?x=1&amp;y\": ");
        assert!(seen.body.starts_with(&begins) && seen.body.ends_with('\n'), "{}", seen.body);
        assert!(!seen.body.contains("secret"));
        assert_eq!(seen.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let reviews = count(&world.api, "subjectaccessreviews") - before;
        assert_eq!(reviews, if matches!(code, 500 | 429) { 5 } else { 1 }, "{code}");
        let seen = hurried(&world, Client::with_token("new"), "/healthz").await;
        assert_eq!(seen.status, 401, "{code}");
    }
    world.api.set_handler(ordinary);
    assert_eq!(client.get(&world, "/metrics").await.status, 200, "errors are not cached");
}

#[tokio::test]
async fn without_an_api_server_tokens_are_ignored() {
    let world = Setup { has_client: false, ..Setup::new() }.start().await;
    let client = Client::with_token("good");
    assert_eq!(client.get(&world, "/healthz").await.status, 200, "the token is ignored");
    let seen = client.get(&world, "/metrics").await;
    assert_eq!((seen.status, seen.body), (403, forbidden("system:anonymous", "get", "/metrics")));
}

#[tokio::test]
async fn client_certificates_authenticate() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new("ca"), Authority::new("ca"));
    let path = directory.path().join("ca.crt");
    fs::write(&path, authority.pem()).unwrap();
    let mut setup = Setup::new();
    setup.authentication.client_ca_file = Some(path.clone());
    setup.authentication.skip_lookup = true;
    let world = setup.start().await;

    let masters = Client::with_certificate(authority.client("boss", "system:masters"));
    assert_eq!(masters.get(&world, "/nowhere").await.body, "404 page not found\n");
    assert_eq!(count(&world.api, "reviews"), 0, "system:masters is always authorized");

    let alice = Client::with_certificate(authority.client("alice", "dev"));
    assert_eq!(alice.get(&world, "/metrics").await.status, 200);
    let spec = last_spec(&world.api);
    assert_eq!(spec["groups"], json!(["dev", "system:authenticated"]));
    let id = spec["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert_eq!(id.strip_prefix("X509SHA256=").unwrap().len(), 64);

    // A certificate of another CA is invalid. A valid token takes precedence over the error.
    let forged = Client::with_certificate(stranger.client("boss", "system:masters"));
    for path in ["/metrics", "/healthz"] {
        assert_eq!(forged.get(&world, path).await.body, UNAUTHORIZED);
    }
    let with_token = Client { headers: Client::with_token("good").headers, ..forged.clone() };
    assert_eq!(with_token.get(&world, "/metrics").await.status, 200);
    // A valid certificate takes precedence over a token.
    let both = Client { headers: Client::with_token("good").headers, ..masters };
    assert_eq!(both.get(&world, "/nowhere").await.status, 404);

    // The CA bundle is reloaded.
    fs::write(&path, stranger.pem()).unwrap();
    world.clock.step(Duration::from_secs(1));
    assert_eq!(forged.get(&world, "/nowhere").await.status, 404);
    assert_eq!(alice.get(&world, "/metrics").await.status, 401);
}

#[tokio::test]
async fn expired_client_certificate_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let path = directory.path().join("ca.crt");
    fs::write(&path, authority.pem()).unwrap();
    let mut setup = Setup::new();
    setup.authentication.client_ca_file = Some(path);
    let world = setup.start().await;
    let boss = Client::with_certificate(authority.client("boss", "system:masters"));
    assert_eq!(boss.get(&world, "/nowhere").await.status, 404);
    world.clock.set_wall("5000-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(boss.get(&world, "/nowhere").await.status, 401);
}

#[tokio::test]
async fn expired_ca_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::until("ca", 2030), Authority::new("ca"));
    let path = directory.path().join("ca.crt");
    let start = async |bundle: &str| {
        fs::write(&path, bundle).unwrap();
        let mut setup = Setup::new();
        setup.authentication.client_ca_file = Some(path.clone());
        setup.authentication.request_header = RequestHeaderOptions {
            client_ca_file: Some(path.clone()),
            allowed_names: vec!["front-proxy".to_owned()],
            ..RequestHeaderOptions::default()
        };
        setup.start().await
    };
    let headers = vec![("x-remote-user", "boss".to_owned()), ("x-remote-group", "system:masters".to_owned())];
    let client = |authority: &Authority| Client::with_certificate(authority.client("boss", "system:masters"));
    let proxy = |authority: &Authority| Client {
        headers: headers.clone(),
        ..Client::with_certificate(authority.client("front-proxy", "x"))
    };
    // During a rotation, the bundle contains both CAs.
    for (bundle, after) in [(old.pem(), [401, 401]), (old.pem() + &new.pem(), [401, 404])] {
        let world = start(&bundle).await;
        for make in [&client as &dyn Fn(&Authority) -> Client, &proxy] {
            world.clock.set_wall("2029-12-31T00:00:00Z".parse().unwrap());
            assert_eq!(make(&old).get(&world, "/nowhere").await.status, 404);
            world.clock.set_wall("2030-01-02T00:00:00Z".parse().unwrap());
            let seen = [make(&old).get(&world, "/nowhere").await, make(&new).get(&world, "/nowhere").await];
            assert_eq!(seen.map(|seen| seen.status), after);
        }
    }
}

#[tokio::test]
async fn client_certificates_are_ignored_without_a_ca_bundle() {
    let world = Setup { has_client: false, ..Setup::new() }.start().await;
    let client = Client::with_certificate(Authority::new("ca").client("boss", "system:masters"));
    assert_eq!(client.get(&world, "/healthz").await.status, 200);
    assert_eq!(client.get(&world, "/metrics").await.status, 403);
}

#[tokio::test]
async fn authenticating_proxy_sets_the_user() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("proxies");
    let path = directory.path().join("ca.crt");
    fs::write(&path, authority.pem()).unwrap();
    let mut setup = Setup::new();
    setup.authentication.request_header = RequestHeaderOptions {
        client_ca_file: Some(path),
        allowed_names: vec!["front-proxy".to_owned()],
        ..RequestHeaderOptions::default()
    };
    let world = setup.start().await;
    let headers = vec![
        ("x-remote-user", "alice".to_owned()),
        ("x-remote-group", "dev".to_owned()),
        ("x-remote-extra-scopes", "a".to_owned()),
    ];
    let proxy = Client { headers, ..Client::with_certificate(authority.client("front-proxy", "x")) };
    assert_eq!(proxy.get(&world, "/metrics").await.status, 200);
    let spec = json!({
        "user": "alice", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["a"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!(last_spec(&world.api), spec);
    // Another name is not allowed, and without a certificate the headers are ignored.
    let other = Client { certificate: Some(authority.client("other", "x")), ..proxy.clone() };
    assert_eq!(other.get(&world, "/metrics").await.status, 401);
    let anonymous = Client { certificate: None, ..proxy };
    let seen = anonymous.get(&world, "/metrics").await;
    assert_eq!((seen.status, seen.body), (403, forbidden("system:anonymous", "get", "/metrics")));
}

#[tokio::test]
async fn ca_bundles_are_read_from_the_cluster_and_reloaded() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let config_map = |authority: &Authority| {
        let data = json!({
            "client-ca-file": authority.pem(),
            "requestheader-client-ca-file": authority.pem(),
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        });
        json!({ "data": data }).to_string()
    };
    let setup = Setup::new();
    let answer = config_map(&first);
    setup.api.set_handler(move |request| {
        match request.path().ends_with("extension-apiserver-authentication") {
            true => FakeResponse::ok(&answer),
            false => ordinary(request),
        }
    });
    let world = setup.start().await;
    let boss = Client::with_certificate(first.client("boss", "system:masters"));
    assert_eq!(boss.get(&world, "/nowhere").await.status, 404);
    let headers = vec![("x-remote-user", "boss".to_owned()), ("x-remote-group", "system:masters".to_owned())];
    let proxy = Client { headers, ..Client::with_certificate(first.client("front-proxy", "x")) };
    assert_eq!(proxy.get(&world, "/nowhere").await.status, 404);

    // Invalid contents keep the previous CA bundles.
    for (code, answer, expected) in [
        (500, String::new(), 404),
        (200, json!({"data": {"client-ca-file": "x"}}).to_string(), 404),
        (200, config_map(&second), 401),
    ] {
        world.api.set_handler(move |_| FakeResponse::new(code, &answer));
        until_looked_up(&world).await;
        assert_eq!(boss.get(&world, "/nowhere").await.status, expected, "{code}");
    }
}

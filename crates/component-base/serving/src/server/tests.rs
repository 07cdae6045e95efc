//! Tests with clients on sockets. Bodies and headers were recorded from kube-controller-manager v1.36.2.

mod access;
mod chains;
mod flood;
mod http2;
mod memory;
mod waiting;
mod world;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use http::{Method, header};
use kcm_testkit::{CertificateAuthority as Authority, FakeResponse, Identity};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use self::world::{Client, Seen, Setup, World, count, last_spec, ordinary};
use super::SHUTDOWN_TIMEOUT;
use crate::{
    Access, AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, SniCertKey, TlsVersion,
};

const TTL: Duration = Duration::from_secs(10);

const UNAUTHORIZED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
    \"message\":\"Unauthorized\",\"reason\":\"Unauthorized\",\"code\":401}\n";

async fn world() -> World {
    Setup::new().start().await
}

fn forbidden(user: &str, verb: &str, path: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\
        \"message\":\"forbidden: User \\\"{user}\\\" cannot {verb} path \\\"{path}\\\"\",\
        \"reason\":\"Forbidden\",\"details\":{{}},\"code\":403}}\n"
    )
}

/// Steps the clock until `future` completes, so that timeouts expire at once.
async fn hurry<T>(world: &World, future: impl Future<Output = T>) -> T {
    step_until(world, Duration::from_millis(1), future).await
}

/// Steps the clock by `step` each time that this task yields, until `future` completes.
async fn step_until<T>(world: &World, step: Duration, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            done = &mut future => return done,
            () = tokio::task::yield_now() => world.clock.step(step),
        }
    }
}

/// Response to `client`. Timeouts expire at once.
async fn hurried(world: &World, client: Client, path: &str) -> Seen {
    let stream = client.connect(world.address, "localhost").await.unwrap();
    hurry(world, client.request(stream, path)).await
}

/// Waits until the cluster's CA bundles have been read again.
async fn until_looked_up(world: &World) {
    let reads = || count(&world.api, "extension-apiserver-authentication");
    let before = reads();
    let again = async {
        while reads() == before {
            tokio::task::yield_now().await;
        }
    };
    hurry(world, again).await;
    // The response has been sent. Let the server process it.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

// Requests.

#[tokio::test]
async fn head_has_no_body() {
    let world = world().await;
    for is_http1 in [false, true] {
        let client = Client { method: Method::HEAD, is_http1, ..Client::default() };
        let seen = client.get(&world, "/healthz").await;
        assert_eq!((seen.status, seen.body.as_str(), seen.header(header::CONTENT_LENGTH)), (200, "", "2"));
    }
}

#[tokio::test]
async fn panicking_handler_is_500() {
    let mut setup = Setup::new();
    setup.authorization.always_allow_paths.push("/panic".to_owned());
    let world = setup.start().await;
    for _ in 0..2 {
        let seen = Client::default().get(&world, "/panic").await;
        let text = "This request caused apiserver to panic. Look in the logs for details.\n";
        assert_eq!((seen.status, seen.body.as_str()), (500, text));
    }
    assert_eq!(Client::default().get(&world, "/healthz").await.status, 200);
}

#[tokio::test]
async fn handlers_get_small_bodies_and_no_credentials() {
    let mut setup = Setup::new();
    setup.authorization.always_allow_paths.push("/echo".to_owned());
    let world = setup.start().await;
    let put = |length: usize| {
        let headers =
            [Client::with_token("good").headers, vec![("x-remote-user", "eve".to_owned())]].concat();
        Client { method: Method::PUT, headers, body: vec![b'x'; length].into(), ..Client::default() }
    };
    let seen = put(3).get(&world, "/echo").await;
    assert!(seen.body.starts_with("b\"xxx\""), "{}", seen.body);
    assert!(!seen.body.contains("good") && !seen.body.contains("eve"), "{}", seen.body);
    let seen = put(64 * 1024 + 1).get(&world, "/echo").await;
    assert_eq!((seen.status, seen.body.as_str()), (413, "request body is too large\n"));
}

#[tokio::test]
async fn bodies_of_other_routes_are_not_read() {
    let world = world().await;
    let client = Client { is_http1: true, ..Client::default() };
    for request in [
        "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n",
        "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n",
    ] {
        let mut stream = client.connect(world.address, "localhost").await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = String::new();
        // The server closes the connection without a timeout: the clock does not advance.
        stream.read_to_string(&mut answer).await.unwrap();
        let expected =
            if request.contains("/healthz") { "HTTP/1.1 200 OK" } else { "HTTP/1.1 403 Forbidden" };
        assert!(answer.starts_with(expected), "{request}{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
    // Complete bodies of any size are ignored.
    for is_http1 in [false, true] {
        for length in [1, 1024 * 1024] {
            let body = vec![b'x'; length].into();
            let client = Client { method: Method::POST, is_http1, body, ..Client::default() };
            let seen = client.get(&world, "/healthz").await;
            assert_eq!((seen.status, seen.body.as_str()), (200, "ok"));
        }
    }
}

#[tokio::test]
async fn anonymous_connection_is_closed_after_one_response() {
    let world = world().await;
    for (token, is_open) in [("bad", false), ("good", true)] {
        let stream = Client::default().connect(world.address, "localhost").await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
        let mut connection = tokio::spawn(connection);
        let request = http::Request::get("https://localhost/metrics")
            .header("authorization", format!("Bearer {token}"));
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let status = send.send_request(request).await.unwrap().status();
        assert_eq!(status.is_success(), is_open);
        if is_open {
            assert!(!connection.is_finished() && send.is_ready());
        } else {
            (&mut connection).await.unwrap().unwrap();
        }
    }
}

// Certificates.

fn serving_certificate(stream: &tokio_rustls::client::TlsStream<TcpStream>) -> crate::tls::Name {
    crate::tls::Name::of(&stream.get_ref().1.peer_certificates().unwrap()[0]).unwrap()
}

#[tokio::test]
async fn serving_certificate_is_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    let write = |name: &str| {
        let Identity { certificate: certificate_pem, key: key_pem, .. } = authority.server(&[name]);
        fs::write(&certificate, certificate_pem).unwrap();
        fs::write(&key, key_pem).unwrap();
    };
    write("one.example");
    let mut setup = Setup::new();
    setup.serving.tls_cert_file = Some(certificate.clone());
    setup.serving.tls_private_key_file = Some(key.clone());
    let world = setup.start().await;
    let served = async || {
        let stream = Client::default().connect(world.address, "localhost").await.unwrap();
        serving_certificate(&stream).common_name
    };
    assert_eq!(served().await, "one.example");
    write("two.example");
    world.clock.step(Duration::from_secs(1));
    assert_eq!(served().await, "two.example");
    // A certificate that does not match its key.
    fs::write(&certificate, authority.server(&["three.example"]).certificate).unwrap();
    world.clock.step(Duration::from_secs(1));
    assert_eq!(served().await, "two.example");
    fs::remove_file(&key).unwrap();
    world.clock.step(Duration::from_secs(1));
    assert_eq!(served().await, "two.example");
    write("four.example");
    world.clock.step(Duration::from_secs(1));
    assert_eq!(served().await, "four.example");
}

#[tokio::test]
async fn serving_certificate_follows_the_server_name() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let pair = |file: &str, names: &[&str], given: &[&str]| {
        let [cert_file, key_file] = ["crt", "key"].map(|end| directory.path().join(format!("{file}.{end}")));
        let Identity { certificate, key, .. } = authority.server(names);
        fs::write(&cert_file, certificate).unwrap();
        fs::write(&key_file, key).unwrap();
        SniCertKey { cert_file, key_file, names: given.iter().map(|&name| name.to_owned()).collect() }
    };
    let mut setup = Setup::new();
    setup.serving.tls_sni_cert_keys =
        vec![pair("a", &["a.example", "*.wild.example"], &[]), pair("b", &["b.example"], &["given.example"])];
    let world = setup.start().await;
    for (name, expected) in [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("x.wild.example", "a.example"),
        ("given.example", "b.example"),
        ("b.example", "localhost@"),
        ("x.y.wild.example", "localhost@"),
        ("127.0.0.1", "localhost@"),
    ] {
        let stream = Client::default().connect(world.address, name).await.unwrap();
        let served = serving_certificate(&stream).common_name;
        assert!(served.starts_with(expected), "{name}: {served}");
    }
}

#[tokio::test]
async fn tls12_follows_the_minimum_version() {
    let old = Client { is_old: true, ..Client::default() };
    let mut setup = Setup::new();
    setup.serving.tls_cipher_suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned()];
    let world = setup.start().await;
    let stream = old.connect(world.address, "localhost").await.unwrap();
    let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    assert_eq!(old.request(stream, "/healthz").await.status, 200);
    let mut setup = Setup::new();
    setup.serving.tls_min_version = Some(TlsVersion::Tls13);
    let world = setup.start().await;
    assert!(old.connect(world.address, "localhost").await.is_err());
    assert_eq!(Client::default().get(&world, "/healthz").await.status, 200);
}

#[tokio::test]
async fn unspecified_address_serves_both_families() {
    for address in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let mut setup = Setup::new();
        setup.serving.bind_address = address;
        let world = setup.start().await;
        for local in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let to = (local, world.address.port()).into();
            let stream = Client::default().connect(to, "localhost").await.unwrap();
            assert_eq!(Client::default().request(stream, "/healthz").await.body, "ok", "{address} {local}");
        }
    }
}

#[tokio::test]
async fn http2_can_be_disabled() {
    let mut setup = Setup::new();
    setup.serving.disable_http2 = true;
    let world = setup.start().await;
    assert!(Client::default().connect(world.address, "localhost").await.is_err());
    let client = Client { is_http1: true, ..Client::default() };
    assert_eq!(client.get(&world, "/healthz").await.status, 200);
}

// Errors at startup.

#[tokio::test]
async fn port_in_use_is_an_error_unless_shared() {
    let mut setup = Setup::new();
    setup.serving.permit_port_sharing = true;
    let first = setup.bind().await.unwrap();
    setup.serving.secure_port = first.local_addr().port();
    assert_eq!(setup.bind().await.unwrap().local_addr(), first.local_addr());
    setup.serving.permit_port_sharing = false;
    let error = setup.bind().await.unwrap_err().to_string();
    let begins = format!("failed to listen on {}: ", first.local_addr());
    assert!(error.starts_with(&begins) && error.lines().count() == 1, "{error}");
}

#[tokio::test]
async fn errors_name_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broken");
    fs::write(&path, "users: [{token: secret").unwrap();
    let fails = async |change: &dyn Fn(&mut Setup)| {
        let mut setup = Setup::new();
        change(&mut setup);
        setup.bind().await.unwrap_err().to_string()
    };
    let error = fails(&|setup| setup.authentication.client_ca_file = Some(path.clone())).await;
    assert_eq!(error, format!("client CA file {path:?}: no certificate found"));
    let error =
        fails(&|setup| setup.authentication.request_header.client_ca_file = Some("/no/such".into())).await;
    assert!(error.starts_with("request-header client CA file \"/no/such\": No such file"), "{error}");
    let error = fails(&|setup| setup.authorization.always_allow_paths = vec!["/a*b".to_owned()]).await;
    assert_eq!(error, "only trailing * allowed in \"a*b\"");

    let client = kcm_client::ClientOptions::new(
        kcm_client::UserAgent::new("test", "v0", "0"),
        std::sync::Arc::new(kcm_clock::FakeClock::new(world::NOW.parse().unwrap())),
    );
    for (purpose, authentication, authorization) in
        [("authentication", Some(path.clone()), None), ("authorization", None, Some(path.clone()))]
    {
        let authentication = AuthenticationOptions { kubeconfig: authentication, ..Default::default() };
        let authorization = AuthorizationOptions { kubeconfig: authorization, ..Default::default() };
        let error = Access::connect(&authentication, &authorization, &client).await.unwrap_err().to_string();
        let begins = format!("failed to get delegated {purpose} kubeconfig: kubeconfig {path:?}: ");
        assert!(error.starts_with(&begins) && error.lines().count() == 1, "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn failed_lookup_is_fatal_or_retried() {
    let forbidden =
        json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403});
    let mut setup = Setup::new();
    setup.api.set_handler(move |_| FakeResponse::new(403, &forbidden));
    let error = setup.bind().await.unwrap_err().to_string();
    let begins =
        "unable to load configmap based request-header-client-ca-file: no (usually fixed by 'kubectl";
    assert!(error.starts_with(begins), "{error}");
    setup.authentication.tolerate_lookup_failure = true;
    let authority = Authority::new("ca");
    let world = setup.start().await;
    let boss = Client::with_certificate(authority.client("boss", "system:masters"));
    assert_eq!(boss.get(&world, "/healthz").await.status, 200, "anonymous");
    let answer = json!({"data": {"client-ca-file": authority.pem()}}).to_string();
    world.api.set_handler(move |_| FakeResponse::new(200, &answer));
    until_looked_up(&world).await;
    assert_eq!(boss.get(&world, "/nowhere").await.status, 404);
    for gone in [FakeResponse::new(404, ""), FakeResponse::new(200, json!({"data": {}}))] {
        world.api.set_handler(move |_| gone.clone());
        until_looked_up(&world).await;
        assert_eq!(boss.get(&world, "/nowhere").await.status, 404, "the CA bundle stays in use");
    }
}

#[tokio::test]
async fn names_of_proxies_are_not_kept_with_their_ca() {
    let authority = Authority::new("ca");
    let setup = Setup::new();
    let answer = json!({"data": {
        "requestheader-client-ca-file": authority.pem(),
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
    }})
    .to_string();
    setup.api.set_handler(move |_| FakeResponse::new(200, &answer));
    let world = setup.start().await;
    let headers = vec![("x-remote-user", "eve".to_owned()), ("x-remote-group", "system:masters".to_owned())];
    let proxy = Client { headers, ..Client::with_certificate(authority.client("proxy", "")) };
    assert_eq!(proxy.get(&world, "/nowhere").await.status, 404);
    world.api.set_handler(|_| FakeResponse::new(200, json!({"data": {"client-ca-file": ""}})));
    until_looked_up(&world).await;
    assert_eq!(
        proxy.get(&world, "/nowhere").await.status,
        500,
        "the user is anonymous, and no review is possible"
    );
}

// Misbehaving clients.

#[tokio::test]
async fn garbage_and_plain_http_do_not_affect_others() {
    let world = world().await;
    let mut plain = TcpStream::connect(world.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, expected);
    for garbage in
        [&b"\x00\x01\x02\x03\x04\x05\x06\x07"[..], b"\x16\x03\x01\xff\xffhello", b"nonsense", b"\x16"]
    {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    // Garbage inside TLS, in both protocols.
    for is_http1 in [false, true] {
        let client = Client { is_http1, ..Client::default() };
        let mut stream = client.connect(world.address, "localhost").await.unwrap();
        stream.write_all(&[0xff; 4096]).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(client.get(&world, "/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn slow_handshake_times_out() {
    let world = world().await;
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let mut halfway = TcpStream::connect(world.address).await.unwrap();
    halfway.write_all(b"\x16\x03\x01").await.unwrap();
    hurry(&world, async {
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(halfway.read(&mut [0]).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn http1_connection_may_be_idle_for_a_minute() {
    let world = world().await;
    let mut stream =
        Client { is_http1: true, ..Client::default() }.connect(world.address, "localhost").await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok") {
            assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0, "the connection is closed");
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let world = world().await;
    for is_http1 in [false, true] {
        let client = Client { is_http1, ..Client::default() };
        let mut stream = client.connect(world.address, "localhost").await.unwrap();
        let mut rest = Vec::new();
        let _ = hurry(&world, stream.read_to_end(&mut rest)).await;
    }
}

// Shutdown.

#[tokio::test]
async fn shutdown_closes_idle_and_incomplete_connections() {
    let world = world().await;
    let client = Client { is_http1: true, ..Client::default() };
    let _idle = client.connect(world.address, "localhost").await.unwrap();
    let mut half = client.connect(world.address, "localhost").await.unwrap();
    half.write_all(b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    half.flush().await.unwrap();
    let _silent = TcpStream::connect(world.address).await.unwrap();
    assert_eq!(client.get(&world, "/healthz").await.status, 200);
    world.shutdown.cancel();
    let World { ended, clock, address, .. } = world;
    let mut ended = std::pin::pin!(ended);
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended.unwrap(),
            () = tokio::task::yield_now() => clock.step(SHUTDOWN_TIMEOUT / 100),
        }
    }
    assert!(TcpStream::connect(address).await.is_err());
}

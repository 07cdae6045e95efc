//! Connections and credentials, against real sockets on loopback.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all};
use http::{Method, Version};
use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, RateLimit, Request, Server};
use kcm_clock::{Clock, FakeClock, Sleep, Timestamp};
use kcm_informer::{ListWatchErrorKind, WatchOptions};
use kcm_testkit::CertificateAuthority;

use crate::support::{
    Sources as _,
    files::Files,
    options,
    socket::{Cable, SocketServer},
};

/// Sleeps of up to a second return at once, longer ones never return.
#[derive(Debug)]
struct Impatient;

impl Clock for Impatient {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration <= Duration::from_secs(1) {
            Box::pin(tokio::task::yield_now())
        } else {
            Box::pin(std::future::pending())
        }
    }
}

fn fake() -> FakeClock {
    FakeClock::new(Timestamp::UNIX_EPOCH)
}

async fn client(server: Server, clock: Arc<dyn Clock>) -> ApiClient {
    let factory = ClientFactory::connect(server, options(clock)).await.unwrap();
    factory.client("test", RateLimit::UNLIMITED)
}

async fn plain_client(server: &SocketServer, clock: Arc<dyn Clock>) -> ApiClient {
    client(Server::Master(server.address.to_string()), clock).await
}

const CERTIFICATE: &str = "client-certificate: client.crt, client-key: client.key";

async fn ok(client: &ApiClient) {
    client.send(&Request::get("/ok")).await.unwrap();
}

mod lost_connections {
    use super::*;

    #[tokio::test]
    async fn post_is_sent_once() {
        let server = SocketServer::plain().await;
        let client = plain_client(&server, Arc::new(Impatient)).await;
        // On a connection that has been used: a pool's own idea of a retry would be to take another.
        ok(&client).await;
        let error = client.send(&Request::json(Method::POST, "/break", "{}")).await.unwrap_err();
        let ApiError::Transport(message) = error else { panic!("{error:?}") };
        assert!(
            message.to_string().starts_with(&format!("POST http://{}/break: ", server.address)),
            "{message}"
        );
        let posts = server.requests().iter().filter(|request| request.what == "POST /break").count();
        assert_eq!(posts, 1);
    }

    #[tokio::test]
    async fn get_is_retried_ten_times() {
        let server = SocketServer::plain().await;
        let client = plain_client(&server, Arc::new(Impatient)).await;
        client.send(&Request::get("/break")).await.unwrap_err();
        assert_eq!(server.requests().len(), 11);
    }

    #[tokio::test]
    async fn closed_port_is_an_error_in_one_line() {
        let address = kcm_testkit::unused_address();
        // A clock that never moves: any retry would hang.
        let client = client(Server::Master(address.to_string()), Arc::new(fake())).await;
        let error = client.health().await.unwrap_err();
        assert!(matches!(error, ApiError::NotSent(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.starts_with(&format!("GET http://{address}/healthz: ")), "{error}");
        assert!(error.contains("Connection refused"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn watch_ends_with_an_error() {
        let server = SocketServer::plain().await;
        let client = plain_client(&server, Arc::new(fake())).await;
        let options = WatchOptions { timeout: Duration::from_secs(300), ..WatchOptions::default() };
        let events: Vec<_> = client.pods().watch(&options).await.unwrap().collect().await;
        let [Ok(_), Err(error)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(error.kind(), ListWatchErrorKind::Connection);
    }

    #[tokio::test]
    async fn silent_watch_ends_within_a_minute() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let cable = Cable::to(server.address).await;
        let files = Files::new(&server, &authority, "token: t");
        let path = files.path("kubeconfig");
        let through = Server::Kubeconfig { path, master: Some(cable.address.to_string()) };
        let client = client(through, Arc::new(fake())).await;
        let options = WatchOptions { timeout: Duration::from_secs(300), ..WatchOptions::default() };
        let mut events = client.deployments().watch(&options).await.unwrap();
        events.next().await.unwrap().unwrap();
        cable.cut();
        // From here on only timers are left, so time may fly.
        tokio::time::pause();
        let end = tokio::time::timeout(Duration::from_secs(60), events.next()).await.unwrap().unwrap();
        assert_eq!(end.unwrap_err().kind(), ListWatchErrorKind::Connection);
    }
}

#[tokio::test]
async fn requests_share_one_http2_connection() {
    let authority = CertificateAuthority::new("ca");
    let server = SocketServer::tls(&authority).await;
    let files = Files::new(&server, &authority, "token: t");
    let client = client(files.server(), Arc::new(fake())).await;
    join_all((0..50).map(|_| ok(&client))).await;
    assert_eq!(server.requests().len(), 50);
    assert!(server.requests().iter().all(|request| request.version == Version::HTTP_2));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn watches_have_their_own_connection() {
    let authority = CertificateAuthority::new("ca");
    let server = SocketServer::tls(&authority).await;
    let files = Files::new(&server, &authority, "token: t");
    let client = client(files.server(), Arc::new(fake())).await;
    ok(&client).await;
    let stream = client.pods().watch(&WatchOptions::default()).await.unwrap();
    assert_eq!(server.connections(), 2);
    drop(stream);
}

mod changed_files {
    use super::*;

    #[tokio::test]
    async fn client_certificate_gets_a_new_connection() {
        let authority = CertificateAuthority::new("ca");
        let [first, second, third] = ["first", "second", "third"].map(|name| authority.client(name, "dev"));
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, CERTIFICATE);
        files.write_identity(&first);
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;
        ok(&client).await;

        files.write_identity(&second);
        clock.step(Duration::from_secs(29));
        ok(&client).await;
        clock.step(Duration::from_secs(1));
        ok(&client).await;
        // Also if another file cannot be read.
        files.write_identity(&third);
        files.write("ca.crt", "damaged");
        clock.step(Duration::from_secs(30));
        ok(&client).await;

        let certificates: Vec<_> =
            server.requests().into_iter().map(|request| request.certificate.unwrap()).collect();
        assert_eq!(certificates, [first.der.clone(), first.der, second.der, third.der]);
        assert_eq!(server.connections(), 3);
    }

    #[tokio::test]
    async fn incomplete_client_certificate_is_ignored() {
        let authority = CertificateAuthority::new("ca");
        let (first, second) = (authority.client("first", "dev"), authority.client("second", "dev"));
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, CERTIFICATE);
        files.write_identity(&first);
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;

        // The new certificate with the old key, then nothing at all, then both.
        files.write("client.crt", &second.certificate);
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        std::fs::remove_file(files.path("client.key")).unwrap();
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        files.write_identity(&second);
        clock.step(Duration::from_secs(30));
        ok(&client).await;

        let certificates: Vec<_> =
            server.requests().into_iter().map(|request| request.certificate.unwrap()).collect();
        assert_eq!(certificates, [first.der.clone(), first.der, second.der]);
    }

    #[tokio::test]
    async fn token_file_keeps_the_connection() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "tokenFile: token");
        files.write("token", "old\n");
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;
        ok(&client).await;
        files.write("token", "new\n");
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        let tokens: Vec<_> =
            server.requests().into_iter().map(|request| request.authorization.unwrap()).collect();
        assert_eq!(tokens, ["Bearer old", "Bearer new"]);
        assert_eq!(server.connections(), 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn election_does_not_wait_for_files() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "tokenFile: token");
        files.write("token", "old");
        let clock = fake();
        let factory = ClientFactory::connect(files.server(), options(Arc::new(clock.clone()))).await.unwrap();
        let client = factory.for_election().client("test", RateLimit::UNLIMITED);
        ok(&client).await;
        // Nothing can be read from a pipe that has no writer.
        let pipe = files.path("token");
        std::fs::remove_file(&pipe).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        tokio::task::spawn_blocking(move || std::fs::write(pipe, "new").unwrap()).await.unwrap();
        while server.requests().pop().unwrap().authorization.as_deref() != Some("Bearer new") {
            ok(&client).await;
        }
    }

    /// Tokens of two requests with `tokenFile`. Between them, the token changes, and `damage` is done to another file.
    async fn tokens_with_damage(damage: impl FnOnce(&Files)) -> Vec<String> {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "tokenFile: token");
        files.write("token", "old");
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;
        ok(&client).await;
        damage(&files);
        files.write("token", "new");
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        server.requests().into_iter().map(|request| request.authorization.unwrap()).collect()
    }

    #[tokio::test]
    async fn token_changes_although_another_file_is_damaged() {
        let damages: [fn(&Files); 5] = [
            |files| std::fs::remove_file(files.path("kubeconfig")).unwrap(),
            |files| files.write("kubeconfig", "users: {"),
            |files| files.write_kubeconfig("https://127.0.0.1:1", "token: elsewhere"),
            |files| files.write("ca.crt", ""),
            |files| files.write("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ];
        for damage in damages {
            assert_eq!(tokens_with_damage(damage).await, ["Bearer old", "Bearer new"]);
        }
    }

    #[tokio::test]
    async fn kubeconfig_may_change_token_but_not_server() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: old");
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;
        ok(&client).await;
        files.write_kubeconfig(&format!("https://{}", server.address), "token: new");
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        files.write_kubeconfig("https://127.0.0.1:1", "token: elsewhere");
        clock.step(Duration::from_secs(30));
        ok(&client).await;
        let tokens: Vec<_> =
            server.requests().into_iter().map(|request| request.authorization.unwrap()).collect();
        assert_eq!(tokens, ["Bearer old", "Bearer new", "Bearer new"]);
    }
}

mod configuration {
    use super::*;

    #[tokio::test]
    async fn master_overrides_kubeconfig() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: t");
        files.write_kubeconfig("https://127.0.0.1:1", "token: t");
        let path = files.path("kubeconfig");
        // Without a scheme: there is an authority, so it is https.
        let client =
            client(Server::Kubeconfig { path, master: Some(server.address.to_string()) }, Arc::new(fake()))
                .await;
        ok(&client).await;
        assert_eq!(client.server(), format!("https://{}", server.address));
    }

    #[tokio::test]
    async fn unknown_authority() {
        let server = SocketServer::tls(&CertificateAuthority::new("ca")).await;
        let files = Files::new(&server, &CertificateAuthority::new("ca"), "token: t");
        let client = client(files.server(), Arc::new(fake())).await;
        let error = client.health().await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(server.requests().is_empty());
    }

    #[tokio::test]
    async fn each_connection_verifies_the_certificate() {
        let authority = CertificateAuthority::until("ca", 2000);
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: t");
        let clock = fake();
        let client = client(files.server(), Arc::new(clock.clone())).await;
        ok(&client).await;
        client.send(&Request::json(Method::POST, "/break", "{}")).await.unwrap_err();
        // A session that is resumed has no certificate.
        clock.step(Duration::from_hours(31 * 366 * 24));
        let error = client.send(&Request::json(Method::POST, "/ok", "{}")).await.unwrap_err().to_string();
        assert!(error.contains("Expired"), "{error}");
    }

    #[tokio::test]
    async fn ca_with_insecure_flag_is_refused() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: t");
        let address = format!("https://{}", server.address);
        files.write_kubeconfig_with(&address, ", insecure-skip-tls-verify: true", "token: t");
        let error = refusal(files.server()).await;
        assert!(
            error.ends_with("specifying a root certificates file with the insecure flag is not allowed"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn missing_kubeconfig() {
        let error = refusal(kubeconfig(Path::new("/nowhere/config"))).await;
        assert_eq!(error, "kubeconfig \"/nowhere/config\": No such file or directory (os error 2)");
    }

    #[tokio::test]
    async fn invalid_kubeconfig_is_reported_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let cases = [
            ("users: [{name: u, user: {token: s3cr3t}}\nclusters: {", "not valid YAML at line 2 column"),
            ("users: {token: s3cr3t}", "not valid YAML at line 1 column"),
            ("", "failed to determine current context"),
            ("current-context: c", "failed to load current context: c"),
            (
                "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}]}",
                "failed to load the cluster",
            ),
            (
                "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
             clusters: [{name: k, cluster: {server: 'ftp://x'}}]}",
                "address \"ftp://x/\": the scheme must be http or https",
            ),
            (
                "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
             clusters: [{name: k, cluster: {server: 'https://x', proxy-url: 'ftp://u:s3cr3t@p'}}]}",
                "proxy-url: unsupported scheme of the proxy URL, must be http, https, or socks5",
            ),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            let error = refusal(kubeconfig(&path)).await;
            assert!(error.starts_with(&format!("kubeconfig {path:?}: {expected}")), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn empty_texts_are_no_values() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let user = "token: t, tokenFile: '', username: '', password: '', as: '', client-certificate: '', client-key: ''";
        let files = Files::new(&server, &authority, "");
        files.write_kubeconfig_with(
            &format!("https://{}", server.address),
            ", certificate-authority-data: ''",
            user,
        );
        let client = client(files.server(), Arc::new(fake())).await;
        ok(&client).await;
        assert_eq!(server.requests()[0].authorization.as_deref(), Some("Bearer t"));
    }

    #[tokio::test]
    async fn unsupported_user() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "");
        let exec = |fields| format!("exec: {{command: x, {fields}}}");
        let cases = [
            (
                "auth-provider: {name: gcp, config: {cmd-path: s3cr3t}}".to_owned(),
                "auth-provider is not supported",
            ),
            (
                "token: t, as-uid: u".to_owned(),
                "requesting uid, groups or user-extra without impersonating a user",
            ),
            ("token: t, as-groups: [g]".to_owned(), "requesting uid, groups or user-extra"),
            ("token: t, as-user-extra: {k: [v]}".to_owned(), "requesting uid, groups or user-extra"),
            ("token: \"s3cr3t\\n\"".to_owned(), "the token cannot be sent in a header"),
            ("exec: {apiVersion: client.authentication.k8s.io/v1}".to_owned(), "command must be specified"),
            (exec("apiVersion: client.authentication.k8s.io/v1alpha1"), "exec plugin: invalid apiVersion"),
            (exec("interactiveMode: Never"), "exec plugin: invalid apiVersion"),
            (exec("apiVersion: client.authentication.k8s.io/v1"), "interactiveMode must be specified"),
            (
                exec("apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always"),
                "interactiveMode Always is not supported",
            ),
            (
                exec("apiVersion: client.authentication.k8s.io/v1beta1, env: [{name: '', value: s3cr3t}]"),
                "exec plugin: invalid name of an env variable",
            ),
        ];
        for (user, expected) in cases {
            files.write_kubeconfig(&format!("https://{}", server.address), &user);
            let error = refusal(files.server()).await;
            assert!(error.contains(expected), "{user}: {error}");
        }
    }

    #[tokio::test]
    async fn impersonation_headers() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let user = "token: t, as: jane, as-uid: '7', as-groups: [a, b], \
                as-user-extra: {Example.com/Scope%: [x, y], other: [z]}";
        let files = Files::new(&server, &authority, user);
        let client = client(files.server(), Arc::new(fake())).await;
        ok(&client).await;
        let request = server.requests().remove(0);
        let headers = |name| {
            request.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(request.authorization.as_deref(), Some("Bearer t"));
        assert_eq!(headers("impersonate-user"), ["jane"]);
        assert_eq!(headers("impersonate-uid"), ["7"]);
        assert_eq!(headers("impersonate-group"), ["a", "b"]);
        assert_eq!(headers("impersonate-extra-example.com%2fscope%25"), ["x", "y"]);
        assert_eq!(headers("impersonate-extra-other"), ["z"]);
    }

    #[tokio::test]
    async fn missing_or_invalid_files() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, CERTIFICATE);
        let error = refusal(files.server()).await;
        assert!(error.contains("client.crt") && error.contains("No such file"), "{error}");

        files.write("client.crt", "s3cr3t");
        files.write("client.key", "s3cr3t");
        let error = refusal(files.server()).await;
        assert!(error.contains("PEM"), "{error}");

        files.write("ca.crt", "-----BEGIN CERTIFICATE-----\ns3cr3t\n-----END CERTIFICATE-----\n");
        files.write_kubeconfig(&format!("https://{}", server.address), "tokenFile: absent");
        refusal(files.server()).await;
        files.write("ca.crt", &authority.pem());
        let error = refusal(files.server()).await;
        assert!(error.contains("absent") && error.contains("No such file"), "{error}");

        files.write_kubeconfig(&format!("https://{}", server.address), "tokenFile: empty");
        files.write("empty", "\n");
        let error = refusal(files.server()).await;
        assert!(error.contains("empty\" is empty"), "{error}");
    }

    #[tokio::test]
    async fn empty_authority_file() {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: t");
        for nothing in ["", "s3cr3t"] {
            files.write("ca.crt", nothing);
            let error = refusal(files.server()).await;
            assert!(error.ends_with("ca.crt\": no certificate in it"), "{error}");
        }
        let text = std::fs::read_to_string(files.path("kubeconfig")).unwrap();
        files.write(
            "kubeconfig",
            &text.replace("certificate-authority: ca.crt", "certificate-authority-data: czNjcjN0"),
        );
        let error = refusal(files.server()).await;
        assert!(error.ends_with(": no certificate in certificate-authority-data"), "{error}");
    }
}

// Configurations that lead nowhere.

async fn refusal(server: Server) -> String {
    let error = ClientFactory::connect(server, options(Arc::new(fake()))).await.unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.contains("s3cr3t"), "{error}");
    error
}

fn kubeconfig(path: &Path) -> Server {
    Server::Kubeconfig { path: path.to_owned(), master: None }
}

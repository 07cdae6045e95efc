//! Connections through proxies, on real sockets.

use std::{sync::Arc, time::Duration};

use http::Version;
use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, ProxyEnvironment, RateLimit, Request, Server};
use kcm_clock::{FakeClock, Timestamp};
use kcm_testkit::CertificateAuthority;

use crate::support::{
    files::Files,
    options,
    proxy::{Connect, Mode, TestProxy},
    socket::SocketServer,
};

/// Server name that only a proxy can reach.
const SERVER: &str = "https://api.example:6443";

fn clock() -> FakeClock {
    FakeClock::new(Timestamp::UNIX_EPOCH)
}

fn environment(variables: &[(&str, &str)]) -> ClientOptions {
    let proxy = ProxyEnvironment::read(|name| {
        variables.iter().find(|(its, _)| *its == name).map(|(_, value)| (*value).to_owned())
    });
    ClientOptions { proxy, ..options(Arc::new(clock())) }
}

async fn client(server: Server, options: ClientOptions) -> ApiClient {
    ClientFactory::connect(server, options).await.unwrap().client("test", RateLimit::UNLIMITED)
}

async fn ok(client: &ApiClient) {
    client.send(&Request::get("/ok")).await.unwrap();
}

fn connect(target: &str, credentials: Option<&str>) -> Connect {
    Connect { target: target.to_owned(), credentials: credentials.map(str::to_owned) }
}

struct World {
    authority: CertificateAuthority,
    server: SocketServer,
    files: Files,
}

impl World {
    async fn new() -> Self {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls(&authority).await;
        let files = Files::new(&server, &authority, "token: t");
        files.write_kubeconfig_with(SERVER, ", tls-server-name: 127.0.0.1", "token: t");
        Self { authority, server, files }
    }

    fn set_proxy(&self, url: &str) {
        let cluster = format!(", tls-server-name: 127.0.0.1, proxy-url: '{url}'");
        self.files.write_kubeconfig_with(SERVER, &cluster, "token: t");
    }
}

mod proxy_url {
    use super::*;

    #[tokio::test]
    async fn every_scheme() {
        let world = World::new().await;
        let cases = [
            (Mode::Http, "", None),
            (Mode::Http, "us%65r:p%40ss@", Some("Basic dXNlcjpwQHNz")),
            (Mode::https(&world.authority), "", None),
            (Mode::https(&world.authority), "user:p%40ss@", Some("Basic dXNlcjpwQHNz")),
            (Mode::Socks5, "", None),
            (Mode::Socks5, "user:p%40ss@", Some("user:p@ss")),
        ];
        for (done, (mode, credentials, expected)) in cases.into_iter().enumerate() {
            let proxy = TestProxy::to(&world.server, mode).await;
            world.set_proxy(&proxy.url(credentials));
            let client = client(world.files.server(), environment(&[])).await;
            ok(&client).await;
            ok(&client).await;
            // The name is resolved by the proxy. The connection is used again.
            assert_eq!(proxy.connects(), [connect("api.example:6443", expected)]);
            let requests = world.server.requests();
            assert_eq!(requests.len(), 2 * (done + 1));
            assert!(requests.iter().all(|request| request.version == Version::HTTP_2));
            // The API server sees nothing of the proxy's credentials.
            assert!(requests.iter().all(|request| !request.headers.contains_key("proxy-authorization")));
        }
    }

    #[tokio::test]
    async fn takes_precedence_over_environment() {
        let world = World::new().await;
        let (proxy, other) =
            (TestProxy::to(&world.server, Mode::Http).await, TestProxy::to(&world.server, Mode::Http).await);
        let address = world.server.address;
        let cluster = format!(", proxy-url: '{}'", proxy.url(""));
        world.files.write_kubeconfig_with(&format!("https://{address}"), &cluster, "token: t");
        let variables = [("HTTPS_PROXY", &*other.url("")), ("NO_PROXY", "*")];
        ok(&client(world.files.server(), environment(&variables)).await).await;
        assert_eq!(proxy.connects(), [connect(&address.to_string(), None)]);
        client(world.files.server(), environment(&[("HTTPS_PROXY", "ftp://invalid")])).await;
        assert_eq!(other.connects(), []);
    }

    #[tokio::test]
    async fn unknown_authority_of_https_proxy() {
        let world = World::new().await;
        let proxy = TestProxy::to(&world.server, Mode::https(&CertificateAuthority::new("ca"))).await;
        world.set_proxy(&proxy.url(""));
        let error = client(world.files.server(), environment(&[])).await.health().await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&format!("proxy https://{}", proxy.address)), "{error}");
        assert!(error.contains("certificate"), "{error}");
    }
}

mod environment {
    use super::*;

    #[tokio::test]
    async fn is_used_without_proxy_url() {
        let world = World::new().await;
        let (https, http) =
            (TestProxy::to(&world.server, Mode::Http).await, world.server.address.to_string());
        let variables =
            [("https_proxy", &*https.url("")), ("HTTP_PROXY", &*http), ("NO_PROXY", "example.com")];
        ok(&client(world.files.server(), environment(&variables)).await).await;
        assert_eq!(https.connects(), [connect("api.example:6443", None)]);
    }

    #[tokio::test]
    async fn is_not_used_for_loopback() {
        let world = World::new().await;
        let proxy = TestProxy::to(&world.server, Mode::Http).await;
        world.files.write_kubeconfig(&format!("https://{}", world.server.address), "token: t");
        ok(&client(world.files.server(), environment(&[("HTTPS_PROXY", &proxy.url(""))])).await).await;
        assert_eq!(proxy.connects(), []);
    }

    #[tokio::test]
    async fn invalid_variable() {
        let world = World::new().await;
        let options = environment(&[("HTTPS_PROXY", "ftp://u:s3cr3t@p")]);
        let error = ClientFactory::connect(world.files.server(), options).await.unwrap_err().to_string();
        assert!(error.contains("environment variable HTTPS_PROXY: unsupported scheme"), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}

#[tokio::test]
async fn tunnel_without_tls() {
    let server = SocketServer::plain().await;
    for mode in [Mode::Http, Mode::Socks5] {
        let proxy = TestProxy::to(&server, mode).await;
        let options = environment(&[("HTTP_PROXY", &proxy.url(""))]);
        ok(&client(Server::Master("http://api.example".to_owned()), options).await).await;
        assert_eq!(proxy.connects(), [connect("api.example:80", None)]);
    }
}

mod errors {
    use super::*;

    #[tokio::test]
    async fn rejection_without_credentials() {
        let world = World::new().await;
        let proxy = TestProxy::to(&world.server, Mode::Refuse).await;
        world.set_proxy(&proxy.url("user:s3cr3t@"));
        let error = client(world.files.server(), environment(&[])).await.health().await.unwrap_err();
        assert!(matches!(error, ApiError::NotSent(_)), "{error:?}");
        let error = error.to_string();
        let expected = format!("failed to connect through proxy http://{}: ", proxy.address);
        assert!(error.contains(&expected) && error.contains("proxy authorization required"), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }

    #[tokio::test]
    async fn closed_port() {
        let world = World::new().await;
        let address = kcm_testkit::unused_address();
        for scheme in ["http", "https", "socks5"] {
            world.set_proxy(&format!("{scheme}://{address}"));
            let error =
                client(world.files.server(), environment(&[])).await.health().await.unwrap_err().to_string();
            assert!(error.contains(&format!("proxy {scheme}://{address}: ")), "{error}");
            assert!(error.contains("Connection refused"), "{error}");
        }
    }

    #[tokio::test]
    async fn timeout() {
        let world = World::new().await;
        let proxy = TestProxy::to(&world.server, Mode::Silent).await;
        world.set_proxy(&proxy.url(""));
        let clock = clock();
        let options = options(Arc::new(clock.clone()));
        let client = client(world.files.server(), options).await;
        let steps = async {
            while proxy.connects().is_empty() {
                tokio::task::yield_now().await;
            }
            clock.step(Duration::from_secs(60));
            std::future::pending::<()>().await;
        };
        let error = tokio::select! {
            outcome = client.health() => outcome.unwrap_err(),
            () = steps => unreachable!(),
        };
        assert!(error.to_string().contains("connect timeout"), "{error}");
    }
}

use kcm_clock::{FakeClock, Timestamp};
use kcm_testkit::{CertificateAuthority, Identity};
use tempfile::TempDir;

use super::*;

/// A kubeconfig with a client certificate.
struct Files(TempDir);

impl Files {
    fn new(authority: &CertificateAuthority) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        this.write("ca.crt", &authority.pem());
        this.write(
            "kubeconfig",
            "{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{name: c, context: {cluster: k, user: u}}], \
             clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}], \
             users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]}",
        );
        this
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn write_identity(&self, identity: &Identity) {
        self.write("client.crt", &identity.certificate);
        self.write("client.key", &identity.key);
    }
}

impl Transport {
    fn connections(&self) -> Arc<Route> {
        self.state.lock().route(Lane::Requests).0
    }

    /// `true` if both fire the same trigger.
    fn shares_pings_with(&self, other: &Self) -> bool {
        let connections = other.connections();
        let fired = connections.pool().pings().fired();
        self.connections().pool().pings().fire();
        fired.now_or_never().is_some()
    }
}

/// Connections with a new client certificate share the pings with those of an election that still use the old one.
#[tokio::test]
async fn reload_keeps_the_trigger_of_pings() {
    let authority = CertificateAuthority::new("ca");
    let files = Files::new(&authority);
    files.write_identity(&authority.client("first", "dev"));
    let clock: Arc<dyn Clock> = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let server = Server::Kubeconfig { path: files.0.path().join("kubeconfig"), master: None };
    let main = Transport::new(server, ProxyEnvironment::default(), clock).await.unwrap();
    let election = main.separate();
    assert!(main.shares_pings_with(&election));
    let old = main.connections();
    files.write_identity(&authority.client("second", "dev"));
    main.recheck().await;
    assert!(!Arc::ptr_eq(&old, &main.connections()), "the certificate is not reloaded");
    assert!(main.shares_pings_with(&election));
    assert!(!main.shares_pings_with(&main.anonymous().await.unwrap()));
}

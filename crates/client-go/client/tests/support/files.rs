//! Configuration files of a client.

use std::path::PathBuf;

use kcm_client::Server;
use kcm_testkit::{CertificateAuthority, Identity};
use tempfile::TempDir;

use super::socket::SocketServer;

/// A kubeconfig and the files that it names.
pub struct Files(TempDir);

impl Files {
    pub fn new(server: &SocketServer, authority: &CertificateAuthority, user: &str) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        this.write("ca.crt", &authority.pem());
        this.write_kubeconfig(&format!("https://{}", server.address), user);
        this
    }

    pub fn write_kubeconfig(&self, server: &str, user: &str) {
        self.write_kubeconfig_with(server, "", user);
    }

    /// Writes a kubeconfig with further fields of the cluster, each after a comma.
    pub fn write_kubeconfig_with(&self, server: &str, cluster: &str, user: &str) {
        // Paths in a kubeconfig are relative to it.
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{server}', certificate-authority: ca.crt{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        self.write("kubeconfig", &text);
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn write_identity(&self, identity: &Identity) {
        self.write("client.crt", &identity.certificate);
        self.write("client.key", &identity.key);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn server(&self) -> Server {
        Server::Kubeconfig { path: self.path("kubeconfig"), master: None }
    }
}

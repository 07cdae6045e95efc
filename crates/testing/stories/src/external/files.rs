//! Files for API servers and managers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::cluster::ClusterError;

/// Users of the API server: the story and the manager. Only requests of the manager are audited.
const USERS: [&str; 2] = ["admin", "manager"];

/// Users of the static pods in the manifests. They belong to no group, so their permissions come from roles only.
const STATIC_POD_USERS: [&str; 2] = ["kube-controller-manager-rs", "system:kube-controller-manager"];

/// Audits completed writes of the manager and of service accounts with their bodies, and the start of the manager's
/// watches.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Request
  users: [manager, kube-controller-manager-rs, 'system:kube-controller-manager']
  verbs: [create, update, patch, delete, deletecollection]
  omitStages: [RequestReceived, ResponseStarted]
- level: Request
  userGroups: ['system:serviceaccounts']
  verbs: [create, update, patch, delete, deletecollection]
  omitStages: [RequestReceived, ResponseStarted]
- level: Metadata
  users: [manager]
  verbs: [watch]
  omitStages: [RequestReceived, ResponseComplete]
- level: None
";

/// Directory with the files of an API server and a manager.
#[derive(Debug)]
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.path(&format!("{user}.kubeconfig"))
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.path(&format!("{program}.log"))
    }

    /// Writes tokens, audit policy and the service account key. Removes the data of a previous API server.
    pub(super) fn write_for_server(&self) -> Result<(), ClusterError> {
        // Usually there is nothing to remove.
        let _ = fs::remove_dir_all(self.path("etcd"));
        let _ = fs::remove_file(self.audit_log());
        let masters = USERS.iter().map(|user| format!("{user}token,{user},{user},\"system:masters\"\n"));
        let others = STATIC_POD_USERS.iter().map(|user| format!("{user}token,{user},{user}\n"));
        let tokens: String = masters.chain(others).collect();
        self.write("tokens.csv", &tokens)?;
        self.write("audit.yaml", AUDIT_POLICY)?;
        let key = rcgen::KeyPair::generate()?;
        self.write("sa.key", &key.serialize_pem())?;
        self.write("sa.pub", &key.public_key_pem())
    }

    /// Writes a kubeconfig for each user. The certificate of the local API server is not verified.
    pub(super) fn write_kubeconfigs(&self, server: &str, tokens: bool) -> Result<(), ClusterError> {
        let mut cluster = json!({"server": server});
        if server.starts_with("https") {
            cluster["insecure-skip-tls-verify"] = json!(true);
        }
        for user in USERS.into_iter().chain(STATIC_POD_USERS) {
            let credentials = if tokens { json!({"token": format!("{user}token")}) } else { json!({}) };
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "story",
                "clusters": [{"name": "story", "cluster": cluster}],
                "users": [{"name": user, "user": credentials}],
                "contexts": [{"name": "story", "context": {"cluster": "story", "user": user}}],
            });
            self.write(&format!("{user}.kubeconfig"), &kubeconfig.to_string())?;
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ClusterError> {
        let file = self.path(name);
        fs::write(&file, text)
            .map_err(|source| ClusterError::File { file: file.display().to_string(), source })
    }
}

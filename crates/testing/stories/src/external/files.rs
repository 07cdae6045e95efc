//! The files that servers and managers need.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::world::WorldError;

/// Who comes to the server: the story, and the manager, which alone is written down.
const USERS: [&str; 2] = ["admin", "manager"];

/// Users of the manifests' static pods. They are in no group, so only roles give them rights.
const STATIC_POD_USERS: [&str; 2] = ["kube-controller-manager-rs", "system:kube-controller-manager"];

/// Every write of the manager with its body, once it is answered, by whichever name it comes; and that it watches, once
/// it does.
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

/// The files in one folder.
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

    /// Tokens, the audit policy, and a key to sign tokens with. What an earlier server left is removed.
    pub(super) fn write_for_server(&self) -> Result<(), WorldError> {
        // Mostly there is nothing to remove.
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

    /// A kubeconfig for each user. The server is this machine's own, so its certificate is not looked at.
    pub(super) fn write_kubeconfigs(&self, server: &str, tokens: bool) -> Result<(), WorldError> {
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

    fn write(&self, name: &str, text: &str) -> Result<(), WorldError> {
        let file = self.path(name);
        fs::write(&file, text).map_err(|source| WorldError::File { file: file.display().to_string(), source })
    }
}

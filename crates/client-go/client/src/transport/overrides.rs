//! Values that take precedence over those of kubeconfig files.

use std::{fmt, path::PathBuf};

use kube_client::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};

/// Name of the context, the cluster and the user that result from overrides.
const OVERRIDDEN: &str = "overridden";

/// Values of flags that take precedence over those of kubeconfig files.
///
/// Upstream counterpart: `clientcmd.ConfigOverrides`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigOverrides {
    /// Name of the context. `None` uses the current context.
    pub context: Option<String>,
    /// Name of the cluster. `None` uses that of the context.
    pub cluster: Option<String>,
    /// Name of the user. `None` uses that of the context.
    pub user: Option<String>,
    /// Address of the API server. No kubeconfig file is required then. As upstream, the credentials of kubeconfig files
    /// are not sent to an address with the scheme `http`.
    pub server: Option<String>,
    /// Bearer token.
    ///
    /// DEVIATION: it also takes precedence over a token file. Upstream sends the token of the file.
    pub token: Option<String>,
    /// Name of the user to impersonate.
    pub impersonate: Option<String>,
    /// UID of the user to impersonate.
    pub impersonate_uid: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// Path of the certificates that verify the API server.
    pub certificate_authority: Option<PathBuf>,
    /// If `true`, the certificate of the API server is not verified.
    pub insecure_skip_tls_verify: bool,
    /// Name in the certificate of the API server.
    pub tls_server_name: Option<String>,
}

impl fmt::Debug for ConfigOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, cluster, user, server, impersonate, .. } = self;
        f.debug_struct("ConfigOverrides")
            .field("context", context)
            .field("cluster", cluster)
            .field("user", user)
            .field("server", server)
            .field("impersonate", impersonate)
            .finish_non_exhaustive()
    }
}

impl ConfigOverrides {
    /// Replaces the values of `kubeconfig`.
    ///
    /// # Errors
    ///
    /// If there is no cluster or user of the requested name.
    pub(super) fn apply(&self, kubeconfig: &mut Kubeconfig) -> Result<(), String> {
        if let Some(context) = &self.context {
            kubeconfig.current_context = Some(context.clone());
        }
        if (Self { context: self.context.clone(), ..Self::default() }) == *self {
            return Ok(());
        }
        let context = self.base_context(kubeconfig)?;
        let named = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
        let mut cluster = named.and_then(|named| named.cluster.clone()).unwrap_or_default();
        if named.is_none() && self.cluster.is_some() {
            return Err(format!("cluster {:?} does not exist", context.cluster));
        }
        let user = context.user.clone().unwrap_or_default();
        let named = kubeconfig.auth_infos.iter().find(|named| named.name == user);
        let mut auth = named.and_then(|named| named.auth_info.clone()).unwrap_or_default();
        if named.is_none() && self.user.is_some() {
            return Err(format!("user {user:?} does not exist"));
        }
        self.apply_to_cluster(&mut cluster);
        self.apply_to_user(&mut auth);
        let name = || OVERRIDDEN.to_owned();
        let context = Context { cluster: name(), user: Some(name()), ..context };
        kubeconfig.clusters =
            vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }];
        kubeconfig.auth_infos =
            vec![NamedAuthInfo { name: name(), auth_info: Some(auth), ..NamedAuthInfo::default() }];
        kubeconfig.contexts =
            vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }];
        kubeconfig.current_context = Some(name());
        Ok(())
    }

    /// Returns the context with the requested cluster and user.
    fn base_context(&self, kubeconfig: &Kubeconfig) -> Result<Context, String> {
        let current = kubeconfig.current_context.as_deref().unwrap_or_default();
        let named = kubeconfig.contexts.iter().find(|named| named.name == current);
        if named.is_none() && self.context.is_some() {
            return Err(format!("context {current:?} does not exist"));
        }
        let mut context = named.and_then(|named| named.context.clone()).unwrap_or_default();
        if let Some(cluster) = &self.cluster {
            context.cluster.clone_from(cluster);
        }
        if self.user.is_some() {
            context.user.clone_from(&self.user);
        }
        Ok(context)
    }

    fn apply_to_cluster(&self, cluster: &mut Cluster) {
        if self.server.is_some() {
            cluster.server.clone_from(&self.server);
        }
        // As upstream, one of the two flags replaces all settings of the verification.
        if self.insecure_skip_tls_verify || self.certificate_authority.is_some() {
            let path = |path: &PathBuf| path.to_string_lossy().into_owned();
            cluster.insecure_skip_tls_verify = Some(self.insecure_skip_tls_verify);
            cluster.certificate_authority = self.certificate_authority.as_ref().map(path);
            cluster.certificate_authority_data = None;
        }
        // As upstream, another address has another name.
        if self.server.is_some() || self.tls_server_name.is_some() {
            cluster.tls_server_name.clone_from(&self.tls_server_name);
        }
    }

    fn apply_to_user(&self, auth: &mut AuthInfo) {
        if self.server.as_ref().is_some_and(|server| server.starts_with("http://")) {
            *auth = AuthInfo {
                impersonate: auth.impersonate.take(),
                impersonate_uid: auth.impersonate_uid.take(),
                impersonate_groups: auth.impersonate_groups.take(),
                impersonate_user_extra: auth.impersonate_user_extra.take(),
                ..AuthInfo::default()
            };
        }
        if let Some(token) = &self.token {
            auth.token = Some(token.clone().into());
            auth.token_file = None;
        }
        if self.impersonate.is_some() {
            auth.impersonate.clone_from(&self.impersonate);
        }
        if self.impersonate_uid.is_some() {
            auth.impersonate_uid.clone_from(&self.impersonate_uid);
        }
        if !self.impersonate_groups.is_empty() {
            auth.impersonate_groups = Some(self.impersonate_groups.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
current-context: a
clusters:
- name: a
  cluster: { server: "https://a:6443", certificate-authority-data: QQ==, tls-server-name: inner }
- name: b
  cluster: { server: "https://b:6443" }
users:
- name: a
  user: { tokenFile: /token, as: alice, as-groups: [one] }
- name: b
  user: { username: bob }
contexts:
- name: a
  context: { cluster: a, user: a, namespace: shop }
"#;

    /// The current cluster and user with the overrides.
    fn applied(overrides: &ConfigOverrides) -> Result<(Cluster, AuthInfo), String> {
        let mut kubeconfig = Kubeconfig::from_yaml(FILE).unwrap();
        overrides.apply(&mut kubeconfig)?;
        let current = kubeconfig.current_context.unwrap();
        let contexts = kubeconfig.contexts;
        let context = contexts.into_iter().find(|one| one.name == current).unwrap().context.unwrap();
        let cluster = kubeconfig.clusters.into_iter().find(|one| one.name == context.cluster).unwrap();
        let user = context.user.unwrap();
        let user = kubeconfig.auth_infos.into_iter().find(|one| one.name == user).unwrap();
        Ok((cluster.cluster.unwrap(), user.auth_info.unwrap()))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn cluster_and_user_of_other_contexts() {
        let (cluster, user) =
            applied(&ConfigOverrides { cluster: some("b"), ..ConfigOverrides::default() }).unwrap();
        assert_eq!((cluster.server, user.impersonate), (some("https://b:6443"), some("alice")));
        let (cluster, user) =
            applied(&ConfigOverrides { user: some("b"), ..ConfigOverrides::default() }).unwrap();
        assert_eq!((cluster.server, user.username), (some("https://a:6443"), some("bob")));
        let missing = [
            ConfigOverrides { cluster: some("c"), ..ConfigOverrides::default() },
            ConfigOverrides { user: some("c"), ..ConfigOverrides::default() },
            ConfigOverrides { context: some("c"), user: some("b"), ..ConfigOverrides::default() },
        ];
        for overrides in missing {
            let error = applied(&overrides).unwrap_err();
            assert!(error.ends_with("\"c\" does not exist"), "{error}");
        }
    }

    #[test]
    fn verification_is_replaced_as_a_whole() {
        let insecure = ConfigOverrides { insecure_skip_tls_verify: true, ..ConfigOverrides::default() };
        let (cluster, _) = applied(&insecure).unwrap();
        assert_eq!(
            (cluster.insecure_skip_tls_verify, cluster.certificate_authority_data),
            (Some(true), None)
        );
        let authority =
            ConfigOverrides { certificate_authority: Some("/ca.crt".into()), ..ConfigOverrides::default() };
        let (cluster, _) = applied(&authority).unwrap();
        assert_eq!(cluster.certificate_authority.as_deref(), Some("/ca.crt"));
        assert_eq!(cluster.certificate_authority_data, None);
        let server = ConfigOverrides { server: some("https://c"), ..ConfigOverrides::default() };
        assert_eq!(applied(&server).unwrap().0.tls_server_name, None);
    }

    #[test]
    fn credentials() {
        let token = ConfigOverrides { token: some("secret"), ..ConfigOverrides::default() };
        assert!(!format!("{token:?}").contains("secret"));
        let (_, user) = applied(&token).unwrap();
        assert!(user.token.is_some() && user.token_file.is_none());
        // Only the impersonation remains for an address without TLS.
        let server = ConfigOverrides { server: some("http://c"), ..ConfigOverrides::default() };
        let (_, user) = applied(&server).unwrap();
        assert_eq!((user.token_file, user.impersonate), (None, some("alice")));
        let groups = ConfigOverrides {
            impersonate: some("carol"),
            impersonate_uid: some("7"),
            impersonate_groups: vec!["two".to_owned(), "three".to_owned()],
            ..ConfigOverrides::default()
        };
        let (_, user) = applied(&groups).unwrap();
        assert_eq!((user.impersonate, user.impersonate_uid), (some("carol"), some("7")));
        assert_eq!(user.impersonate_groups.unwrap(), ["two", "three"]);
    }
}

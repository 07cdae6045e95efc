//! Cluster and namespace, from flags and kubeconfig files.

use std::{env, path::PathBuf, sync::Arc};

use kcm_client::{
    ApiClient, ClientConfigError, ClientFactory, ClientOptions, ConfigOverrides, ProxyEnvironment, RateLimit,
    Server, UserAgent,
};
use kcm_clock::Clock;
use serde::Deserialize;

use crate::flags::ConnectionFlags;

/// Client of the selected cluster, and the namespace.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: ApiClient,
    pub(crate) namespace: String,
    paths: Vec<PathBuf>,
    options: ClientOptions,
}

/// Names in a kubeconfig file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Kubeconfig {
    current_context: Option<String>,
    contexts: Vec<NamedContext>,
    clusters: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl Connection {
    /// Reads the configuration. `subcommand` is part of the user agent.
    pub(crate) async fn open(
        flags: &ConnectionFlags,
        subcommand: &str,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ClientConfigError> {
        let program = format!("kubectl-rollouts-{subcommand}");
        let agent = UserAgent::new(program, concat!("v", env!("CARGO_PKG_VERSION")), "");
        let options = ClientOptions {
            proxy: ProxyEnvironment::read(|name| env::var(name).ok()),
            timeout: flags.request_timeout,
            ..ClientOptions::new(agent, Arc::clone(clock))
        };
        let paths = paths(flags);
        let namespace = flags.namespace.clone().or_else(|| Kubeconfig::namespace(flags));
        let server =
            Server::KubeconfigFiles { paths: paths.clone(), overrides: Box::new(flags.overrides.clone()) };
        let factory = ClientFactory::connect(server, options.clone()).await?;
        let client = factory.client("", RateLimit::UNLIMITED);
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Ok(Self { client, namespace, paths, options })
    }

    /// Client of the cluster of another context, with its credentials.
    pub(crate) async fn other(&self, context: &str) -> Result<ApiClient, ClientConfigError> {
        let overrides =
            Box::new(ConfigOverrides { context: Some(context.to_owned()), ..ConfigOverrides::default() });
        let server = Server::KubeconfigFiles { paths: self.paths.clone(), overrides };
        let factory = ClientFactory::connect(server, self.options.clone()).await?;
        Ok(factory.without_retries().client("", RateLimit::UNLIMITED))
    }
}

impl Kubeconfig {
    /// Reads the files. Those that cannot be read are ignored: the client reports them.
    pub(crate) fn read(flags: &ConnectionFlags) -> Vec<Self> {
        let read = |path: &PathBuf| serde_saphyr::from_str(&std::fs::read_to_string(path).ok()?).ok();
        paths(flags).iter().filter_map(read).collect()
    }

    /// Namespace of the context.
    fn namespace(flags: &ConnectionFlags) -> Option<String> {
        let files = Self::read(flags);
        let current = files.iter().find_map(|file| file.current_context.clone());
        let context = flags.overrides.context.clone().or(current)?;
        let mut contexts = files.into_iter().flat_map(|file| file.contexts);
        let named = contexts.find(|named| named.name == context)?;
        named.context.namespace.filter(|namespace| !namespace.is_empty())
    }

    /// Names of the contexts.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|named| &*named.name)
    }

    /// Names of the clusters.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.iter().map(|named| &*named.name)
    }

    /// Names of the users.
    pub(crate) fn users(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|named| &*named.name)
    }
}

/// Paths of the kubeconfig files, as `kubectl` chooses them.
fn paths(flags: &ConnectionFlags) -> Vec<PathBuf> {
    if let Some(path) = &flags.kubeconfig {
        return vec![path.clone()];
    }
    match env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        Some(paths) => env::split_paths(&paths).collect(),
        None => env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
    }
}

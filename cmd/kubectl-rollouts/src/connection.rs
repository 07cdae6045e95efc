//! Cluster and namespace, from flags and kubeconfig files.

use std::{env, path::PathBuf, sync::Arc};

use kcm_client::{
    ApiClient, ClientConfigError, ClientFactory, ClientOptions, ProxyEnvironment, RateLimit, Server,
    UserAgent,
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

/// Parts of a kubeconfig that select the namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    contexts: Vec<NamedContext>,
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

impl Connection {
    pub(crate) async fn open(
        flags: &ConnectionFlags,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ClientConfigError> {
        let agent = UserAgent::new("kubectl-rollouts", concat!("v", env!("CARGO_PKG_VERSION")), "");
        let options = ClientOptions {
            proxy: ProxyEnvironment::read(|name| env::var(name).ok()),
            ..ClientOptions::new(agent, Arc::clone(clock))
        };
        let paths = paths(flags);
        let namespace = flags.namespace.clone().or_else(|| namespace(&paths, flags.context.as_deref()));
        let server = match &flags.server {
            Some(address) => Server::Master(address.clone()),
            None => Server::KubeconfigFiles { paths: paths.clone(), context: flags.context.clone() },
        };
        let factory = ClientFactory::connect(server, options.clone()).await?;
        let client = factory.client("why", RateLimit::UNLIMITED);
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Ok(Self { client, namespace, paths, options })
    }

    /// Client of the cluster of another context, with its credentials.
    pub(crate) async fn other(&self, context: &str) -> Result<ApiClient, ClientConfigError> {
        let server = Server::KubeconfigFiles { paths: self.paths.clone(), context: Some(context.to_owned()) };
        let factory = ClientFactory::connect(server, self.options.clone()).await?;
        Ok(factory.without_retries().client("why", RateLimit::UNLIMITED))
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

/// Namespace of the context. Files that cannot be read are ignored: the client reports them.
fn namespace(paths: &[PathBuf], context: Option<&str>) -> Option<String> {
    let read =
        |path: &PathBuf| serde_saphyr::from_str::<Kubeconfig>(&std::fs::read_to_string(path).ok()?).ok();
    let files: Vec<Kubeconfig> = paths.iter().filter_map(read).collect();
    let current = files.iter().find_map(|file| file.current_context.clone());
    let context = context.map(str::to_owned).or(current)?;
    let mut contexts = files.into_iter().flat_map(|file| file.contexts);
    contexts.find(|named| named.name == context)?.context.namespace.filter(|namespace| !namespace.is_empty())
}

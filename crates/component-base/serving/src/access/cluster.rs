//! CA bundles of clients and proxies in the cluster.
//!
//! Upstream counterpart: `dynamiccertificates.ConfigMapCAController` and `RequestHeaderAuthRequestController`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    proxy::{FrontProxy, ProxyHeaders},
    trust::Trust,
};

/// Name of the ConfigMap in messages.
pub(super) const CONFIG_MAP: &str = "configmap/extension-apiserver-authentication in kube-system";
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";

/// Time between reads of the ConfigMap.
///
/// DEVIATION: upstream watches the ConfigMap. CAs change rarely, and a rotation trusts the old and the new CA for some time.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// CA bundles of the cluster, as last read.
pub(super) struct Cluster {
    client: ApiClient,
    clock: Arc<dyn Clock>,
    current: RwLock<Arc<Authorities>>,
}

/// CA bundles.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    /// CA bundle of clients.
    pub(super) clients: Option<Arc<Trust>>,
    /// Authenticating proxies.
    pub(super) proxy: Option<Arc<FrontProxy>>,
    data: BTreeMap<String, String>,
    /// Key of a CA bundle that `data` does not contain any more. The previous one is used.
    missing: Option<&'static str>,
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Cluster {
    pub(super) fn new(client: ApiClient, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, current: RwLock::default() }
    }

    pub(super) fn current(&self) -> Arc<Authorities> {
        Arc::clone(&self.current.read())
    }

    /// Reads the ConfigMap. If it does not exist, there are no CA bundles yet.
    ///
    /// # Errors
    ///
    /// If the ConfigMap cannot be read or parsed, does not exist any more, or does not contain a CA bundle any more. The previous CA
    /// bundle stays in use, as upstream.
    pub(super) async fn read(&self) -> Result<(), String> {
        let data = match self.client.send(&Request::get(PATH)).await {
            Ok(body) => {
                let config: Result<ConfigMap, _> = serde_json::from_slice(&body);
                config.map_err(|error| format!("{CONFIG_MAP}: {error}"))?.data
            }
            Err(error) if error.is_not_found() && self.current().data.is_empty() => BTreeMap::new(),
            Err(error) => return Err(explain(&error)),
        };
        let mut current = self.current();
        if current.data != data {
            let authorities = Authorities::parse(data, &current);
            current = Arc::new(authorities.map_err(|error| format!("{CONFIG_MAP}: {error}"))?);
            *self.current.write() = Arc::clone(&current);
            tracing::info!("Loaded client CA bundles from {CONFIG_MAP}");
        }
        match current.missing {
            Some(key) => Err(format!("{CONFIG_MAP}: missing content for CA bundle {key:?}")),
            None => Ok(()),
        }
    }

    /// Reads the ConfigMap periodically until `shutdown`. Each distinct error is logged once.
    pub(super) async fn reload_loop(&self, shutdown: &CancellationToken) {
        let mut logged_error = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(READ_INTERVAL) => {}
            }
            let outcome = tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.read() => outcome.err(),
            };
            if let Some(error) = outcome.as_ref().filter(|_| outcome != logged_error) {
                tracing::warn!(
                    err = error,
                    "Failed to read the cluster's client CA bundles, keeping the previous ones"
                );
            }
            logged_error = outcome;
        }
    }
}

impl Authorities {
    /// Parses `data`. CA bundles that it does not contain are taken from `previous`.
    fn parse(data: BTreeMap<String, String>, previous: &Self) -> Result<Self, String> {
        let mut missing = None;
        let trust = |key: &str| match data.get(key).filter(|pem| !pem.trim().is_empty()) {
            None => Ok(None),
            Some(pem) => Trust::parse(pem.as_bytes())
                .map(|trust| Some(Arc::new(trust)))
                .map_err(|e| format!("{key}: {e}")),
        };
        let list = |key: &str| match data.get(key).filter(|list| !list.is_empty()) {
            None => Ok(Vec::new()),
            Some(list) => {
                serde_json::from_str::<Vec<String>>(list).map_err(|error| format!("{key}: {error}"))
            }
        };
        let headers = |key: &str| {
            let names = list(key)?;
            Ok::<Vec<String>, String>(names.iter().map(|name| name.trim().to_ascii_lowercase()).collect())
        };
        let mut or_previous = |key, trust: Option<_>, previous: Option<&Arc<Trust>>| {
            if trust.is_none() && previous.is_some() {
                missing = Some(key);
            }
            trust.or_else(|| previous.cloned())
        };
        let clients = or_previous(CLIENT_CA, trust(CLIENT_CA)?, previous.clients.as_ref());
        let of_proxy = previous.proxy.as_ref().map(|proxy| &proxy.trust);
        let proxy = match or_previous(PROXY_CA, trust(PROXY_CA)?, of_proxy) {
            None => None,
            Some(trust) => {
                let headers = ProxyHeaders {
                    allowed_names: list("requestheader-allowed-names")?,
                    username: headers("requestheader-username-headers")?,
                    uid: headers("requestheader-uid-headers")?,
                    group: headers("requestheader-group-headers")?,
                    extra_prefixes: headers("requestheader-extra-headers-prefix")?,
                };
                Some(Arc::new(FrontProxy { trust, headers: Arc::new(headers) }))
            }
        };
        Ok(Self { clients, proxy, data, missing })
    }
}

fn explain(error: &ApiError) -> String {
    if error.is_forbidden() {
        return format!(
            "{error} (usually fixed by 'kubectl create rolebinding -n kube-system NAME \
             --role=extension-apiserver-authentication-reader --serviceaccount=NAMESPACE:NAME')"
        );
    }
    error.to_string()
}

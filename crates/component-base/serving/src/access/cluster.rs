//! What a cluster says about whose certificates count in it.
//!
//! *Upstream counterpart:* `dynamiccertificates.ConfigMapCAController` and `RequestHeaderAuthRequestController`.

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

/// What is in messages of the place that [`PATH`] leads to.
pub(super) const CONFIG_MAP: &str = "configmap/extension-apiserver-authentication in kube-system";
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// DEVIATION: upstream watches. Authorities change once in years, and old and new ones count for a while.
const READ_EVERY: Duration = Duration::from_secs(60);

/// The cluster's authorities, as they were read last.
pub(super) struct Cluster {
    client: ApiClient,
    clock: Arc<dyn Clock>,
    current: RwLock<Arc<Authorities>>,
}

/// Whose certificates count.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    /// For clients.
    pub(super) clients: Option<Arc<Trust>>,
    /// For proxies.
    pub(super) proxy: Option<Arc<FrontProxy>>,
    print: BTreeMap<String, String>,
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

    /// Reads them now. A cluster that says nothing has none.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or cannot be understood; what was read before stays.
    pub(super) async fn read(&self) -> Result<(), String> {
        let data = match self.client.send(&Request::get(PATH)).await {
            Ok(body) => {
                let config: Result<ConfigMap, _> = serde_json::from_slice(&body);
                config.map_err(|error| format!("{CONFIG_MAP}: {error}"))?.data
            }
            Err(error) if error.is_not_found() => BTreeMap::new(),
            Err(error) => return Err(explain(&error)),
        };
        if self.current().print != data {
            let authorities = Authorities::parse(data).map_err(|error| format!("{CONFIG_MAP}: {error}"))?;
            *self.current.write() = Arc::new(authorities);
            tracing::info!("Loaded client CAs of {CONFIG_MAP}");
        }
        Ok(())
    }

    /// Reads them again and again until `shutdown`.
    pub(super) async fn keep_up(&self, shutdown: &CancellationToken) {
        let mut complaint = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(READ_EVERY) => {}
            }
            let outcome = tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.read() => outcome.err(),
            };
            if let Some(error) = outcome.as_ref().filter(|_| outcome != complaint) {
                tracing::warn!(
                    err = error,
                    "Cannot read the cluster's client CAs, going on with those read before"
                );
            }
            complaint = outcome;
        }
    }
}

impl Authorities {
    fn parse(data: BTreeMap<String, String>) -> Result<Self, String> {
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
        let clients = trust("client-ca-file")?;
        let proxy = match trust("requestheader-client-ca-file")? {
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
        Ok(Self { clients, proxy, print: data })
    }
}

fn explain(error: &ApiError) -> String {
    if error.is_forbidden() {
        return format!(
            "{error} (usually put right by 'kubectl create rolebinding -n kube-system NAME \
             --role=extension-apiserver-authentication-reader --serviceaccount=NAMESPACE:NAME')"
        );
    }
    error.to_string()
}

//! Secure port of an operator: `/healthz` without authorization, `/metrics` and other paths with the cluster's RBAC.
//!
//! ```sh
//! cargo run -p kcm-serving --example operator_port -- KUBECONFIG [PORT]
//! curl -k https://127.0.0.1:8443/healthz?verbose
//! curl -k https://127.0.0.1:8443/metrics -H "Authorization: Bearer $(kubectl create token SERVICE_ACCOUNT)"
//! ```
//!
//! The user of the kubeconfig requires the ClusterRole `system:auth-delegator` (TokenReviews and SubjectAccessReviews) and
//! read access to the ConfigMap `kube-system/extension-apiserver-authentication`. Omit the kubeconfig in a pod.

use std::{
    env,
    error::Error,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kcm_client::{ClientOptions, UserAgent};
use kcm_clock::{Clock, RealClock};
use kcm_serving::{
    Access, AuthenticationOptions, AuthorizationOptions, HealthChecks, Response, Routes, SecureServer,
    ServingOptions, StatuszInfo, configz, debug_flags, flagz, handler, profiling, statusz,
};
use tokio_util::sync::CancellationToken;

const NAME: &str = "my-operator";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let kubeconfig = arguments.next().map(PathBuf::from);
    let port = arguments.next().map_or(Ok(8443), |port| port.parse())?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());

    // Routes. Health checks can be added at any time.
    let health = HealthChecks::new();
    health.add_ping("my-controller");
    let verbosity = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&verbosity);
    let routes = Routes::new()
        .health("/healthz", &health)
        .exact(
            "/metrics",
            handler(move |_| Response::text(format!("verbosity {}\n", shown.load(Ordering::Relaxed)))),
        )
        .exact("/configz", configz("my-operator.example.org", &serde_json::json!({ "workers": 5 })))
        .exact("/flagz", flagz(NAME, [("port".to_owned(), port.to_string())]));
    let status = StatuszInfo {
        component: NAME.to_owned(),
        started: clock.now(),
        binary_version: "1.0".to_owned(),
        emulation_version: String::new(),
        compiler: "rustc".to_owned(),
        paths: routes.paths(),
        notices: Vec::new(),
    };
    let routes = routes.exact("/statusz", statusz(status, Arc::clone(&clock)));
    let routes = profiling(debug_flags(routes, move |v| verbosity.store(v.into(), Ordering::Relaxed)));

    // Authentication and authorization.
    let authentication = AuthenticationOptions { kubeconfig: kubeconfig.clone(), ..Default::default() };
    let authorization = AuthorizationOptions { kubeconfig, ..Default::default() };
    let client = ClientOptions::new(UserAgent::new(NAME, "v1.0.0", "unknown"), Arc::clone(&clock));
    let access = Access::connect(&authentication, &authorization, &client).await?;

    let options = ServingOptions { secure_port: port, ..ServingOptions::default() };
    let server = SecureServer::bind(&options, NAME, access, routes, clock).await?;
    println!("https://{}", server.local_addr());
    let shutdown = CancellationToken::new();
    let on_signal = shutdown.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_signal.cancel();
        }
    });
    server.run(shutdown).await;
    Ok(())
}

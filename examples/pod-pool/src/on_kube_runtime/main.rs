//! The operator with kube-runtime alone, as a pod of the cluster or with the kubeconfig in `KUBECONFIG`.

use std::{error::Error, sync::Arc};

use kube_client::Client;
use pod_pool::{
    on_kube_runtime::{Now, PodReads, run},
    reservations::FakeReservations,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    #[expect(clippy::disallowed_methods, reason = "kube-runtime reads the system's clock, too")]
    let now: Now = Arc::new(k8s_openapi::jiff::Timestamp::now);
    tokio::select! {
        () = run(client, FakeReservations::default(), PodReads::Cache, now) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

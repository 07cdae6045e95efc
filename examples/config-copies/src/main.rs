//! Program of the operator. It uses the kubeconfig in `KUBECONFIG`, or runs as a pod of the cluster.

use std::error::Error;

use kube_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    config_copies::run(Client::try_default().await?).await;
    Ok(())
}

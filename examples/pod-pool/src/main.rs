//! The operator with `kcm`, as a pod of the cluster or with the kubeconfig in `KUBECONFIG`.
//!
//! [`ProgramOptions::from_env`] lists the variables of the environment.

use std::error::Error;

use kcm::prelude::*;
use kube_client::Client;
use pod_pool::{controller::NAME, operator, reservations::FakeReservations};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clients = kcm::kube::clients(Client::try_default().await?);
    let mut manager = Manager::with_clients(ProgramOptions::from_env(NAME, "v0.1.0")?, &clients)?;
    operator::add_to(&mut manager, FakeReservations::default());
    Ok(manager.run_until_signal().await?)
}

//! The operator with `kcm`, as a pod of the cluster or with the kubeconfig in `KUBECONFIG`.

use std::{error::Error, sync::Arc};

use kcm::{
    clock::{RealClock, SeededRandom},
    manager::Dependencies,
    prelude::*,
};
use kube_client::Client;
use pod_pool::{controller::NAME, operator, reservations::FakeReservations};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (clock, random): (Arc<dyn Clock>, Arc<dyn Random>) =
        (Arc::new(RealClock::new()), Arc::new(SeededRandom::from_entropy()));
    let clients = kcm::kube::clients(Client::try_default().await?);
    let options = ProgramOptions::from_env(NAME, "v0.1.0")?;
    let mut manager = Manager::new(options.manager, Dependencies::new(&clients, &clock, &random))?;
    operator::add_to(&mut manager, FakeReservations::default());
    Ok(manager.run_until_signal().await?)
}

//! Program of the operator.
//!
//! ```text
//! website-operator crd   # prints the CustomResourceDefinition
//! website-operator       # runs the operator, as a pod of the cluster or with the kubeconfig in KUBECONFIG
//! ```
//!
//! [`ProgramOptions::from_env`] lists the variables of the environment.

use std::{env, error::Error, sync::Arc};

use kcm::prelude::*;
use kube_core::CustomResourceExt;
use website_operator::{controller::NAME, dns::FakeDns, operator, website::Website};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("crd") {
        print!("{}", serde_saphyr::to_string(&Website::crd())?);
        return Ok(());
    }
    let mut manager = Manager::connect(ProgramOptions::from_env(NAME, "v0.1.0")?).await?;
    operator::add_to(&mut manager, Arc::new(FakeDns::default()));
    Ok(manager.run_until_signal().await?)
}

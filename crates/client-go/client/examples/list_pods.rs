//! Lists the pods of a cluster, leanly.
//!
//! ```text
//! cargo run -p kcm-client --example list_pods -- ~/.kube/config
//! ```

use std::{process::ExitCode, sync::Arc};

use kcm_api::Pod;
use kcm_client::{ClientFactory, ClientOptions, ListParams, RateLimit, Server, UserAgent};
use kcm_clock::RealClock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: list_pods KUBECONFIG");
        return ExitCode::FAILURE;
    };
    match list(Server::Kubeconfig { path: path.into(), master: None }).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn list(server: Server) -> Result<(), Box<dyn std::error::Error>> {
    let agent = UserAgent::new("list-pods", "v0.1.0", "");
    let factory =
        ClientFactory::connect(server, ClientOptions::new(agent, Arc::new(RealClock::new()))).await?;
    let client = factory.client("example", RateLimit::DEFAULT);
    let list = client.api::<Pod>().list(&ListParams::default()).await?;
    for pod in &list.items {
        println!("{}\t{:?}\tready: {}", pod.key, pod.phase, pod.ready.is_ready);
    }
    for pod in &list.undecodable {
        eprintln!("{}: {}", pod.name, pod.error);
    }
    Ok(())
}

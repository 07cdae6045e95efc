//! Serves an empty cluster on loopback for `kubectl`. There are no controllers and no kubelet, so objects change only by
//! requests.
//!
//! ```text
//! cargo run -p kcm-sandbox-server --example serve -- 127.0.0.1:8080
//! kubectl --server http://127.0.0.1:8080 create deployment web --image=nginx
//! ```

use std::{env, error::Error};

use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_sandbox_server::HttpServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("kubectl --server http://{}", listener.local_addr()?);

    let shutdown = CancellationToken::new();
    tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                shutdown.cancel();
            }
        }
    });
    HttpServer::new(ApiServer::new(ApiServerConfig::default())).serve(listener, shutdown).await;
    Ok(())
}

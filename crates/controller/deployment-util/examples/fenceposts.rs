//! Prints the bounds of rolling updates.
//!
//! `cargo run -p kcm-deployment-util --example fenceposts`

use kcm_api::{Deployment, IntOrString, RollingUpdate};
use kcm_deployment_util::fenceposts::{ROLLING_UPDATE, max_total_replicas, min_available};

fn main() {
    println!("replicas maxSurge maxUnavailable | max total min available");
    for (replicas, max_surge, max_unavailable) in
        [(4, "25%", "25%"), (10, "25%", "25%"), (3, "0%", "0%"), (1, "10%", "10%")]
    {
        let mut deployment = Deployment::default();
        deployment.spec.replicas = Some(replicas);
        deployment.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
        deployment.spec.strategy.rolling_update = Some(RollingUpdate {
            max_surge: Some(IntOrString::String(max_surge.to_owned())),
            max_unavailable: Some(IntOrString::String(max_unavailable.to_owned())),
            ..RollingUpdate::default()
        });
        println!(
            "{replicas:>8} {max_surge:>8} {max_unavailable:>14} | {:>9} {:>13}",
            max_total_replicas(&deployment),
            min_available(&deployment),
        );
    }
}

//! Between which bounds does a rolling update move? Another operator's rollout can ask the same functions.
//!
//! `cargo run -p kcm-deployment-util --example fenceposts`

use kcm_api::{Deployment, IntOrString, RollingUpdate};
use kcm_deployment_util::fenceposts::{ROLLING_UPDATE, max_surge, max_unavailable, min_available};

fn main() {
    println!("{:>8} {:>6} {:>12} | {:>8} {:>9}", "replicas", "surge", "unavailable", "at most", "at least");
    for (replicas, surge, unavailable) in
        [(4, "25%", "25%"), (10, "25%", "25%"), (3, "0%", "0%"), (1, "10%", "10%")]
    {
        let mut deployment = Deployment::default();
        deployment.spec.replicas = Some(replicas);
        deployment.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
        deployment.spec.strategy.rolling_update = Some(RollingUpdate {
            max_surge: Some(IntOrString::String(surge.to_owned())),
            max_unavailable: Some(IntOrString::String(unavailable.to_owned())),
            ..RollingUpdate::default()
        });
        let most = replicas + max_surge(&deployment);
        let least = min_available(&deployment);
        assert_eq!(least, replicas - max_unavailable(&deployment));
        println!("{replicas:>8} {surge:>6} {unavailable:>12} | {most:>8} {least:>9}");
    }
}

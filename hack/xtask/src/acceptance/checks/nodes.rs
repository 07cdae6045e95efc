//! 63: nodes. On a sandbox of its own, for it takes all pods off a node.

use serde_json::Value;

use super::Judged;
use crate::acceptance::{failure::ensure, ground::Ground};

pub(super) async fn drain(ground: &Ground) -> Judged {
    let (cluster, ground) = ground.own(&[]).await?;
    ground.web().await?;
    ground.run("cordon sim-node-0").await?.prints_exactly("node/sim-node-0 cordoned")?;
    ground.run("get nodes").await?.prints("sim-node-0 Ready,SchedulingDisabled *")?;
    ground.run("scale deploy web --replicas=4").await?.prints("*scaled")?;
    let refused = ground
        .until("an event about it", async || {
            let events = ground.items("events?fieldSelector=reason%3DFailedScheduling").await?;
            Ok(events.into_iter().next())
        })
        .await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure(message.starts_with("0/1 nodes are available: 1 node(s) were unschedulable"), || {
        format!("the message is {message:?}")
    })?;
    ground.run("get pods").await?.prints("web-* 0/1 Pending 0 *s")?;
    ground.run("uncordon sim-node-0").await?.prints_exactly("node/sim-node-0 uncordoned")?;
    ground.rolled_out("web").await?;
    ground.run("run bare --image=nginx:1").await?.prints("*created")?;
    ground.run("wait --for=condition=Ready pod/bare --timeout=30s").await?.prints("*condition met")?;
    ground
        .run("drain sim-node-0")
        .await?
        .fails("error: unable to drain node \"sim-node-0\" due to error:*cannot delete*use --force*")?;
    let drained = ground.run("drain sim-node-0 --force").await?;
    drained
        .prints("node/sim-node-0 already cordoned\nevicting pod *\npod/* evicted\nnode/sim-node-0 drained")?;
    let left = ground.items("pods?fieldSelector=spec.nodeName%3Dsim-node-0").await?;
    ensure(left.iter().all(|pod: &Value| pod["metadata"]["deletionTimestamp"].is_string()), || {
        format!("{} pods are left", left.len())
    })?;
    ground.run("get nodes").await?.prints("sim-node-0 Ready,SchedulingDisabled *")?;
    drop(cluster);
    Ok(())
}

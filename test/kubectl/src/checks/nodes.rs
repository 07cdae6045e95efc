//! Check 63: nodes. Runs on its own sandbox, because it drains a node.

use serde_json::Value;

use super::CheckResult;
use crate::{failure::ensure, test_env::TestEnv};

pub(super) async fn drain(env: &TestEnv) -> CheckResult {
    let (cluster, env) = env.start_sandbox(&[]).await?;
    env.web().await?;
    env.run("cordon sim-node-0").await?.prints_exactly("node/sim-node-0 cordoned")?;
    env.run("get nodes").await?.prints("sim-node-0 Ready,SchedulingDisabled *")?;
    env.run("scale deploy web --replicas=4").await?.prints("*scaled")?;
    let event = env
        .until("a FailedScheduling event", async || {
            let events = env.items("events?fieldSelector=reason%3DFailedScheduling").await?;
            Ok(events.into_iter().next())
        })
        .await?;
    let message = event["message"].as_str().unwrap_or_default();
    ensure(message.starts_with("0/1 nodes are available: 1 node(s) were unschedulable"), || {
        format!("the message is {message:?}")
    })?;
    env.run("get pods").await?.prints("web-* 0/1 Pending 0 *s")?;
    env.run("uncordon sim-node-0").await?.prints_exactly("node/sim-node-0 uncordoned")?;
    env.until_rolled_out("web").await?;
    env.run("run bare --image=nginx:1").await?.prints("*created")?;
    env.run("wait --for=condition=Ready pod/bare --timeout=30s").await?.prints("*condition met")?;
    env.run("drain sim-node-0")
        .await?
        .fails("error: unable to drain node \"sim-node-0\" due to error:*cannot delete*use --force*")?;
    let drained = env.run("drain sim-node-0 --force").await?;
    drained
        .prints("node/sim-node-0 already cordoned\nevicting pod *\npod/* evicted\nnode/sim-node-0 drained")?;
    let left = env.items("pods?fieldSelector=spec.nodeName%3Dsim-node-0").await?;
    ensure(left.iter().all(|pod: &Value| pod["metadata"]["deletionTimestamp"].is_string()), || {
        format!("{} pods left", left.len())
    })?;
    env.run("get nodes").await?.prints("sim-node-0 Ready,SchedulingDisabled *")?;
    drop(cluster);
    Ok(())
}

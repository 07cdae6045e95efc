//! Checks 48 to 51, 67: `describe`, events, `wait`, `logs`.

use serde_json::Value;

use super::CheckResult;
use crate::{
    failure::{Failure, ensure},
    objects::name,
    test_env::TestEnv,
};

pub(super) async fn describe_deployment(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    env.run("rollout status deploy/web").await?.prints("*successfully rolled out")?;
    env.until("events", async || {
        let described = env.run("describe deploy web").await?;
        Ok(described
            .prints("Normal ScalingReplicaSet * Scaled up replica set web-* from 2 to 3")
            .ok()
            .is_some()
            .then_some(()))
    })
    .await?;
    env.run("describe deploy web").await?.prints(
        "Name: web
         Annotations: deployment.kubernetes.io/revision: 2
         Selector: app=web
         Replicas: 3 desired | 3 updated | 3 total | 3 available | 0 unavailable
         StrategyType: RollingUpdate
         RollingUpdateStrategy: 25% max unavailable, 25% max surge
         Image: nginx:2
         Conditions:
         Available True MinimumReplicasAvailable
         Progressing True NewReplicaSetAvailable
         OldReplicaSets: web-* (0/0 replicas created)
         NewReplicaSet: web-* (3/3 replicas created)
         Events:
         Normal ScalingReplicaSet *s deployment-controller Scaled up replica set web-* from 0 to 3",
    )?;
    Ok(())
}

pub(super) async fn describe_others(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let sets = env.items("replicasets").await?;
    let set = sets.first().map(name).unwrap_or_default();
    // Events are created asynchronously.
    env.until("events of the ReplicaSet", async || {
        let events = env.items("events?fieldSelector=involvedObject.kind%3DReplicaSet").await?;
        Ok((events.len() >= 3).then_some(()))
    })
    .await?;
    env.run(&format!("describe rs {set}")).await?.prints(
        "Name: web-*
         Controlled By: Deployment/web
         Replicas: 3 current / 3 desired
         Pods Status: 3 Running / 0 Waiting / 0 Succeeded / 0 Failed
         Events:
         Normal SuccessfulCreate *s replicaset-controller Created pod: web-*",
    )?;
    let pods = env.items("pods").await?;
    let pod = pods.first().ok_or_else(|| Failure::new("no pods"))?;
    env.run(&format!("describe pod {}", name(pod))).await?.prints(
        "Name: web-*
         Service Account: default
         Node: *
         Status: Running
         IP: *.*.*.*
         Controlled By: ReplicaSet/web-*
         Containers:
         State: Running
         Ready: True
         Conditions:
         Ready True
         QoS Class: BestEffort
         Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
         Events: *",
    )?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let described = env.run(&format!("describe node {node}")).await?;
    described.prints(&format!(
        "Name: {node}
         Unschedulable: false
         Lease:
         HolderIdentity: {node}
         Conditions:
         Ready True *
         Capacity:
         Non-terminated Pods: (* in total)
         Namespace Name *
         {} {} *",
        env.namespace,
        name(pod),
    ))?;
    env.run("describe ns default").await?.prints(
        "Name: default
         Labels: kubernetes.io/metadata.name=default
         Status: Active
         No resource quota.",
    )?;
    Ok(())
}

pub(super) async fn events(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let scaled = "*ScalingReplicaSet * Scaled up replica set web-* from 0 to 3";
    env.until("events", async || {
        let events = env.items("events?fieldSelector=involvedObject.kind%3DReplicaSet").await?;
        Ok((events.len() >= 3).then_some(()))
    })
    .await?;
    env.run("get events").await?.prints(&format!("LAST SEEN TYPE REASON OBJECT MESSAGE\n{scaled}"))?;
    let of_web = env.run("events --for deploy/web").await?;
    of_web.prints(&format!("LAST SEEN TYPE REASON OBJECT MESSAGE\n{scaled}"))?.lacks("SuccessfulCreate")?;
    let old = env.run("get events -o json").await?;
    let new = env.run("get events.v1.events.k8s.io -o json").await?;
    let both = |output: &crate::kubectl::CommandOutput, message: &str, object: &str| {
        let list: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let describe =
            |item: &Value| format!("{} {} {}", item["metadata"]["name"], item[message], item[object]["name"]);
        let mut described: Vec<String> = items.iter().map(describe).collect();
        described.sort();
        described
    };
    let (old, new) = (both(&old, "message", "involvedObject"), both(&new, "note", "regarding"));
    ensure(old == new && old.len() >= 4, || format!("core: {old:?}, events.k8s.io: {new:?}"))?;
    env.run("get events --field-selector involvedObject.kind=Deployment -o name")
        .await?
        .prints("event/web.*")?
        .lacks("event/web-")?;
    Ok(())
}

pub(super) async fn wait(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let met = "deployment.apps/web condition met";
    env.run("wait deploy/web --for=condition=Available --timeout=30s").await?.prints_exactly(met)?;
    env.run("wait deploy/web --for=jsonpath={.status.readyReplicas}=3 --timeout=30s")
        .await?
        .prints_exactly(met)?;
    // Since 1.31.
    if env.version().is_at_least(31) {
        let mut creation = env.start("wait deploy/late --for=create --timeout=30s")?;
        env.run("create deployment late --image=nginx:1").await?.prints("*created")?;
        creation.until("deployment.apps/late condition met").await?;
    } else {
        env.run("create deployment late --image=nginx:1").await?.prints("*created")?;
    }
    let mut deletion = env.start("wait deploy/late --for=delete --timeout=30s")?;
    env.run("delete deploy late").await?.prints("*deleted*")?;
    deletion.until("deployment.apps/late condition met").await.or_else(|failure| {
        // The object may have been deleted before the command started to wait.
        if failure.to_string().ends_with("Output:\n") { Ok(()) } else { Err(failure) }
    })?;
    env.run("wait deploy/web --for=condition=Never --timeout=1s")
        .await?
        .fails("error: timed out waiting for the condition on deployments/web")?;
    Ok(())
}

pub(super) async fn logs(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let logs = env.run("logs deploy/web").await?;
    logs.prints("*imulated*")?;
    let printed = env.run("exec deploy/web -- echo hello").await?;
    // Before 1.30, kubectl requires SPDY.
    if env.version().is_at_least(30) {
        printed.prints_exactly("hello")?;
        env.run("exec deploy/web -- false").await?.exits(1)?.warns("command terminated with exit code 1")?;
    } else {
        printed.exits(1)?;
    }
    env.run("port-forward deploy/web 0:80").await?.exits(1)?.warns("*error upgrading connection*")?;
    Ok(())
}

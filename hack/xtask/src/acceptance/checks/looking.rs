//! 48 to 51, 67: describing, events, waiting, logs.

use serde_json::Value;

use super::Judged;
use crate::acceptance::{
    failure::{Failure, ensure},
    ground::{Ground, name},
};

pub(super) async fn describe_deployment(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    ground.run("rollout status deploy/web").await?.prints("*successfully rolled out")?;
    ground
        .until("events", async || {
            let told = ground.run("describe deploy web").await?;
            Ok(told
                .prints("Normal ScalingReplicaSet * Scaled up replica set web-* from 2 to 3")
                .ok()
                .is_some()
                .then_some(()))
        })
        .await?;
    ground.run("describe deploy web").await?.prints(
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

pub(super) async fn describe_others(ground: &Ground) -> Judged {
    ground.web().await?;
    let sets = ground.items("replicasets").await?;
    let set = sets.first().map(name).unwrap_or_default();
    // Events are written behind the pods.
    ground
        .until("events of the ReplicaSet", async || {
            let events = ground.items("events?fieldSelector=involvedObject.kind%3DReplicaSet").await?;
            Ok((events.len() >= 3).then_some(()))
        })
        .await?;
    ground.run(&format!("describe rs {set}")).await?.prints(
        "Name: web-*
         Controlled By: Deployment/web
         Replicas: 3 current / 3 desired
         Pods Status: 3 Running / 0 Waiting / 0 Succeeded / 0 Failed
         Events:
         Normal SuccessfulCreate *s replicaset-controller Created pod: web-*",
    )?;
    let pods = ground.items("pods").await?;
    let pod = pods.first().ok_or_else(|| Failure::new("there is no pod"))?;
    ground.run(&format!("describe pod {}", name(pod))).await?.prints(
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
    let told = ground.run(&format!("describe node {node}")).await?;
    told.prints(&format!(
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
        ground.namespace,
        name(pod),
    ))?;
    ground.run("describe ns default").await?.prints(
        "Name: default
         Labels: kubernetes.io/metadata.name=default
         Status: Active
         No resource quota.",
    )?;
    Ok(())
}

pub(super) async fn events(ground: &Ground) -> Judged {
    ground.web().await?;
    let scaled = "*ScalingReplicaSet * Scaled up replica set web-* from 0 to 3";
    ground
        .until("events", async || {
            let events = ground.items("events?fieldSelector=involvedObject.kind%3DReplicaSet").await?;
            Ok((events.len() >= 3).then_some(()))
        })
        .await?;
    ground.run("get events").await?.prints(&format!("LAST SEEN TYPE REASON OBJECT MESSAGE\n{scaled}"))?;
    let of_web = ground.run("events --for deploy/web").await?;
    of_web.prints(&format!("LAST SEEN TYPE REASON OBJECT MESSAGE\n{scaled}"))?.lacks("SuccessfulCreate")?;
    let old = ground.run("get events -o json").await?;
    let new = ground.run("get events.v1.events.k8s.io -o json").await?;
    let both = |ended: &crate::acceptance::kubectl::Ended, message: &str, object: &str| {
        let list: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let told =
            |item: &Value| format!("{} {} {}", item["metadata"]["name"], item[message], item[object]["name"]);
        let mut told: Vec<String> = items.iter().map(told).collect();
        told.sort();
        told
    };
    let (old, new) = (both(&old, "message", "involvedObject"), both(&new, "note", "regarding"));
    ensure(old == new && old.len() >= 4, || format!("core has {old:?}, events.k8s.io {new:?}"))?;
    ground
        .run("get events --field-selector involvedObject.kind=Deployment -o name")
        .await?
        .prints("event/web.*")?
        .lacks("event/web-")?;
    Ok(())
}

pub(super) async fn wait(ground: &Ground) -> Judged {
    ground.web().await?;
    let met = "deployment.apps/web condition met";
    ground.run("wait deploy/web --for=condition=Available --timeout=30s").await?.prints_exactly(met)?;
    ground
        .run("wait deploy/web --for=jsonpath={.status.readyReplicas}=3 --timeout=30s")
        .await?
        .prints_exactly(met)?;
    // It came with 1.31.
    if ground.version().is_at_least(31) {
        let coming = ground.start("wait deploy/late --for=create --timeout=30s")?;
        ground.run("create deployment late --image=nginx:1").await?.prints("*created")?;
        let mut coming = coming;
        coming.until("deployment.apps/late condition met").await?;
    } else {
        ground.run("create deployment late --image=nginx:1").await?.prints("*created")?;
    }
    let mut going = ground.start("wait deploy/late --for=delete --timeout=30s")?;
    ground.run("delete deploy late").await?.prints("*deleted*")?;
    going.until("deployment.apps/late condition met").await.or_else(|failure| {
        // It may have been gone before the other had begun to wait, which is as good.
        if failure.to_string().ends_with("but:\n") { Ok(()) } else { Err(failure) }
    })?;
    ground
        .run("wait deploy/web --for=condition=Never --timeout=1s")
        .await?
        .fails("error: timed out waiting for the condition on deployments/web")?;
    Ok(())
}

pub(super) async fn logs(ground: &Ground) -> Judged {
    ground.web().await?;
    let told = ground.run("logs deploy/web").await?;
    told.prints("*imulated*")?;
    for line in ["exec deploy/web -- ls", "port-forward deploy/web 0:80"] {
        let refused = ground.run(line).await?;
        refused.exits(1)?.warns("*not implemented*")?;
    }
    Ok(())
}

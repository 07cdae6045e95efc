//! 8, 39, 42 to 47: rollouts.

use serde_json::{Value, json};

use super::Judged;
use crate::acceptance::{
    failure::{Failure, ensure, same},
    ground::{Ground, generation, name},
    manifests::{WEB, web_with},
};

pub(super) async fn status(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    ground.run("rollout status deploy/web").await?.prints("deployment \"web\" successfully rolled out")?;
    ground.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    ground.run("rollout status deploy/web").await?.prints(
        "Waiting for deployment \"web\" rollout to finish: *
         deployment \"web\" successfully rolled out",
    )?;
    let web = ground.object("deployments/web").await?;
    same("the ready replicas", &web["status"]["readyReplicas"], &json!(3))
}

/// Changes the image and waits until the controller has made it this revision.
async fn revision(ground: &Ground, image: &str, number: u32) -> Judged {
    ground
        .run(&format!("set image deploy/web nginx={image}"))
        .await?
        .prints("deployment.apps/web image updated")?;
    until_revision(ground, image, number).await?;
    Ok(())
}

async fn until_revision(ground: &Ground, image: &str, number: u32) -> Result<Value, Failure> {
    ground
        .until(&format!("revision {number} with {image}"), async || {
            let web = ground.object("deployments/web").await?;
            let number = number.to_string();
            let is = |object: &Value| {
                object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == number.as_str()
                    && object["spec"]["template"]["spec"]["containers"][0]["image"] == image
            };
            let set = ground.items("replicasets").await?.into_iter().find(|set| is(set));
            Ok(set.filter(|_| is(&web)))
        })
        .await
}

pub(super) async fn scale_replica_set(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let set = until_revision(ground, "nginx:1", 1).await?;
    let mut watch = ground.watch("replicasets").await?;
    ground.run(&format!("scale rs/{} --replicas=9", name(&set))).await?.prints("replicaset.apps/* scaled")?;
    let replicas = |object: &Value| object["spec"]["replicas"].as_i64();
    watch.until(|event| replicas(&event.object) == Some(9)).await?;
    watch.until(|event| replicas(&event.object) == Some(3)).await?;
    Ok(())
}

pub(super) async fn history(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    until_revision(ground, "nginx:1", 1).await?;
    revision(ground, "nginx:2", 2).await?;
    ground.run("rollout history deploy/web").await?.prints_exactly(
        "deployment.apps/web
         REVISION CHANGE-CAUSE
         1 <none>
         2 <none>",
    )?;
    ground.run("rollout history deploy/web --revision=1").await?.prints(
        "deployment.apps/web with revision #1
         Pod Template:
         Labels: app=web
         pod-template-hash=*
         Containers:
         nginx:
         Image: nginx:1",
    )?;
    Ok(())
}

pub(super) async fn change_cause(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    until_revision(ground, "nginx:1", 1).await?;
    // Paused, so that the annotation belongs to the second revision alone.
    ground.run("rollout pause deploy/web").await?.prints("*paused")?;
    ground.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    ground.run("annotate deploy web kubernetes.io/change-cause=hello").await?.prints("*annotated")?;
    ground.run("rollout resume deploy/web").await?.prints("*resumed")?;
    until_revision(ground, "nginx:2", 2).await?;
    ground
        .until("the cause in the history", async || {
            let told = ground.run("rollout history deploy/web").await?;
            let newest = told.lines().last().copied().unwrap_or_default().to_owned();
            Ok((newest.split_whitespace().collect::<Vec<_>>() == ["2", "hello"]).then_some(()))
        })
        .await
}

pub(super) async fn undo(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let first = until_revision(ground, "nginx:1", 1).await?;
    ground
        .run("rollout undo deploy/web")
        .await?
        .fails("error: no rollout history found for deployment \"web\"")?;
    revision(ground, "nginx:2", 2).await?;
    ground.run("rollout undo deploy/web --to-revision=2").await?.prints_exactly(
        "deployment.apps/web skipped rollback (current template already matches revision 2)",
    )?;
    ground
        .run("rollout undo deploy/web --to-revision=99")
        .await?
        .fails("error: unable to find specified revision 99 in history")?;
    ground.run("rollout undo deploy/web").await?.prints_exactly("deployment.apps/web rolled back")?;
    let back = until_revision(ground, "nginx:1", 3).await?;
    same("the ReplicaSet", &name(&back), &name(&first))?;
    same("the number of ReplicaSets", &ground.items("replicasets").await?.len(), &2)?;
    ground.run("rollout pause deploy/web").await?.prints("*paused")?;
    ground.run("rollout undo deploy/web").await?.fails(
        "error: you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume*' and try again",
    )?;
    Ok(())
}

pub(super) async fn pause(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    until_revision(ground, "nginx:1", 1).await?;
    ground.run("rollout pause deploy/web").await?.prints_exactly("deployment.apps/web paused")?;
    ground
        .run("rollout pause deploy/web")
        .await?
        .fails("error: deployments.apps \"web\" is already paused")?;
    ground.run("rollout restart deploy/web").await?.fails(
        "error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)",
    )?;
    ground.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    // The controller has seen it and left it.
    ground
        .until_object("deployments/web", "the controller's answer", |web| {
            web["status"]["observedGeneration"] == generation(web)
        })
        .await?;
    ground.run("get rs -o name").await?.prints_exactly("replicaset.apps/web-*")?;
    ground.run("rollout resume deploy/web").await?.prints_exactly("deployment.apps/web resumed")?;
    until_revision(ground, "nginx:2", 2).await?;
    ground.run("get rs -o name").await?.prints_exactly("replicaset.apps/web-*\nreplicaset.apps/web-*")?;
    ground.run("rollout resume deploy/web").await?.fails("error: deployments.apps \"web\" is not paused")?;
    Ok(())
}

pub(super) async fn restart(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    until_revision(ground, "nginx:1", 1).await?;
    let began = until_revision(ground, "nginx:1", 1).await?;
    ground.run("rollout restart deploy/web").await?.prints_exactly("deployment.apps/web restarted")?;
    let second = until_revision(ground, "nginx:1", 2).await?;
    // The annotation is the time in whole seconds.
    let restarted = |set: &Value| {
        let annotations = &set["spec"]["template"]["metadata"]["annotations"];
        annotations["kubectl.kubernetes.io/restartedAt"].as_str().unwrap_or_default().to_owned()
    };
    ensure(restarted(&began).is_empty() && !restarted(&second).is_empty(), || {
        format!("the template is {second}")
    })?;
    ground
        .until("a restart in another second", async || {
            let restart = ground.run("rollout restart deploy/web").await?;
            if restart.code == Some(1)
                && restart.stderr.contains("if restart has already been triggered within the past second")
            {
                return Ok(None);
            }
            restart.prints_exactly("deployment.apps/web restarted")?;
            Ok(Some(()))
        })
        .await?;
    let third = until_revision(ground, "nginx:1", 3).await?;
    ensure(restarted(&third) > restarted(&second), || "the annotation is the same".to_owned())
}

pub(super) async fn deadline(ground: &Ground) -> Judged {
    ground.apply_web(&web_with(&["progressDeadlineSeconds: 2"]).replace("nginx:1", "nginx:broken")).await?;
    let told = ground.run("rollout status deploy/web").await?;
    told.fails("error: deployment \"web\" exceeded its progress deadline")?;
    if ground.sandbox.is_none() {
        return Ok(());
    }
    ground.run("get pods").await?.prints("web-* 0/1 ImagePullBackOff 0 *")?;
    // The same asked for by annotation.
    let never = web_with(&["progressDeadlineSeconds: 2"])
        .replace("name: web\n", "name: never\n")
        .replace("        app: web\n", "        app: web\n      annotations: {kube-sandbox/ready: never}\n");
    ground.file("never.yaml", &never)?;
    ground.run("apply -f never.yaml").await?.prints("deployment.apps/never created")?;
    ground
        .run("rollout status deploy/never")
        .await?
        .fails("error: deployment \"never\" exceeded its progress deadline")?;
    Ok(())
}

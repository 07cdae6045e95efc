//! Checks 8, 39, 42 to 47: rollouts.

use serde_json::{Value, json};

use super::CheckResult;
use crate::{
    failure::{Failure, ensure, same},
    manifests::{WEB, web_with},
    objects::{generation, name},
    test_env::TestEnv,
};

pub(super) async fn status(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    env.run("rollout status deploy/web").await?.prints("deployment \"web\" successfully rolled out")?;
    // Paused, so that the rollout does not complete before kubectl has read the status.
    env.run("rollout pause deploy/web").await?.prints("*paused")?;
    env.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    let mut status = env.start("rollout status deploy/web")?;
    status.until("Waiting for deployment \"web\" rollout to finish: *").await?;
    env.run("rollout resume deploy/web").await?.prints("*resumed")?;
    status.until("deployment \"web\" successfully rolled out").await?;
    let web = env.object("deployments/web").await?;
    same("the ready replicas", &web["status"]["readyReplicas"], &json!(3))
}

/// Changes the image and waits for the new revision.
async fn revision(env: &TestEnv, image: &str, number: u32) -> CheckResult {
    env.run(&format!("set image deploy/web nginx={image}"))
        .await?
        .prints("deployment.apps/web image updated")?;
    until_revision(env, image, number).await?;
    Ok(())
}

async fn until_revision(env: &TestEnv, image: &str, number: u32) -> Result<Value, Failure> {
    env.until(&format!("revision {number} with {image}"), async || {
        let web = env.object("deployments/web").await?;
        let number = number.to_string();
        let is = |object: &Value| {
            object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == number.as_str()
                && object["spec"]["template"]["spec"]["containers"][0]["image"] == image
        };
        let set = env.items("replicasets").await?.into_iter().find(|set| is(set));
        Ok(set.filter(|_| is(&web)))
    })
    .await
}

pub(super) async fn scale_replica_set(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let set = until_revision(env, "nginx:1", 1).await?;
    let mut watch = env.watch("replicasets").await?;
    env.run(&format!("scale rs/{} --replicas=9", name(&set))).await?.prints("replicaset.apps/* scaled")?;
    let replicas = |object: &Value| object["spec"]["replicas"].as_i64();
    watch.until(|event| replicas(&event.object) == Some(9)).await?;
    watch.until(|event| replicas(&event.object) == Some(3)).await?;
    Ok(())
}

pub(super) async fn history(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    until_revision(env, "nginx:1", 1).await?;
    revision(env, "nginx:2", 2).await?;
    env.run("rollout history deploy/web").await?.prints_exactly(
        "deployment.apps/web
         REVISION CHANGE-CAUSE
         1 <none>
         2 <none>",
    )?;
    env.run("rollout history deploy/web --revision=1").await?.prints(
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

pub(super) async fn change_cause(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    until_revision(env, "nginx:1", 1).await?;
    // Paused, so that only the second revision has the annotation.
    env.run("rollout pause deploy/web").await?.prints("*paused")?;
    env.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    env.run("annotate deploy web kubernetes.io/change-cause=hello").await?.prints("*annotated")?;
    env.run("rollout resume deploy/web").await?.prints("*resumed")?;
    until_revision(env, "nginx:2", 2).await?;
    env.until("the change cause in the history", async || {
        let history = env.run("rollout history deploy/web").await?;
        let newest = history.lines().last().copied().unwrap_or_default().to_owned();
        Ok((newest.split_whitespace().collect::<Vec<_>>() == ["2", "hello"]).then_some(()))
    })
    .await
}

pub(super) async fn undo(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let first = until_revision(env, "nginx:1", 1).await?;
    env.run("rollout undo deploy/web")
        .await?
        .fails("error: no rollout history found for deployment \"web\"")?;
    revision(env, "nginx:2", 2).await?;
    env.run("rollout undo deploy/web --to-revision=2").await?.prints_exactly(
        "deployment.apps/web skipped rollback (current template already matches revision 2)",
    )?;
    env.run("rollout undo deploy/web --to-revision=99")
        .await?
        .fails("error: unable to find specified revision 99 in history")?;
    env.run("rollout undo deploy/web").await?.prints_exactly("deployment.apps/web rolled back")?;
    let back = until_revision(env, "nginx:1", 3).await?;
    same("the ReplicaSet", &name(&back), &name(&first))?;
    same("the number of ReplicaSets", &env.items("replicasets").await?.len(), &2)?;
    env.run("rollout pause deploy/web").await?.prints("*paused")?;
    env.run("rollout undo deploy/web").await?.fails(
        "error: you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume*' and try again",
    )?;
    Ok(())
}

pub(super) async fn pause(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    until_revision(env, "nginx:1", 1).await?;
    env.run("rollout pause deploy/web").await?.prints_exactly("deployment.apps/web paused")?;
    env.run("rollout pause deploy/web").await?.fails("error: deployments.apps \"web\" is already paused")?;
    env.run("rollout restart deploy/web").await?.fails(
        "error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)",
    )?;
    env.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    // The controller has observed the change.
    env.until_object("deployments/web", "the observed generation", |web| {
        web["status"]["observedGeneration"] == generation(web)
    })
    .await?;
    env.run("get rs -o name").await?.prints_exactly("replicaset.apps/web-*")?;
    env.run("rollout resume deploy/web").await?.prints_exactly("deployment.apps/web resumed")?;
    until_revision(env, "nginx:2", 2).await?;
    env.run("get rs -o name").await?.prints_exactly("replicaset.apps/web-*\nreplicaset.apps/web-*")?;
    env.run("rollout resume deploy/web").await?.fails("error: deployments.apps \"web\" is not paused")?;
    Ok(())
}

pub(super) async fn restart(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    until_revision(env, "nginx:1", 1).await?;
    let began = until_revision(env, "nginx:1", 1).await?;
    env.run("rollout restart deploy/web").await?.prints_exactly("deployment.apps/web restarted")?;
    let second = until_revision(env, "nginx:1", 2).await?;
    // The value of the annotation has a resolution of one second.
    let restarted = |set: &Value| {
        let annotations = &set["spec"]["template"]["metadata"]["annotations"];
        annotations["kubectl.kubernetes.io/restartedAt"].as_str().unwrap_or_default().to_owned()
    };
    ensure(restarted(&began).is_empty() && !restarted(&second).is_empty(), || {
        format!("ReplicaSet: {second}")
    })?;
    env.until("a restart in another second", async || {
        let restart = env.run("rollout restart deploy/web").await?;
        if restart.code == Some(1)
            && restart.stderr.contains("if restart has already been triggered within the past second")
        {
            return Ok(None);
        }
        restart.prints_exactly("deployment.apps/web restarted")?;
        Ok(Some(()))
    })
    .await?;
    let third = until_revision(env, "nginx:1", 3).await?;
    ensure(restarted(&third) > restarted(&second), || "the annotation is the same".to_owned())
}

pub(super) async fn deadline(env: &TestEnv) -> CheckResult {
    env.apply_web(&web_with(&["progressDeadlineSeconds: 2"]).replace("nginx:1", "nginx:broken")).await?;
    let status = env.run("rollout status deploy/web").await?;
    status.fails("error: deployment \"web\" exceeded its progress deadline")?;
    if env.sandbox.is_none() {
        return Ok(());
    }
    env.run("get pods").await?.prints("web-* 0/1 ImagePullBackOff 0 *")?;
    // Not ready, by annotation.
    let never = web_with(&["progressDeadlineSeconds: 2"])
        .replace("name: web\n", "name: never\n")
        .replace("        app: web\n", "        app: web\n      annotations: {kube-sandbox/ready: never}\n");
    env.file("never.yaml", &never)?;
    env.run("apply -f never.yaml").await?.prints("deployment.apps/never created")?;
    env.run("rollout status deploy/never")
        .await?
        .fails("error: deployment \"never\" exceeded its progress deadline")?;
    Ok(())
}

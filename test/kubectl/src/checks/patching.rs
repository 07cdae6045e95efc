//! Checks 32 to 38, 40, 41, 61, 65: updates of existing objects.

use serde_json::{Value, json};

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    manifests::WEB,
    objects::{generation, revision},
    test_env::TestEnv,
};

fn image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn container_env(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["env"]
}

pub(super) async fn edit(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let editor = env.with("KUBE_EDITOR", "sed -i s/nginx:1/nginx:2/");
    editor.run("edit deploy web").await?.prints_exactly("deployment.apps/web edited")?;
    same("the image", image(&env.object("deployments/web").await?), &json!("nginx:2"))?;
    let nothing = env.with("KUBE_EDITOR", "true").run("edit deploy web").await?;
    nothing.exits(0)?.warns("Edit cancelled, no changes made.")?;
    Ok(())
}

pub(super) async fn edit_to_invalid(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    // The first change is rejected; the second edit changes nothing and ends the command.
    let editor =
        "[ -e seen ] && cp \"$1\" seen || { touch seen; sed -i 's/replicas: 3/replicas: -3/' \"$1\"; }\n";
    env.file("editor.sh", editor)?;
    let edited = env.with("KUBE_EDITOR", "sh editor.sh").run("edit deploy web").await?;
    edited.fails("A copy of your changes has been stored to \"*\"\nerror: Edit cancelled, no valid changes were saved.")?;
    let kept = edited.stderr.split('"').find(|part| part.contains("-edit-") && part.contains('/'));
    let kept = kept.ok_or_else(|| edited.failure("prints no file name"))?;
    ensure(std::fs::read_to_string(kept)?.contains("replicas: -3"), || {
        format!("{kept} does not contain the change")
    })?;
    let reopened = std::fs::read_to_string(env.folder().join("seen"))?;
    let expected = "# deployments.apps \"web\" was not valid:\n# * spec.replicas: Invalid value: -3: must be greater than or equal to 0";
    ensure(reopened.contains(expected), || {
        format!("the reopened file does not contain {expected:?}:\n{reopened}")
    })?;
    same("replicas", &env.object("deployments/web").await?["spec"]["replicas"], &json!(3))
}

pub(super) async fn patch(env: &TestEnv) -> CheckResult {
    env.apply_web(&WEB.replace("  name: web\n", "  name: web\n  labels: {tier: x}\n")).await?;
    let patched = "deployment.apps/web patched";
    let unchanged = "deployment.apps/web patched (no change)";
    for line in [
        r#"patch deploy web -p '{"spec":{"minReadySeconds":1}}'"#,
        r#"patch deploy web --type=merge -p '{"spec":{"revisionHistoryLimit":3}}'"#,
    ] {
        env.run(line).await?.prints_exactly(patched)?;
        // A concurrent status update would count as a change.
        env.until_unchanged("web").await?;
        env.run(line).await?.prints_exactly(unchanged)?;
    }
    let remove = r#"patch deploy web --type=json -p '[{"op":"remove","path":"/metadata/labels/tier"}]'"#;
    env.run(remove).await?.prints_exactly(patched)?;
    env.run(remove)
        .await?
        .fails("The request is invalid: the server rejected our request due to an error in our request")?;
    let web = env.object("deployments/web").await?;
    let spec = &web["spec"];
    same("the spec", &(&spec["minReadySeconds"], &spec["revisionHistoryLimit"]), &(&json!(1), &json!(3)))?;
    same("the label", &web["metadata"]["labels"]["tier"], &json!(null))
}

pub(super) async fn failing_test(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let line = "patch deploy web --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/minReadySeconds\",\"value\":9},\
                {\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":7}]'";
    env.run(line)
        .await?
        .fails("The request is invalid: the server rejected our request due to an error in our request")?;
    same("the field", &env.object("deployments/web").await?["spec"]["minReadySeconds"], &json!(null))
}

pub(super) async fn strategic(env: &TestEnv) -> CheckResult {
    let with_env =
        |env: &str| WEB.replace("image: nginx:1\n", &format!("image: nginx:1\n        env: [{env}]\n"));
    env.apply_web(&with_env("{name: A, value: a}, {name: B, value: b}")).await?;
    env.apply_web(&with_env("{name: B, value: b}")).await?;
    same(
        "the environment",
        container_env(&env.object("deployments/web").await?),
        &json!([{ "name": "B", "value": "b" }]),
    )?;

    let replace = "patch deploy web -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"$patch\":\"replace\"},\
                   {\"name\":\"busybox\",\"image\":\"busybox:1\"}]}}}}'";
    env.run(replace).await?.prints_exactly("deployment.apps/web patched")?;
    let web = env.object("deployments/web").await?;
    let containers = web["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    ensure(containers.len() == 1 && containers[0]["name"] == "busybox", || {
        format!("the containers are {containers:?}")
    })?;

    env.apply_web(&crate::manifests::web_with(&["strategy: {type: Recreate}"])).await?;
    same(
        "the strategy",
        &env.object("deployments/web").await?["spec"]["strategy"],
        &json!({ "type": "Recreate" }),
    )
}

pub(super) async fn set(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    for (revision, line) in [
        (2, "set image deploy/web nginx=nginx:2"),
        (3, "set env deploy/web A=B"),
        (4, "set resources deploy/web --limits=cpu=1"),
    ] {
        // Each revision must exist before the next change.
        until_revisions(env, revision - 1).await?;
        env.run(line).await?.prints_exactly("deployment.apps/web * updated")?;
    }
    until_revisions(env, 4).await?;
    let web = env.object("deployments/web").await?;
    same("the image", image(&web), &json!("nginx:2"))?;
    same("the environment", container_env(&web), &json!([{ "name": "A", "value": "B" }]))?;
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    same("the limits", &container["resources"]["limits"], &json!({ "cpu": "1" }))
}

async fn until_revisions(env: &TestEnv, count: usize) -> CheckResult {
    env.until(&format!("revision {count}"), async || {
        Ok((env.items("replicasets").await?.len() >= count).then_some(()))
    })
    .await
}

pub(super) async fn scale(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    env.run("scale deploy web --replicas=5").await?.prints_exactly("deployment.apps/web scaled")?;
    let conditional = env.run("scale deploy web --current-replicas=5 --replicas=4 -v=6").await?;
    conditional.prints_exactly("deployment.apps/web scaled")?;
    ensure(
        conditional
            .requests()
            .iter()
            .any(|request| request.starts_with("PUT ") && request.ends_with("/scale")),
        || conditional.failure("does not PUT a Scale").to_string(),
    )?;
    env.run("scale deploy web --current-replicas=1 --replicas=9")
        .await?
        .fails("error: Expected replicas to be 1, was 4")?;
    same("replicas", &env.object("deployments/web").await?["spec"]["replicas"], &json!(4))?;
    // Since 1.32, the error contains the reason.
    let reason = if env.version().is_at_least(32) { " deployments.apps \"nope\" not found" } else { "" };
    env.run("scale deploy/nope --replicas=1")
        .await?
        .fails(&format!("error: no objects passed to scale{reason}"))?;
    Ok(())
}

pub(super) async fn scale_subresource(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    env.run(r#"patch deploy web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'"#)
        .await?
        .prints_exactly("scale.autoscaling/web patched")?;
    let scale = env.run("get deploy web --subresource=scale -o json").await?;
    scale.exits(0)?;
    let scale: Value = serde_json::from_str(&scale.stdout).unwrap_or_default();
    same("the kind", &(&scale["apiVersion"], &scale["kind"]), &(&json!("autoscaling/v1"), &json!("Scale")))?;
    same("the spec", &scale["spec"], &json!({ "replicas": 2 }))?;
    same("the selector", &scale["status"]["selector"], &json!("app=web"))?;
    env
        .run(r#"patch deploy web --subresource=scale --type=merge -p '{"spec":{"replicas":-2}}'"#)
        .await?
        .fails(
        "The Scale \"web\" is invalid: spec.replicas: Invalid value: -2: must be greater than or equal to 0",
    )?;
    same("replicas", &env.object("deployments/web").await?["spec"]["replicas"], &json!(2))
}

pub(super) async fn status_subresource(env: &TestEnv) -> CheckResult {
    env.apply_web(&WEB.replace("replicas: 3", "replicas: 0")).await?;
    let before = env.until_unchanged("web").await?;
    env.run(r#"patch deploy web --subresource=status --type=merge -p '{"status":{"collisionCount":1}}'"#)
        .await?
        .prints_exactly("deployment.apps/web patched")?;
    let after = env.object("deployments/web").await?;
    same("the collision count", &after["status"]["collisionCount"], &json!(1))?;
    same("the generation", &generation(&after), &generation(&before))?;
    let main = r#"patch deploy web --type=merge -p '{"status":{"collisionCount":7},"metadata":{"labels":{"a":"b"}}}'"#;
    env.run(main).await?.prints("deployment.apps/web patched")?;
    let after = env.object("deployments/web").await?;
    same("the label", &after["metadata"]["labels"]["a"], &json!("b"))?;
    same("the collision count", &after["status"]["collisionCount"], &json!(1))
}

pub(super) async fn replace(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    // kubectl does not retry conflicts.
    env.until_unchanged("web").await?;
    env.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    env.run("replace -f web.yaml").await?.prints_exactly("deployment.apps/web replaced")?;
    let web = env.object("deployments/web").await?;
    same("the image", image(&web), &json!("nginx:2"))?;

    let mut stale = web.clone();
    stale["metadata"]["resourceVersion"] = json!((revision(&web) - 1).to_string());
    let refused = env.http.put(&env.path("deployments/web"), &stale).await?.expect(409)?;
    same("the reason", &refused["reason"], &json!("Conflict"))?;
    same(
        "the message",
        &refused["message"],
        &json!(
            "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply \
             your changes to the latest version and try again"
        ),
    )?;
    same("the kind of the details", &refused["details"]["kind"], &json!("deployments"))?;

    let forced = env.run("replace --force -f web.yaml").await?;
    forced.prints("deployment.apps \"web\" deleted*\ndeployment.apps/web replaced")?;
    let again = env.object("deployments/web").await?;
    ensure(again["metadata"]["uid"] != web["metadata"]["uid"], || "the UID is the same".to_owned())
}

pub(super) async fn label(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    env.run("label deploy web tier=x").await?.prints_exactly("deployment.apps/web labeled")?;
    env.run("annotate deploy web note=y").await?.prints_exactly("deployment.apps/web annotated")?;
    env.run("label deploy web tier=z")
        .await?
        .fails("error: 'tier' already has a value (x), and --overwrite is false")?;
    env.run("label deploy web tier=z --overwrite").await?.prints_exactly("deployment.apps/web labeled")?;
    env.run("label deploy web tier-").await?.prints_exactly("deployment.apps/web unlabeled")?;
    let metadata = env.object("deployments/web").await?["metadata"].take();
    same("the label", &metadata["labels"]["tier"], &json!(null))?;
    same("the annotation", &metadata["annotations"]["note"], &json!("y"))
}

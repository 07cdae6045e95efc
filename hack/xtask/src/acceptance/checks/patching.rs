//! 32 to 38, 40, 41, 61, 65: changing what is there.

use serde_json::{Value, json};

use super::Judged;
use crate::acceptance::{
    failure::{ensure, same},
    ground::{Ground, generation, revision},
    manifests::WEB,
};

fn image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn env(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["env"]
}

pub(super) async fn edit(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let editor = ground.with("KUBE_EDITOR", "sed -i s/nginx:1/nginx:2/");
    editor.run("edit deploy web").await?.prints_exactly("deployment.apps/web edited")?;
    same("the image", image(&ground.object("deployments/web").await?), &json!("nginx:2"))?;
    let nothing = ground.with("KUBE_EDITOR", "true").run("edit deploy web").await?;
    nothing.exits(0)?.warns("Edit cancelled, no changes made.")?;
    Ok(())
}

pub(super) async fn edit_to_invalid(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    // First a change that is refused, then none, which ends it.
    let editor =
        "[ -e seen ] && cp \"$1\" seen || { touch seen; sed -i 's/replicas: 3/replicas: -3/' \"$1\"; }\n";
    ground.file("editor.sh", editor)?;
    let edited = ground.with("KUBE_EDITOR", "sh editor.sh").run("edit deploy web").await?;
    edited.fails("A copy of your changes has been stored to \"*\"\nerror: Edit cancelled, no valid changes were saved.")?;
    let kept = edited.stderr.split('"').find(|part| part.contains("-edit-") && part.contains('/'));
    let kept = kept.ok_or_else(|| edited.but("names no file"))?;
    ensure(std::fs::read_to_string(kept)?.contains("replicas: -3"), || {
        format!("{kept} has lost the change")
    })?;
    let reopened = std::fs::read_to_string(ground.folder().join("seen"))?;
    let told = "# deployments.apps \"web\" was not valid:\n# * spec.replicas: Invalid value: -3: must be greater than or equal to 0";
    ensure(reopened.contains(told), || format!("what was opened again does not say {told:?}:\n{reopened}"))?;
    same("replicas", &ground.object("deployments/web").await?["spec"]["replicas"], &json!(3))
}

pub(super) async fn patch(ground: &Ground) -> Judged {
    ground.apply_web(&WEB.replace("  name: web\n", "  name: web\n  labels: {tier: x}\n")).await?;
    let patched = "deployment.apps/web patched";
    let unchanged = "deployment.apps/web patched (no change)";
    for line in [
        r#"patch deploy web -p '{"spec":{"minReadySeconds":1}}'"#,
        r#"patch deploy web --type=merge -p '{"spec":{"revisionHistoryLimit":3}}'"#,
    ] {
        ground.run(line).await?.prints_exactly(patched)?;
        // A status that is written meanwhile counts as a change to kubectl.
        ground.at_rest("web").await?;
        ground.run(line).await?.prints_exactly(unchanged)?;
    }
    let remove = r#"patch deploy web --type=json -p '[{"op":"remove","path":"/metadata/labels/tier"}]'"#;
    ground.run(remove).await?.prints_exactly(patched)?;
    ground
        .run(remove)
        .await?
        .fails("The request is invalid: the server rejected our request due to an error in our request")?;
    let web = ground.object("deployments/web").await?;
    let spec = &web["spec"];
    same("the spec", &(&spec["minReadySeconds"], &spec["revisionHistoryLimit"]), &(&json!(1), &json!(3)))?;
    same("the label", &web["metadata"]["labels"]["tier"], &json!(null))
}

pub(super) async fn failing_test(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let line = "patch deploy web --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/minReadySeconds\",\"value\":9},\
                {\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":7}]'";
    ground
        .run(line)
        .await?
        .fails("The request is invalid: the server rejected our request due to an error in our request")?;
    same("the field", &ground.object("deployments/web").await?["spec"]["minReadySeconds"], &json!(null))
}

pub(super) async fn strategic(ground: &Ground) -> Judged {
    let with_env =
        |env: &str| WEB.replace("image: nginx:1\n", &format!("image: nginx:1\n        env: [{env}]\n"));
    ground.apply_web(&with_env("{name: A, value: a}, {name: B, value: b}")).await?;
    ground.apply_web(&with_env("{name: B, value: b}")).await?;
    same(
        "the environment",
        env(&ground.object("deployments/web").await?),
        &json!([{ "name": "B", "value": "b" }]),
    )?;

    let replace = "patch deploy web -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"$patch\":\"replace\"},\
                   {\"name\":\"busybox\",\"image\":\"busybox:1\"}]}}}}'";
    ground.run(replace).await?.prints_exactly("deployment.apps/web patched")?;
    let web = ground.object("deployments/web").await?;
    let containers = web["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    ensure(containers.len() == 1 && containers[0]["name"] == "busybox", || {
        format!("the containers are {containers:?}")
    })?;

    ground.apply_web(&crate::acceptance::manifests::web_with(&["strategy: {type: Recreate}"])).await?;
    same(
        "the strategy",
        &ground.object("deployments/web").await?["spec"]["strategy"],
        &json!({ "type": "Recreate" }),
    )
}

pub(super) async fn set(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    for (revision, line) in [
        (2, "set image deploy/web nginx=nginx:2"),
        (3, "set env deploy/web A=B"),
        (4, "set resources deploy/web --limits=cpu=1"),
    ] {
        // A revision is there before the next is asked for, or there would be fewer.
        until_revisions(ground, revision - 1).await?;
        ground.run(line).await?.prints_exactly("deployment.apps/web * updated")?;
    }
    until_revisions(ground, 4).await?;
    let web = ground.object("deployments/web").await?;
    same("the image", image(&web), &json!("nginx:2"))?;
    same("the environment", env(&web), &json!([{ "name": "A", "value": "B" }]))?;
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    same("the limits", &container["resources"]["limits"], &json!({ "cpu": "1" }))
}

async fn until_revisions(ground: &Ground, count: usize) -> Judged {
    ground
        .until(&format!("revision {count}"), async || {
            Ok((ground.items("replicasets").await?.len() >= count).then_some(()))
        })
        .await
}

pub(super) async fn scale(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    ground.run("scale deploy web --replicas=5").await?.prints_exactly("deployment.apps/web scaled")?;
    let conditional = ground.run("scale deploy web --current-replicas=5 --replicas=4 -v=6").await?;
    conditional.prints_exactly("deployment.apps/web scaled")?;
    ensure(
        conditional
            .requests()
            .iter()
            .any(|request| request.starts_with("PUT ") && request.ends_with("/scale")),
        || conditional.but("does not PUT a Scale").to_string(),
    )?;
    ground
        .run("scale deploy web --current-replicas=1 --replicas=9")
        .await?
        .fails("error: Expected replicas to be 1, was 4")?;
    same("replicas", &ground.object("deployments/web").await?["spec"]["replicas"], &json!(4))?;
    // From 1.32 on it says why.
    let why = if ground.version().is_at_least(32) { " deployments.apps \"nope\" not found" } else { "" };
    ground
        .run("scale deploy/nope --replicas=1")
        .await?
        .fails(&format!("error: no objects passed to scale{why}"))?;
    Ok(())
}

pub(super) async fn scale_subresource(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    ground
        .run(r#"patch deploy web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'"#)
        .await?
        .prints_exactly("scale.autoscaling/web patched")?;
    let scale = ground.run("get deploy web --subresource=scale -o json").await?;
    scale.exits(0)?;
    let scale: Value = serde_json::from_str(&scale.stdout).unwrap_or_default();
    same("the kind", &(&scale["apiVersion"], &scale["kind"]), &(&json!("autoscaling/v1"), &json!("Scale")))?;
    same("the spec", &scale["spec"], &json!({ "replicas": 2 }))?;
    same("the selector", &scale["status"]["selector"], &json!("app=web"))?;
    ground
        .run(r#"patch deploy web --subresource=scale --type=merge -p '{"spec":{"replicas":-2}}'"#)
        .await?
        .fails(
        "The Scale \"web\" is invalid: spec.replicas: Invalid value: -2: must be greater than or equal to 0",
    )?;
    same("replicas", &ground.object("deployments/web").await?["spec"]["replicas"], &json!(2))
}

pub(super) async fn status_subresource(ground: &Ground) -> Judged {
    ground.apply_web(&WEB.replace("replicas: 3", "replicas: 0")).await?;
    let before = ground.at_rest("web").await?;
    ground
        .run(r#"patch deploy web --subresource=status --type=merge -p '{"status":{"collisionCount":1}}'"#)
        .await?
        .prints_exactly("deployment.apps/web patched")?;
    let after = ground.object("deployments/web").await?;
    same("the collision count", &after["status"]["collisionCount"], &json!(1))?;
    same("the generation", &generation(&after), &generation(&before))?;
    let main = r#"patch deploy web --type=merge -p '{"status":{"collisionCount":7},"metadata":{"labels":{"a":"b"}}}'"#;
    ground.run(main).await?.prints("deployment.apps/web patched")?;
    let after = ground.object("deployments/web").await?;
    same("the label", &after["metadata"]["labels"]["a"], &json!("b"))?;
    same("the collision count", &after["status"]["collisionCount"], &json!(1))
}

pub(super) async fn replace(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    // kubectl reads and writes, and tries once.
    ground.at_rest("web").await?;
    ground.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    ground.run("replace -f web.yaml").await?.prints_exactly("deployment.apps/web replaced")?;
    let web = ground.object("deployments/web").await?;
    same("the image", image(&web), &json!("nginx:2"))?;

    let mut stale = web.clone();
    stale["metadata"]["resourceVersion"] = json!((revision(&web) - 1).to_string());
    let refused = ground.wire.put(&ground.path("deployments/web"), &stale).await?.expect(409)?;
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

    let forced = ground.run("replace --force -f web.yaml").await?;
    forced.prints("deployment.apps \"web\" deleted*\ndeployment.apps/web replaced")?;
    let again = ground.object("deployments/web").await?;
    ensure(again["metadata"]["uid"] != web["metadata"]["uid"], || "the UID is the same".to_owned())
}

pub(super) async fn label(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    ground.run("label deploy web tier=x").await?.prints_exactly("deployment.apps/web labeled")?;
    ground.run("annotate deploy web note=y").await?.prints_exactly("deployment.apps/web annotated")?;
    ground
        .run("label deploy web tier=z")
        .await?
        .fails("error: 'tier' already has a value (x), and --overwrite is false")?;
    ground.run("label deploy web tier=z --overwrite").await?.prints_exactly("deployment.apps/web labeled")?;
    ground.run("label deploy web tier-").await?.prints_exactly("deployment.apps/web unlabeled")?;
    let metadata = ground.object("deployments/web").await?["metadata"].take();
    same("the label", &metadata["labels"]["tier"], &json!(null))?;
    same("the annotation", &metadata["annotations"]["note"], &json!("y"))
}

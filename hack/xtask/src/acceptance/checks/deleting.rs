//! 52 to 60, 62: deleting, and what goes with it.

use serde_json::json;

use super::Judged;
use crate::acceptance::{
    failure::{Failure, ensure, same},
    ground::{Ground, generation, name},
    kubectl::Kubectl,
    manifests::WEB,
    wire::Event,
};

async fn first_pod(ground: &Ground) -> Result<String, Failure> {
    let pods = ground.names("pods").await?;
    pods.into_iter().next().ok_or_else(|| Failure::new("there is no pod"))
}

pub(super) async fn pod(ground: &Ground) -> Judged {
    ground.web().await?;
    let victim = first_pod(ground).await?;
    let mut watch = ground.watch("pods").await?;
    let deleted = ground.run(&format!("delete pod {victim}")).await?;
    deleted.prints(&format!("pod \"{victim}\" deleted*"))?;
    ensure(!ground.exists(&format!("pods/{victim}")).await?, || "kubectl did not wait".to_owned())?;
    let events = watch.until(|event| event.kind == "DELETED" && event.name() == victim).await?;
    let position = |what: &dyn Fn(&Event) -> bool| events.iter().position(what);
    let terminating = position(&|event| {
        event.name() == victim
            && event.kind == "MODIFIED"
            && event.object["metadata"]["deletionTimestamp"].is_string()
            && event.object["metadata"]["deletionGracePeriodSeconds"] == 30
    });
    let replaced = position(&|event| event.kind == "ADDED" && event.name() != victim);
    ensure(terminating.is_some() && terminating < replaced, || {
        let told: Vec<_> = events.iter().map(|event| format!("{} {}", event.kind, event.name())).collect();
        format!("terminating, then replaced, then gone was wanted: {told:?}")
    })?;
    ground.rolled_out("web").await?;
    Ok(())
}

pub(super) async fn pod_at_once(ground: &Ground) -> Judged {
    ground.web().await?;
    let victim = first_pod(ground).await?;
    let mut watch = ground.watch("pods").await?;
    let forced = ground.run(&format!("delete pod {victim} --grace-period=0 --force")).await?;
    forced
        .prints(&format!("pod \"{victim}\" force deleted*"))?
        .warns("Warning: Immediate deletion does not wait *")?;
    let events = watch.until(|event| event.kind == "DELETED" && event.name() == victim).await?;
    // It is marked, and removed in the same breath.
    let of_victim: Vec<_> = events.iter().filter(|event| event.name() == victim).collect();
    let told: Vec<_> = of_victim
        .iter()
        .map(|event| (event.kind.as_str(), event.object["metadata"]["deletionGracePeriodSeconds"].as_i64()))
        .collect();
    same("what the watch tells", &told, &vec![("MODIFIED", Some(0)), ("DELETED", Some(0))])?;

    // One without a node would need no grace.
    ground.rolled_out("web").await?;
    let victim = first_pod(ground).await?;
    let mut watch = ground.watch("pods").await?;
    ground.run(&format!("delete pod {victim} --now")).await?.prints(&format!("pod \"{victim}\" deleted*"))?;
    let events = watch
        .until(|event| event.name() == victim && event.object["metadata"]["deletionTimestamp"].is_string())
        .await?;
    let grace = events.last().map(|event| event.object["metadata"]["deletionGracePeriodSeconds"].clone());
    same("the grace period", &grace, &Some(json!(1)))
}

pub(super) async fn deployment(ground: &Ground) -> Judged {
    ground.web().await?;
    let mut watch = ground.watch("deployments").await?;
    ground.run("delete deploy web").await?.prints_exactly("deployment.apps \"web\" deleted*")?;
    ensure(!ground.exists("deployments/web").await?, || "kubectl did not wait".to_owned())?;
    let end = watch.until(|event| event.kind == "DELETED").await?;
    let marked = end.iter().find(|event| event.object["metadata"]["deletionTimestamp"].is_string());
    ensure(marked.is_none(), || format!("it was marked, with nothing to wait for: {marked:?}"))?;
    nothing_left(ground, "replicasets").await?;
    nothing_left(ground, "pods").await
}

async fn nothing_left(ground: &Ground, what: &str) -> Judged {
    ground
        .until(&format!("the end of all {what}"), async || {
            Ok(ground.items(what).await?.is_empty().then_some(()))
        })
        .await
}

pub(super) async fn foreground(ground: &Ground) -> Judged {
    ground.web().await?;
    let mut pods = ground.watch("pods").await?;
    let mut sets = ground.watch("replicasets").await?;
    let mut deployments = ground.watch("deployments").await?;
    ground.run("delete deploy web --cascade=foreground").await?.prints("deployment.apps \"web\" deleted*")?;
    let is_end = |event: &Event| event.kind == "DELETED";
    let events = deployments.until(is_end).await?;
    let marked = events.first().map(|event| event.object["metadata"]["finalizers"].clone());
    same("the finalizers", &marked, &Some(json!(["foregroundDeletion"])))?;
    let deployment = events.last().map_or(0, Event::revision);
    let set = sets.until(is_end).await?.last().map_or(0, Event::revision);
    let mut left = 3;
    let pods = pods
        .until(|event| {
            left -= i32::from(is_end(event));
            left == 0
        })
        .await?;
    let pods = pods.last().map_or(0, Event::revision);
    ensure(pods < set && set < deployment, || {
        format!("the ends of pods, ReplicaSet and Deployment are at {pods}, {set} and {deployment}")
    })
}

pub(super) async fn orphan(ground: &Ground) -> Judged {
    ground.web().await?;
    let pods = ground.names("pods").await?;
    let sets = ground.names("replicasets").await?;
    ground.run("delete deploy web --cascade=orphan").await?.prints("deployment.apps \"web\" deleted*")?;
    ground.until_gone("deployments/web").await?;
    let owners = ground.items("replicasets").await?[0]["metadata"]["ownerReferences"].take();
    ensure(owners.as_array().is_none_or(Vec::is_empty), || format!("the ReplicaSet's owners are {owners}"))?;
    same("the pods", &ground.names("pods").await?, &pods)?;

    ground.run("apply -f web.yaml").await?.prints_exactly("deployment.apps/web created")?;
    let web = ground.rolled_out("web").await?;
    same("the ReplicaSets", &ground.names("replicasets").await?, &sets)?;
    let owner = ground.items("replicasets").await?[0]["metadata"]["ownerReferences"][0]["uid"].take();
    same("the owner", &owner, &web["metadata"]["uid"])?;
    same("the pods", &ground.names("pods").await?, &pods)
}

pub(super) async fn replica_set(ground: &Ground) -> Judged {
    ground.web().await?;
    let before = ground.replica_set_with_image("nginx:1").await?;
    ground.run(&format!("delete rs {}", name(&before))).await?.prints("replicaset.apps \"*\" deleted*")?;
    ground
        .until("another ReplicaSet", async || {
            let sets = ground.items("replicasets").await?;
            Ok(sets.iter().any(|set| set["metadata"]["uid"] != before["metadata"]["uid"]).then_some(()))
        })
        .await?;
    ground.rolled_out("web").await?;
    Ok(())
}

pub(super) async fn namespace(ground: &Ground) -> Judged {
    let team = format!("{}-team", ground.namespace);
    let path = format!("/api/v1/namespaces/{team}");
    ground.file("web.yaml", WEB)?;
    ground.run(&format!("create ns {team}")).await?.prints("*created")?;
    ground.run(&format!("-n {team} create -f web.yaml")).await?.prints("*created")?;
    // Something holds it, so that there is a meanwhile.
    let holder = json!({ "metadata": { "name": "holder", "finalizers": ["example.com/hold"] } });
    let holders = format!("{path}/configmaps");
    ground.wire.post(&holders, &holder).await?.expect(201)?;
    ground
        .run(&format!("delete ns {team} --wait=false"))
        .await?
        .prints(&format!("namespace \"{team}\" deleted"))?;
    ground.run(&format!("get ns {team}")).await?.prints(&format!("{team} Terminating *s"))?;
    ground.run(&format!("-n {team} create deployment x --image=y")).await?.fails(&format!(
        "error: failed to create deployment: deployments.apps \"x\" is forbidden: unable to create new content in \
         namespace {team} because it is being terminated"
    ))?;
    let released = json!({ "metadata": { "finalizers": null } });
    ground.wire.patch(&format!("{holders}/holder"), &released).await?.expect(200)?;
    ground
        .until(
            "the namespace's end",
            async || Ok((ground.wire.get(&path).await?.status == 404).then_some(())),
        )
        .await?;
    let left = ground.wire.get(&format!("/apis/apps/v1/namespaces/{team}/deployments")).await?.expect(200)?;
    same("what is left", &left["items"], &json!([]))
}

pub(super) async fn default_namespace(ground: &Ground) -> Judged {
    ground.run("delete ns default").await?.fails(
        "Error from server (Forbidden): namespaces \"default\" is forbidden: this namespace may not be deleted",
    )?;
    Ok(())
}

pub(super) async fn several(ground: &Ground) -> Judged {
    let team = format!("{}-team", ground.namespace);
    let file = WEB.replacen("  name: web\n", &format!("  name: web\n  namespace: {team}\n"), 1);
    ground.file(
        "multi.yaml",
        &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n---\n{file}"),
    )?;
    let everywhere = Kubectl { namespace: None, ..ground.kubectl.clone() };
    everywhere
        .run("apply -f multi.yaml")
        .await?
        .prints_exactly(&format!("namespace/{team} created\ndeployment.apps/web created"))?;
    everywhere
        .run("delete -f multi.yaml")
        .await?
        .prints_exactly(&format!("namespace \"{team}\" deleted\ndeployment.apps \"web\" deleted*"))?;
    Ok(())
}

pub(super) async fn finalizer(ground: &Ground) -> Judged {
    ground
        .apply_web(&WEB.replace("  name: web\n", "  name: web\n  finalizers: [example.com/hold]\n"))
        .await?;
    let before = ground.object("deployments/web").await?;
    ground.run("delete deploy web --wait=false").await?.prints("deployment.apps \"web\" deleted*")?;
    let held = ground.object("deployments/web").await?;
    ensure(held["metadata"]["deletionTimestamp"].is_string(), || "it is not marked".to_owned())?;
    ensure(generation(&held) > generation(&before), || "the generation is the same".to_owned())?;
    let more = r#"patch deploy web --type=merge -p '{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}'"#;
    ground.run(more).await?.fails(
        "The Deployment \"web\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object \
         is being deleted, found new finalizers []string{\"example.com/more\"}",
    )?;
    let none = r#"patch deploy web --type=merge -p '{"metadata":{"finalizers":null}}'"#;
    ground.run(none).await?.prints("deployment.apps/web patched")?;
    same("what is there", &ground.exists("deployments/web").await?, &false)?;
    Ok(())
}

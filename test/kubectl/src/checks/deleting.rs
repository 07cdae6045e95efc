//! Checks 52 to 60, 62: deletion.

use serde_json::json;

use super::CheckResult;
use crate::{
    failure::{Failure, ensure, same},
    http_client::Event,
    kubectl::Kubectl,
    manifests::WEB,
    objects::{generation, name},
    test_env::TestEnv,
};

async fn first_pod(env: &TestEnv) -> Result<String, Failure> {
    let pods = env.names("pods").await?;
    pods.into_iter().next().ok_or_else(|| Failure::new("no pods"))
}

pub(super) async fn pod(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let victim = first_pod(env).await?;
    let mut watch = env.watch("pods").await?;
    let deleted = env.run(&format!("delete pod {victim}")).await?;
    deleted.prints(&format!("pod \"{victim}\" deleted*"))?;
    ensure(!env.exists(&format!("pods/{victim}")).await?, || {
        "kubectl did not wait for the deletion".to_owned()
    })?;
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
        let order: Vec<_> = events.iter().map(|event| format!("{} {}", event.kind, event.name())).collect();
        format!("expected termination, replacement, removal: {order:?}")
    })?;
    env.until_rolled_out("web").await?;
    Ok(())
}

pub(super) async fn pod_at_once(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let victim = first_pod(env).await?;
    let mut watch = env.watch("pods").await?;
    let forced = env.run(&format!("delete pod {victim} --grace-period=0 --force")).await?;
    forced
        .prints(&format!("pod \"{victim}\" force deleted*"))?
        .warns("Warning: Immediate deletion does not wait *")?;
    let events = watch.until(|event| event.kind == "DELETED" && event.name() == victim).await?;
    // The pod is marked and removed at once.
    let of_victim: Vec<_> = events.iter().filter(|event| event.name() == victim).collect();
    let actual: Vec<_> = of_victim
        .iter()
        .map(|event| (event.kind.as_str(), event.object["metadata"]["deletionGracePeriodSeconds"].as_i64()))
        .collect();
    same("the events", &actual, &vec![("MODIFIED", Some(0)), ("DELETED", Some(0))])?;

    // The pod must have a node: others are deleted without a grace period.
    env.until_rolled_out("web").await?;
    let victim = first_pod(env).await?;
    let mut watch = env.watch("pods").await?;
    env.run(&format!("delete pod {victim} --now")).await?.prints(&format!("pod \"{victim}\" deleted*"))?;
    let events = watch
        .until(|event| event.name() == victim && event.object["metadata"]["deletionTimestamp"].is_string())
        .await?;
    let grace = events.last().map(|event| event.object["metadata"]["deletionGracePeriodSeconds"].clone());
    same("the grace period", &grace, &Some(json!(1)))
}

pub(super) async fn deployment(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let mut watch = env.watch("deployments").await?;
    env.run("delete deploy web").await?.prints_exactly("deployment.apps \"web\" deleted*")?;
    ensure(!env.exists("deployments/web").await?, || "kubectl did not wait for the deletion".to_owned())?;
    let end = watch.until(|event| event.kind == "DELETED").await?;
    let marked = end.iter().find(|event| event.object["metadata"]["deletionTimestamp"].is_string());
    ensure(marked.is_none(), || format!("it has a deletionTimestamp, without a finalizer: {marked:?}"))?;
    until_none_left(env, "replicasets").await?;
    until_none_left(env, "pods").await
}

async fn until_none_left(env: &TestEnv, what: &str) -> CheckResult {
    env.until(&format!("deletion of all {what}"), async || {
        Ok(env.items(what).await?.is_empty().then_some(()))
    })
    .await
}

pub(super) async fn foreground(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let mut pods = env.watch("pods").await?;
    let mut sets = env.watch("replicasets").await?;
    let mut deployments = env.watch("deployments").await?;
    env.run("delete deploy web --cascade=foreground").await?.prints("deployment.apps \"web\" deleted*")?;
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
        format!("resource versions of the deletions: pods {pods}, ReplicaSet {set}, Deployment {deployment}")
    })
}

pub(super) async fn orphan(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let pods = env.names("pods").await?;
    let sets = env.names("replicasets").await?;
    env.run("delete deploy web --cascade=orphan").await?.prints("deployment.apps \"web\" deleted*")?;
    env.until_gone("deployments/web").await?;
    let owners = env.items("replicasets").await?[0]["metadata"]["ownerReferences"].take();
    ensure(owners.as_array().is_none_or(Vec::is_empty), || format!("the ReplicaSet's owners are {owners}"))?;
    same("the pods", &env.names("pods").await?, &pods)?;

    env.run("apply -f web.yaml").await?.prints_exactly("deployment.apps/web created")?;
    let web = env.until_rolled_out("web").await?;
    same("the ReplicaSets", &env.names("replicasets").await?, &sets)?;
    let owner = env.items("replicasets").await?[0]["metadata"]["ownerReferences"][0]["uid"].take();
    same("the owner", &owner, &web["metadata"]["uid"])?;
    same("the pods", &env.names("pods").await?, &pods)
}

pub(super) async fn replica_set(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let before = env.replica_set_with_image("nginx:1").await?;
    env.run(&format!("delete rs {}", name(&before))).await?.prints("replicaset.apps \"*\" deleted*")?;
    env.until("another ReplicaSet", async || {
        let sets = env.items("replicasets").await?;
        Ok(sets.iter().any(|set| set["metadata"]["uid"] != before["metadata"]["uid"]).then_some(()))
    })
    .await?;
    env.until_rolled_out("web").await?;
    Ok(())
}

pub(super) async fn namespace(env: &TestEnv) -> CheckResult {
    let team = format!("{}-team", env.namespace);
    let path = format!("/api/v1/namespaces/{team}");
    env.file("web.yaml", WEB)?;
    env.run(&format!("create ns {team}")).await?.prints("*created")?;
    env.run(&format!("-n {team} create -f web.yaml")).await?.prints("*created")?;
    // A finalizer keeps the namespace in termination.
    let holder = json!({ "metadata": { "name": "holder", "finalizers": ["example.com/hold"] } });
    let holders = format!("{path}/configmaps");
    env.http.post(&holders, &holder).await?.expect(201)?;
    env.run(&format!("delete ns {team} --wait=false"))
        .await?
        .prints(&format!("namespace \"{team}\" deleted"))?;
    env.run(&format!("get ns {team}")).await?.prints(&format!("{team} Terminating *s"))?;
    env.run(&format!("-n {team} create deployment x --image=y")).await?.fails(&format!(
        "error: failed to create deployment: deployments.apps \"x\" is forbidden: unable to create new content in \
         namespace {team} because it is being terminated"
    ))?;
    let released = json!({ "metadata": { "finalizers": null } });
    env.http.patch(&format!("{holders}/holder"), &released).await?.expect(200)?;
    env.until("deletion of the namespace", async || {
        Ok((env.http.get(&path).await?.status == 404).then_some(()))
    })
    .await?;
    let left = env.http.get(&format!("/apis/apps/v1/namespaces/{team}/deployments")).await?.expect(200)?;
    same("the remaining Deployments", &left["items"], &json!([]))
}

pub(super) async fn default_namespace(env: &TestEnv) -> CheckResult {
    env.run("delete ns default").await?.fails(
        "Error from server (Forbidden): namespaces \"default\" is forbidden: this namespace may not be deleted",
    )?;
    Ok(())
}

pub(super) async fn several(env: &TestEnv) -> CheckResult {
    let team = format!("{}-team", env.namespace);
    let file = WEB.replacen("  name: web\n", &format!("  name: web\n  namespace: {team}\n"), 1);
    env.file(
        "multi.yaml",
        &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n---\n{file}"),
    )?;
    let everywhere = Kubectl { namespace: None, ..env.kubectl.clone() };
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

pub(super) async fn finalizer(env: &TestEnv) -> CheckResult {
    env.apply_web(&WEB.replace("  name: web\n", "  name: web\n  finalizers: [example.com/hold]\n")).await?;
    let before = env.object("deployments/web").await?;
    env.run("delete deploy web --wait=false").await?.prints("deployment.apps \"web\" deleted*")?;
    let held = env.object("deployments/web").await?;
    ensure(held["metadata"]["deletionTimestamp"].is_string(), || "it has no deletionTimestamp".to_owned())?;
    ensure(generation(&held) > generation(&before), || "the generation is the same".to_owned())?;
    let more = r#"patch deploy web --type=merge -p '{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}'"#;
    env.run(more).await?.fails(
        "The Deployment \"web\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object \
         is being deleted, found new finalizers []string{\"example.com/more\"}",
    )?;
    let none = r#"patch deploy web --type=merge -p '{"metadata":{"finalizers":null}}'"#;
    env.run(none).await?.prints("deployment.apps/web patched")?;
    same("existence", &env.exists("deployments/web").await?, &false)?;
    Ok(())
}

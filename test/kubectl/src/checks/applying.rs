//! Checks 5 to 7, 30, 31, 64: `apply`, `diff`.

use serde_json::json;

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    manifests::WEB,
    objects::{generation, revision},
    test_env::TestEnv,
};

pub(super) async fn apply(env: &TestEnv) -> CheckResult {
    env.file("web.yaml", WEB)?;
    env.run("apply -f web.yaml").await?.prints_exactly("deployment.apps/web created")?.has_empty_stderr()?;
    let web = env.object("deployments/web").await?;
    same("replicas", &web["spec"]["replicas"], &json!(3))
}

pub(super) async fn apply_again(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let before = env.until_unchanged("web").await?;
    let again = env.run("apply -f web.yaml -v=6").await?;
    again.prints_exactly("deployment.apps/web unchanged")?;
    let writes: Vec<_> = again.requests().into_iter().filter(|request| !request.starts_with("GET")).collect();
    same("the writes", &writes, &Vec::new())?;
    let after = env.object("deployments/web").await?;
    same("the generation", &generation(&after), &generation(&before))?;
    same("the resource version", &revision(&after), &revision(&before))
}

pub(super) async fn apply_changed(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let before = env
        .until_object("deployments/web", "the first revision", |web| {
            web["status"]["observedGeneration"] == generation(web)
                && web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        })
        .await?;
    let mut watch = env.watch("deployments").await?;
    env.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let applied = env.run("apply -f web.yaml -v=6").await?;
    applied.prints_exactly("deployment.apps/web configured")?;
    let writes: Vec<_> =
        applied.requests().into_iter().filter(|request| !request.starts_with("GET")).collect();
    ensure(writes.len() == 1 && writes[0].starts_with("PATCH "), || format!("requests: {writes:?}"))?;
    let image = |object: &serde_json::Value| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    };
    let events = watch.until(|event| image(&event.object)).await?;
    let patched = events.last().map(|event| generation(&event.object));
    same("the generation after the patch", &patched, &Some(generation(&before) + 1))
}

pub(super) async fn dry_run(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let before = env
        .until_object("deployments/web", "the first revision", |web| {
            web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        })
        .await?;
    env.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    env.run("apply --dry-run=server -f web.yaml")
        .await?
        .prints("deployment.apps/web configured (server dry run)")?;
    env.file("new.yaml", &WEB.replace("name: web", "name: new"))?;
    env.run("apply --dry-run=server -f new.yaml")
        .await?
        .prints("deployment.apps/new created (server dry run)")?;
    let created = env.run("create deployment dry --image=nginx:1 --dry-run=server -o yaml").await?;
    created.prints("kind: Deployment\nuid: *\nprogressDeadlineSeconds: 600\nmaxSurge: 25%")?;
    env.run("delete deploy web --dry-run=server")
        .await?
        .prints("deployment.apps \"web\" deleted*(server dry run)")?;

    let names = env.names("deployments").await?;
    same("the Deployments", &names, &vec!["web".to_owned()])?;
    let after = env.object("deployments/web").await?;
    same("the UID", &after["metadata"]["uid"], &before["metadata"]["uid"])?;
    same("the generation", &generation(&after), &generation(&before))?;
    same("the deletion timestamp", &after["metadata"]["deletionTimestamp"], &json!(null))
}

pub(super) async fn diff(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    // A concurrent status update would be part of the diff.
    env.until_unchanged("web").await?;
    env.run("diff -f web.yaml").await?.prints_exactly("")?;
    env.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let diff = env.run("diff -f web.yaml").await?;
    diff.exits(1)?;
    let changed: Vec<&str> = diff
        .lines()
        .into_iter()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---"))
        .collect();
    let is_wanted = |line: &&str| line.contains("generation:") || line.contains("image: nginx:");
    ensure(changed.len() == 4 && changed.iter().all(is_wanted), || {
        diff.failure("shows other changes than the image and the generation").to_string()
    })
}

pub(super) async fn server_side(env: &TestEnv) -> CheckResult {
    env.file("web.yaml", WEB)?;
    let applied = "deployment.apps/web serverside-applied";
    env.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    env.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    env.file("five.yaml", &WEB.replace("replicas: 3", "replicas: 5"))?;
    env.run("apply --server-side --field-manager=other -f five.yaml").await?.fails(
        "error: Apply failed with 1 conflict: conflict with \"kubectl\"*: .spec.replicas
         Please review the fields above--they currently have other managers. Here",
    )?;
    env.run("apply --server-side --field-manager=other --force-conflicts -f five.yaml")
        .await?
        .prints_exactly(applied)?;
    same("replicas", &env.object("deployments/web").await?["spec"]["replicas"], &json!(5))?;
    env.run("apply --server-side -f web.yaml")
        .await?
        .fails("error: Apply failed with 1 conflict: conflict with \"other\"*: .spec.replicas")?;
    // A field that the first manager no longer applies stays, because the other manager owns it.
    env.file("web.yaml", &WEB.replace("  replicas: 3\n", ""))?;
    env.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    let web = env.object("deployments/web").await?;
    same("replicas", &web["spec"]["replicas"], &json!(5))?;
    let managers: Vec<&str> = web["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|entry| entry["operation"] == "Apply")
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    ensure(managers.contains(&"kubectl") && managers.contains(&"other"), || {
        format!("the managers are {managers:?}")
    })?;

    // Migration from client-side apply.
    let old = WEB.replace("name: web", "name: old");
    env.file("old.yaml", &old)?;
    env.run("apply -f old.yaml").await?.prints("deployment.apps/old created")?;
    env.file("old.yaml", &old.replace("replicas: 3", "replicas: 2"))?;
    env.run("apply --server-side -f old.yaml").await?.prints("deployment.apps/old serverside-applied")?;
    same("replicas", &env.object("deployments/old").await?["spec"]["replicas"], &json!(2))
}

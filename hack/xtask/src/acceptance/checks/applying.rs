//! 5 to 7, 30, 31, 64: declaring what is wanted.

use serde_json::json;

use super::Judged;
use crate::acceptance::{
    failure::{ensure, same},
    ground::{Ground, generation, revision},
    manifests::WEB,
};

pub(super) async fn apply(ground: &Ground) -> Judged {
    ground.file("web.yaml", WEB)?;
    ground.run("apply -f web.yaml").await?.prints_exactly("deployment.apps/web created")?.is_quiet()?;
    let web = ground.object("deployments/web").await?;
    same("replicas", &web["spec"]["replicas"], &json!(3))
}

pub(super) async fn apply_again(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let before = ground.at_rest("web").await?;
    let again = ground.run("apply -f web.yaml -v=6").await?;
    again.prints_exactly("deployment.apps/web unchanged")?;
    let writes: Vec<_> = again.requests().into_iter().filter(|request| !request.starts_with("GET")).collect();
    same("the writes", &writes, &Vec::new())?;
    let after = ground.object("deployments/web").await?;
    same("the generation", &generation(&after), &generation(&before))?;
    same("the resource version", &revision(&after), &revision(&before))
}

pub(super) async fn apply_changed(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let before = ground
        .until_object("deployments/web", "the first revision", |web| {
            web["status"]["observedGeneration"] == generation(web)
                && web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        })
        .await?;
    let mut watch = ground.watch("deployments").await?;
    ground.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let applied = ground.run("apply -f web.yaml -v=6").await?;
    applied.prints_exactly("deployment.apps/web configured")?;
    let writes: Vec<_> =
        applied.requests().into_iter().filter(|request| !request.starts_with("GET")).collect();
    ensure(writes.len() == 1 && writes[0].starts_with("PATCH "), || format!("the writes are {writes:?}"))?;
    let image = |object: &serde_json::Value| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    };
    let events = watch.until(|event| image(&event.object)).await?;
    let patched = events.last().map(|event| generation(&event.object));
    same("the generation after the patch", &patched, &Some(generation(&before) + 1))
}

pub(super) async fn dry_run(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let before = ground
        .until_object("deployments/web", "the first revision", |web| {
            web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        })
        .await?;
    ground.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    ground
        .run("apply --dry-run=server -f web.yaml")
        .await?
        .prints("deployment.apps/web configured (server dry run)")?;
    ground.file("new.yaml", &WEB.replace("name: web", "name: new"))?;
    ground
        .run("apply --dry-run=server -f new.yaml")
        .await?
        .prints("deployment.apps/new created (server dry run)")?;
    let created = ground.run("create deployment dry --image=nginx:1 --dry-run=server -o yaml").await?;
    created.prints("kind: Deployment\nuid: *\nprogressDeadlineSeconds: 600\nmaxSurge: 25%")?;
    ground
        .run("delete deploy web --dry-run=server")
        .await?
        .prints("deployment.apps \"web\" deleted*(server dry run)")?;

    let names = ground.names("deployments").await?;
    same("the Deployments", &names, &vec!["web".to_owned()])?;
    let after = ground.object("deployments/web").await?;
    same("the UID", &after["metadata"]["uid"], &before["metadata"]["uid"])?;
    same("the generation", &generation(&after), &generation(&before))?;
    same("the deletion timestamp", &after["metadata"]["deletionTimestamp"], &json!(null))
}

pub(super) async fn diff(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    // A status that changes meanwhile would be a difference.
    ground.at_rest("web").await?;
    ground.run("diff -f web.yaml").await?.prints_exactly("")?;
    ground.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let diff = ground.run("diff -f web.yaml").await?;
    diff.exits(1)?;
    let changed: Vec<&str> = diff
        .lines()
        .into_iter()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---"))
        .collect();
    let is_wanted = |line: &&str| line.contains("generation:") || line.contains("image: nginx:");
    ensure(changed.len() == 4 && changed.iter().all(is_wanted), || {
        diff.but("shows more or less than the image and the generation").to_string()
    })
}

pub(super) async fn server_side(ground: &Ground) -> Judged {
    ground.file("web.yaml", WEB)?;
    let applied = "deployment.apps/web serverside-applied";
    ground.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    ground.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    ground.file("five.yaml", &WEB.replace("replicas: 3", "replicas: 5"))?;
    ground.run("apply --server-side --field-manager=other -f five.yaml").await?.fails(
        "error: Apply failed with 1 conflict: conflict with \"kubectl\"*: .spec.replicas
         Please review the fields above--they currently have other managers. Here",
    )?;
    ground
        .run("apply --server-side --field-manager=other --force-conflicts -f five.yaml")
        .await?
        .prints_exactly(applied)?;
    same("replicas", &ground.object("deployments/web").await?["spec"]["replicas"], &json!(5))?;
    ground
        .run("apply --server-side -f web.yaml")
        .await?
        .fails("error: Apply failed with 1 conflict: conflict with \"other\"*: .spec.replicas")?;
    // What the first manager no longer names is the other's, and stays.
    ground.file("web.yaml", &WEB.replace("  replicas: 3\n", ""))?;
    ground.run("apply --server-side -f web.yaml").await?.prints_exactly(applied)?;
    let web = ground.object("deployments/web").await?;
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

    // An object of client-side apply changes hands.
    let old = WEB.replace("name: web", "name: old");
    ground.file("old.yaml", &old)?;
    ground.run("apply -f old.yaml").await?.prints("deployment.apps/old created")?;
    ground.file("old.yaml", &old.replace("replicas: 3", "replicas: 2"))?;
    ground.run("apply --server-side -f old.yaml").await?.prints("deployment.apps/old serverside-applied")?;
    same("replicas", &ground.object("deployments/old").await?["spec"]["replicas"], &json!(2))
}

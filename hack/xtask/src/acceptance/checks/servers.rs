//! 70 to 72: restarts, versions, faults.

use serde_json::json;

use super::Judged;
use crate::acceptance::{
    failure::{Failure, ensure, same},
    ground::{Ground, revision},
    manifests::WEB,
};

pub(super) async fn restart(ground: &Ground) -> Judged {
    let data = ground.folder().join("data");
    let data = data.to_str().ok_or_else(|| Failure::new("the folder's name is no text"))?;
    let flags = ["--data-dir", data];
    let (mut cluster, before) = ground.own(&flags).await?;
    before.web().await?;
    let old = before.object("deployments/web").await?;
    let list = before.object("pods").await?;
    cluster.kill().await?;
    drop(cluster);

    let (cluster, after) = ground.own(&flags).await?;
    let web = after.object("deployments/web").await?;
    same("the Deployment's UID", &web["metadata"]["uid"], &old["metadata"]["uid"])?;
    same("the Deployment's spec", &web["spec"], &old["spec"])?;
    let now = after.object("pods").await?;
    ensure(revision(&now) >= revision(&list), || {
        format!("the revision went back from {} to {}", revision(&list), revision(&now))
    })?;
    let mut watch = after.wire.watch(&after.path("pods?watch=true&resourceVersion=1")).await?;
    same("the code for a watch from before", &watch.expect("ERROR").await?.object["code"], &json!(410))?;
    after.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    after.run("rollout status deploy/web --timeout=30s").await?.prints("*successfully rolled out")?;
    drop(cluster);

    let (cluster, empty) = ground.own(&[]).await?;
    same("what is there without it", &empty.names("deployments").await?, &Vec::new())?;
    drop(cluster);
    Ok(())
}

/// Is judged from the other checks, when all have run.
pub(super) async fn versions(_: &Ground) -> Judged {
    Err(Failure::new("was not judged"))
}

/// Each rule is about one name or one resource, so that none gets in another's way.
const FAULTS: [&str; 8] = [
    "GET /apis/apps/v1/namespaces/*/deployments/busy 429 retry-after=1 times=2",
    "GET /apis/apps/v1/namespaces/*/deployments/full 429",
    "GET /apis/apps/v1/namespaces/*/deployments/away 503 retry-after=1 times=1",
    "GET /apis/apps/v1/namespaces/*/deployments/broken 500",
    "PATCH /apis/apps/v1/namespaces/*/deployments/web 409 times=1",
    "WATCH /apis/apps/v1/namespaces/*/deployments 410 times=1",
    "WATCH /apis/apps/v1/namespaces/*/deployments cut events=1 times=1",
    "WATCH /apis/apps/v1/namespaces/*/replicasets 410 times=1",
];

pub(super) async fn faults(ground: &Ground) -> Judged {
    let flags: Vec<&str> = FAULTS.iter().flat_map(|fault| ["--fault", fault]).collect();
    let (cluster, ground) = ground.own(&flags).await?;
    for name in ["busy", "full", "away", "broken"] {
        ground.run(&format!("create deployment {name} --image=nginx:1")).await?.prints("*created")?;
    }
    // Where the server says when to come back, nobody sees anything.
    for name in ["busy", "away"] {
        let got = ground.run(&format!("get deploy {name} -o name -v=6")).await?;
        got.prints_exactly(&format!("deployment.apps/{name}"))?;
        let tries = got.requests().iter().filter(|request| request.ends_with(name)).count();
        ensure(tries > 1, || got.but("does not try again").to_string())?;
    }
    // Where it does not, it is told, and not tried again.
    ground.run("get deploy full").await?.fails("Error from server (TooManyRequests): *")?;
    ground.run("get deploy broken").await?.fails("Error from server (InternalError): *")?;

    // A conflict is tried again with what is there then.
    ground.apply_web(WEB).await?;
    ground.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let applied = ground.run("apply -f web.yaml -v=6").await?;
    applied.prints_exactly("deployment.apps/web configured")?;
    let patches = applied.requests().iter().filter(|request| request.starts_with("PATCH ")).count();
    same("the number of patches", &patches, &2)?;

    // An informer gets over a history that is gone and a watch that is cut.
    ground.run("rollout status deploy/web --timeout=30s").await?.prints("*successfully rolled out")?;
    // Who watches without one is told.
    let told = ground.run("get rs -w").await?;
    let all = format!("{}{}", told.stdout, told.stderr);
    ensure(all.contains("Expired"), || told.but("does not tell that the history is gone").to_string())?;
    drop(cluster);
    Ok(())
}

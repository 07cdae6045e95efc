//! 70 to 72: restarts, versions, faults.

use serde_json::json;

use super::Judged;
use crate::acceptance::{
    failure::{Failure, ensure, same},
    ground::{Ground, revision},
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

pub(super) async fn faults(_: &Ground) -> Judged {
    Err(Failure::new("cannot be done: the sandbox has no --fault yet"))
}

//! Checks 70 to 72: restarts, versions, fault injection.

use serde_json::json;

use super::CheckResult;
use crate::{
    failure::{Failure, ensure, same},
    manifests::WEB,
    objects::revision,
    test_env::TestEnv,
};

pub(super) async fn restart(env: &TestEnv) -> CheckResult {
    let data = env.folder().join("data");
    let data = data.to_str().ok_or_else(|| Failure::new("the path is not valid UTF-8"))?;
    let flags = ["--data-dir", data];
    let (mut cluster, before) = env.start_sandbox(&flags).await?;
    before.web().await?;
    let old = before.object("deployments/web").await?;
    let list = before.object("pods").await?;
    cluster.kill().await?;
    drop(cluster);

    let (cluster, after) = env.start_sandbox(&flags).await?;
    let web = after.object("deployments/web").await?;
    same("the Deployment's UID", &web["metadata"]["uid"], &old["metadata"]["uid"])?;
    same("the Deployment's spec", &web["spec"], &old["spec"])?;
    let now = after.object("pods").await?;
    ensure(revision(&now) >= revision(&list), || {
        format!("the resource version went back from {} to {}", revision(&list), revision(&now))
    })?;
    let mut watch = after.http.watch(&after.path("pods?watch=true&resourceVersion=1")).await?;
    same(
        "the code of a watch from an old resource version",
        &watch.expect("ERROR").await?.object["code"],
        &json!(410),
    )?;
    after.run("set image deploy/web nginx=nginx:2").await?.prints("*updated")?;
    after.run("rollout status deploy/web --timeout=30s").await?.prints("*successfully rolled out")?;
    drop(cluster);

    let (cluster, empty) = env.start_sandbox(&[]).await?;
    same("Deployments without --data-dir", &empty.names("deployments").await?, &Vec::new())?;
    drop(cluster);
    Ok(())
}

/// Determined from the results of the other checks.
pub(super) async fn versions(_: &TestEnv) -> CheckResult {
    Err(Failure::new("not all expected versions are installed"))
}

/// Each rule applies to another name or resource, so that rules do not interfere.
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

pub(super) async fn faults(env: &TestEnv) -> CheckResult {
    let flags: Vec<&str> = FAULTS.iter().flat_map(|fault| ["--fault", fault]).collect();
    let (cluster, env) = env.start_sandbox(&flags).await?;
    for name in ["busy", "full", "away", "broken"] {
        env.run(&format!("create deployment {name} --image=nginx:1")).await?.prints("*created")?;
    }
    // kubectl retries if the response has a Retry-After header.
    for name in ["busy", "away"] {
        let got = env.run(&format!("get deploy {name} -o name -v=6")).await?;
        got.prints_exactly(&format!("deployment.apps/{name}"))?;
        let tries = got.requests().iter().filter(|request| request.ends_with(name)).count();
        ensure(tries > 1, || got.failure("does not retry").to_string())?;
    }
    // Without the header, kubectl reports the error.
    env.run("get deploy full").await?.fails("Error from server (TooManyRequests): *")?;
    env.run("get deploy broken").await?.fails("Error from server (InternalError): *")?;

    // kubectl retries conflicts with the newest version.
    env.apply_web(WEB).await?;
    env.file("web.yaml", &WEB.replace("nginx:1", "nginx:2"))?;
    let applied = env.run("apply -f web.yaml -v=6").await?;
    applied.prints_exactly("deployment.apps/web configured")?;
    let patches = applied.requests().iter().filter(|request| request.starts_with("PATCH ")).count();
    same("the number of patches", &patches, &2)?;

    // Informers recover from expired resource versions and closed watches.
    env.run("rollout status deploy/web --timeout=30s").await?.prints("*successfully rolled out")?;
    // Plain watches report the error.
    let watched = env.run("get rs -w").await?;
    let all = format!("{}{}", watched.stdout, watched.stderr);
    ensure(all.contains("Expired"), || watched.failure("does not print Expired").to_string())?;
    drop(cluster);
    Ok(())
}

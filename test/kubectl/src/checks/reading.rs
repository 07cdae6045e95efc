//! Checks 9 to 18: `get`.

use serde_json::json;

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    manifests::WEB,
    objects::{name, revision},
    test_env::TestEnv,
};

pub(super) async fn get(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("get deploy web").await?.prints_exactly(
        "NAME READY UP-TO-DATE AVAILABLE AGE
         web 3/3 3 3 *s",
    )?;
    env.run("get deploy web -o wide").await?.prints_exactly(
        "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR
         web 3/3 3 3 *s nginx nginx:1 app=web",
    )?;
    Ok(())
}

pub(super) async fn get_several(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("get deploy,rs,pods --show-labels").await?.prints_exactly(
        "NAME READY UP-TO-DATE AVAILABLE AGE LABELS
         deployment.apps/web 3/3 3 3 *s <none>
         NAME DESIRED CURRENT READY AGE LABELS
         replicaset.apps/web-* 3 3 3 *s app=web,pod-template-hash=*
         NAME READY STATUS RESTARTS AGE LABELS
         pod/web-*-* 1/1 Running 0 *s app=web,pod-template-hash=*
         pod/web-*-* 1/1 Running 0 *s app=web,pod-template-hash=*
         pod/web-*-* 1/1 Running 0 *s app=web,pod-template-hash=*",
    )?;
    Ok(())
}

pub(super) async fn defaults(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    let yaml = env.run("get deploy web -o yaml").await?;
    yaml.lacks("managedFields")?.prints(
        "apiVersion: apps/v1
         kind: Deployment
         kubectl.kubernetes.io/last-applied-configuration: |
         creationTimestamp: \"*Z\"
         progressDeadlineSeconds: 600
         replicas: 3
         revisionHistoryLimit: 10
         maxSurge: 25%
         maxUnavailable: 25%
         type: RollingUpdate
         - image: nginx:1
         imagePullPolicy: IfNotPresent
         resources: {}
         terminationMessagePath: /dev/termination-log
         terminationMessagePolicy: File
         dnsPolicy: ClusterFirst
         restartPolicy: Always
         schedulerName: default-scheduler
         securityContext: {}
         terminationGracePeriodSeconds: 30",
    )?;
    let null =
        yaml.lines().into_iter().find(|line| line.ends_with(": null") && !line.contains("creationTimestamp"));
    same("null fields", &null, &None)
}

pub(super) async fn label_selectors(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("create deployment other --image=nginx:1").await?.prints("*created")?;
    env.run("run bare --image=nginx:1 --labels=tier=x").await?.prints("*created")?;
    env.until_rolled_out("other").await?;
    let set = env.items("replicasets?labelSelector=app%3Dweb").await?;
    let hash = set
        .first()
        .and_then(|set| set["metadata"]["labels"]["pod-template-hash"].as_str())
        .unwrap_or_default();
    let both = env.run(&format!("get pods -l app=web,pod-template-hash={hash} -o name")).await?;
    both.prints_exactly("pod/web-*\npod/web-*\npod/web-*")?;
    env.run("get pods -o name -l 'app notin (web)'").await?.prints_exactly("pod/bare\npod/other-*")?;
    env.run("get pods -o name -l '!app'").await?.prints_exactly("pod/bare")?;
    env.run("get pods -o name -l 'app in (other,web),app!=web'").await?.prints_exactly("pod/other-*")?;
    env.run("get pods -l 'app in'").await?.fails("*unable to parse requirement*")?;
    Ok(())
}

pub(super) async fn field_selectors(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("create deployment broken --image=nginx:broken").await?.prints("*created")?;
    let pods = env.items("pods?labelSelector=app%3Dweb").await?;
    let node = pods.first().and_then(|pod| pod["spec"]["nodeName"].as_str()).unwrap_or_default();
    let there = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
    let line = format!("get pods -o name --field-selector status.phase=Running,spec.nodeName={node}");
    env.run(&line).await?.prints_exactly(&"pod/web-*\n".repeat(there))?;
    env.until("a second phase", async || {
        Ok((!env.items("pods?fieldSelector=status.phase%3DPending").await?.is_empty()).then_some(()))
    })
    .await?;
    env.run("get pods -o name --field-selector status.phase!=Running")
        .await?
        .prints_exactly("pod/broken-*")?;
    env.run("get pods --field-selector foo=bar")
        .await?
        .fails("Error from server (BadRequest): *field label not supported: foo")?;
    Ok(())
}

pub(super) async fn chunks(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let got = env.run("get pods --chunk-size=1 -v=6").await?;
    got.prints_exactly(
        "NAME READY STATUS RESTARTS AGE\nweb-* 1/1 Running *\nweb-* 1/1 Running *\nweb-* 1/1 Running *",
    )?;
    let pages: Vec<_> = got.requests().into_iter().filter(|request| request.contains("/pods?")).collect();
    ensure(pages.len() == 3 && pages.iter().all(|page| page.contains("limit=1")), || {
        format!("the pages are {pages:?}")
    })?;

    let first = env.object("pods?limit=1").await?;
    same("the remaining items", &first["metadata"]["remainingItemCount"], &json!(2))?;
    env.run("run later --image=nginx:1").await?.prints("*created")?;
    let next = first["metadata"]["continue"].as_str().unwrap_or_default().replace('=', "%3D");
    let second = env.object(&format!("pods?limit=5&continue={next}")).await?;
    same("the revision of the second page", &revision(&second), &revision(&first))?;
    let rest: Vec<_> = second["items"].as_array().into_iter().flatten().map(name).collect();
    ensure(rest.len() == 2 && !rest.contains(&"later"), || format!("the second page has {rest:?}"))
}

pub(super) async fn sort_by(env: &TestEnv) -> CheckResult {
    env.web().await?;
    env.run("run bare --image=nginx:1").await?.prints("*created")?;
    // Creation times must differ by at least a second.
    env.run("wait --for=condition=Ready pod/bare --timeout=30s").await?.prints("*condition met")?;
    let sorted = env.run("get pods --sort-by=.metadata.creationTimestamp").await?;
    sorted.prints_exactly("NAME READY STATUS RESTARTS AGE\n* 1/1 *\n* 1/1 *\n* 1/1 *\n* 1/1 *")?;
    let by_name = env.run("get pods --sort-by=.metadata.name").await?;
    by_name.prints_exactly("NAME READY STATUS RESTARTS AGE\nbare *\nweb-* *\nweb-* *\nweb-* *")?;
    Ok(())
}

pub(super) async fn get_watch(env: &TestEnv) -> CheckResult {
    env.web().await?;
    let mut watching = env.start("get deploy -w")?;
    watching.until("web 3/3 3 3 *").await?;
    env.run("scale deploy web --replicas=4").await?.prints("*scaled")?;
    watching.until("web 4/4 4 4 *").await?;
    let seen = watching.interrupt().await?;
    seen.has_empty_stderr()?;
    let headers = seen.lines().into_iter().filter(|line| line.starts_with("NAME")).count();
    same("the number of header lines", &headers, &1)?;
    let rows = seen.lines().len() - headers;
    ensure(rows >= 3, || seen.failure("has no row for each change").to_string())
}

pub(super) async fn not_found(env: &TestEnv) -> CheckResult {
    env.run("get deploy nope")
        .await?
        .fails("Error from server (NotFound): deployments.apps \"nope\" not found")?;
    env.run("get deploy nope --ignore-not-found").await?.prints_exactly("")?.has_empty_stderr()?;
    Ok(())
}

pub(super) async fn unknown_resource(env: &TestEnv) -> CheckResult {
    env.run("get foos").await?.fails("error: the server doesn't have a resource type \"foos\"")?;
    Ok(())
}

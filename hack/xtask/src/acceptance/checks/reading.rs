//! 9 to 18: getting.

use serde_json::json;

use super::Judged;
use crate::acceptance::{
    failure::{ensure, same},
    ground::{Ground, name, revision},
    manifests::WEB,
};

pub(super) async fn get(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("get deploy web").await?.prints_exactly(
        "NAME READY UP-TO-DATE AVAILABLE AGE
         web 3/3 3 3 *s",
    )?;
    ground.run("get deploy web -o wide").await?.prints_exactly(
        "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR
         web 3/3 3 3 *s nginx nginx:1 app=web",
    )?;
    Ok(())
}

pub(super) async fn get_several(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("get deploy,rs,pods --show-labels").await?.prints_exactly(
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

pub(super) async fn defaults(ground: &Ground) -> Judged {
    ground.apply_web(WEB).await?;
    let yaml = ground.run("get deploy web -o yaml").await?;
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
    same("a null", &null, &None)
}

pub(super) async fn label_selectors(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("create deployment other --image=nginx:1").await?.prints("*created")?;
    ground.run("run bare --image=nginx:1 --labels=tier=x").await?.prints("*created")?;
    ground.rolled_out("other").await?;
    let set = ground.items("replicasets?labelSelector=app%3Dweb").await?;
    let hash = set
        .first()
        .and_then(|set| set["metadata"]["labels"]["pod-template-hash"].as_str())
        .unwrap_or_default();
    let both = ground.run(&format!("get pods -l app=web,pod-template-hash={hash} -o name")).await?;
    both.prints_exactly("pod/web-*\npod/web-*\npod/web-*")?;
    ground.run("get pods -o name -l 'app notin (web)'").await?.prints_exactly("pod/bare\npod/other-*")?;
    ground.run("get pods -o name -l '!app'").await?.prints_exactly("pod/bare")?;
    ground.run("get pods -o name -l 'app in (other,web),app!=web'").await?.prints_exactly("pod/other-*")?;
    ground.run("get pods -l 'app in'").await?.fails("*unable to parse requirement*")?;
    Ok(())
}

pub(super) async fn field_selectors(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("create deployment broken --image=nginx:broken").await?.prints("*created")?;
    let pods = ground.items("pods?labelSelector=app%3Dweb").await?;
    let node = pods.first().and_then(|pod| pod["spec"]["nodeName"].as_str()).unwrap_or_default();
    let there = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
    let line = format!("get pods -o name --field-selector status.phase=Running,spec.nodeName={node}");
    ground.run(&line).await?.prints_exactly(&"pod/web-*\n".repeat(there))?;
    ground
        .until("a second phase", async || {
            Ok((!ground.items("pods?fieldSelector=status.phase%3DPending").await?.is_empty()).then_some(()))
        })
        .await?;
    ground
        .run("get pods -o name --field-selector status.phase!=Running")
        .await?
        .prints_exactly("pod/broken-*")?;
    ground
        .run("get pods --field-selector foo=bar")
        .await?
        .fails("Error from server (BadRequest): *field label not supported: foo")?;
    Ok(())
}

pub(super) async fn chunks(ground: &Ground) -> Judged {
    ground.web().await?;
    let got = ground.run("get pods --chunk-size=1 -v=6").await?;
    got.prints_exactly(
        "NAME READY STATUS RESTARTS AGE\nweb-* 1/1 Running *\nweb-* 1/1 Running *\nweb-* 1/1 Running *",
    )?;
    let pages: Vec<_> = got.requests().into_iter().filter(|request| request.contains("/pods?")).collect();
    ensure(pages.len() == 3 && pages.iter().all(|page| page.contains("limit=1")), || {
        format!("the pages are {pages:?}")
    })?;

    let first = ground.object("pods?limit=1").await?;
    same("the remaining items", &first["metadata"]["remainingItemCount"], &json!(2))?;
    ground.run("run later --image=nginx:1").await?.prints("*created")?;
    let next = first["metadata"]["continue"].as_str().unwrap_or_default().replace('=', "%3D");
    let second = ground.object(&format!("pods?limit=5&continue={next}")).await?;
    same("the revision of the second page", &revision(&second), &revision(&first))?;
    let rest: Vec<_> = second["items"].as_array().into_iter().flatten().map(name).collect();
    ensure(rest.len() == 2 && !rest.contains(&"later"), || format!("the second page has {rest:?}"))
}

pub(super) async fn sort_by(ground: &Ground) -> Judged {
    ground.web().await?;
    ground.run("run bare --image=nginx:1").await?.prints("*created")?;
    // Both within one second would be in no order.
    ground.run("wait --for=condition=Ready pod/bare --timeout=30s").await?.prints("*condition met")?;
    let sorted = ground.run("get pods --sort-by=.metadata.creationTimestamp").await?;
    sorted.prints_exactly("NAME READY STATUS RESTARTS AGE\n* 1/1 *\n* 1/1 *\n* 1/1 *\n* 1/1 *")?;
    let by_name = ground.run("get pods --sort-by=.metadata.name").await?;
    by_name.prints_exactly("NAME READY STATUS RESTARTS AGE\nbare *\nweb-* *\nweb-* *\nweb-* *")?;
    Ok(())
}

pub(super) async fn get_watch(ground: &Ground) -> Judged {
    ground.web().await?;
    let mut watching = ground.start("get deploy -w")?;
    watching.until("web 3/3 3 3 *").await?;
    ground.run("scale deploy web --replicas=4").await?.prints("*scaled")?;
    watching.until("web 4/4 4 4 *").await?;
    let seen = watching.interrupt().await?;
    seen.is_quiet()?;
    let headers = seen.lines().into_iter().filter(|line| line.starts_with("NAME")).count();
    same("the number of header lines", &headers, &1)?;
    let rows = seen.lines().len() - headers;
    ensure(rows >= 3, || seen.but("has no row for each change").to_string())
}

pub(super) async fn not_found(ground: &Ground) -> Judged {
    ground
        .run("get deploy nope")
        .await?
        .fails("Error from server (NotFound): deployments.apps \"nope\" not found")?;
    ground.run("get deploy nope --ignore-not-found").await?.prints_exactly("")?.is_quiet()?;
    Ok(())
}

pub(super) async fn unknown_resource(ground: &Ground) -> Judged {
    ground.run("get foos").await?.fails("error: the server doesn't have a resource type \"foos\"")?;
    Ok(())
}

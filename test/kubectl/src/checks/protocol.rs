//! Checks 68, 69: API behaviour that client-go depends on and that no `kubectl` command shows.

use serde_json::{Value, json};

use super::CheckResult;
use crate::{
    failure::{Failure, ensure, same},
    http_client::Watch,
    objects::revision,
    test_env::TestEnv,
};

fn config_map(name: &str, app: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": app } }, "data": { "k": "v" } })
}

pub(super) async fn watches(env: &TestEnv) -> CheckResult {
    labels_and_streams(env).await?;
    // Not on existing clusters, because it must exceed the kept history.
    if env.sandbox.is_some() { expired_history(env).await } else { Ok(()) }
}

async fn labels_and_streams(env: &TestEnv) -> CheckResult {
    let wire = &env.http;
    let maps = env.path("configmaps");
    let created = wire.post(&maps, &config_map("one", "a")).await?.expect(201)?;

    // Label changes and selectors.
    let selected = format!("{maps}?watch=true&labelSelector=app%3Da&resourceVersion={}", revision(&created));
    let mut watch = wire.watch(&selected).await?;
    let one = format!("{maps}/one");
    let left = wire.patch(&one, &json!({ "metadata": { "labels": { "app": "b" } } })).await?.expect(200)?;
    let event = watch.expect("DELETED").await?;
    same("the label of what was left", &event.object["metadata"]["labels"]["app"], &json!("a"))?;
    same("its revision", &event.revision(), &revision(&left))?;
    let back = wire.patch(&one, &json!({ "metadata": { "labels": { "app": "a" } } })).await?.expect(200)?;
    same("the revision", &watch.expect("ADDED").await?.revision(), &revision(&back))?;

    // Streaming lists.
    let streaming = format!("{maps}?watch=true&sendInitialEvents=true");
    let match_ = "resourceVersionMatch=NotOlderThan&resourceVersion=";
    let refused = wire.get(&streaming).await?;
    same("the answer without match", &refused.status, &422)?;
    let mut watch = wire.watch(&format!("{streaming}&{match_}&allowWatchBookmarks=true")).await?;
    let mark = bookmark(&mut watch).await?;
    same(
        "the bookmark's annotation",
        &mark["metadata"]["annotations"]["k8s.io/initial-events-end"],
        &json!("true"),
    )?;
    ensure(revision(&mark) >= revision(&back), || format!("the bookmark is {mark}"))
}

/// Writes more than the server keeps in its history, then watches from an old resource version.
async fn expired_history(env: &TestEnv) -> CheckResult {
    let (cluster, env) = env.start_sandbox(&[]).await?;
    let (wire, maps) = (&env.http, env.path("configmaps"));
    let filler = "x".repeat(1_000_000);
    wire.post(&maps, &config_map("big", "a")).await?.expect(201)?;
    for round in 0..90 {
        let data = json!({ "data": { "k": format!("{round}{filler}") } });
        wire.patch(&format!("{maps}/big"), &data).await?.expect(200)?;
    }
    let mut watch = wire.watch(&format!("{maps}?watch=true&resourceVersion=1")).await?;
    let event = watch.expect("ERROR").await?;
    same("the code", &(&event.object["code"], &event.object["reason"]), &(&json!(410), &json!("Expired")))?;
    ensure(watch.next().await?.is_none(), || "the watch is still open after the error".to_owned())?;
    drop(cluster);
    Ok(())
}

/// Reads up to the first bookmark; all previous events must be additions.
async fn bookmark(watch: &mut Watch) -> Result<Value, Failure> {
    let events = watch.until(|event| event.kind == "BOOKMARK").await?;
    let (mark, before) = events.split_last().ok_or_else(|| Failure::new("no events"))?;
    let other = before.iter().find(|event| event.kind != "ADDED");
    ensure(other.is_none(), || format!("{other:?} before the bookmark"))?;
    ensure(before.iter().any(|event| event.name() == "one"), || {
        "an object is missing in the initial events".to_owned()
    })?;
    Ok(mark.object.clone())
}

pub(super) async fn two_writers(env: &TestEnv) -> CheckResult {
    let maps = env.path("configmaps");
    let one = format!("{maps}/one");
    let start = env.http.post(&maps, &config_map("one", "a")).await?.expect(201)?;
    let with = |object: &Value, value: &str| {
        let mut object = object.clone();
        object["data"]["k"] = json!(value);
        object
    };
    let (left, right) = (with(&start, "left"), with(&start, "right"));
    let (left, right) = tokio::try_join!(env.http.put(&one, &left), env.http.put(&one, &right))?;
    let mut codes = [left.status, right.status];
    codes.sort_unstable();
    same("the answers", &codes, &[200, 409])?;
    let winner = if left.status == 200 { left } else { right };
    let stored = env.http.get(&one).await?.expect(200)?;
    same("what is stored", &stored, &winner.body)?;

    let mut watch =
        env.http.watch(&format!("{maps}?watch=true&resourceVersion={}", revision(&stored))).await?;
    let again = env.http.put(&one, &stored).await?.expect(200)?;
    same("the revision after an update without changes", &revision(&again), &revision(&stored))?;
    let empty = env.http.patch(&one, &json!({})).await?.expect(200)?;
    same("the revision after an empty patch", &revision(&empty), &revision(&stored))?;
    let next = env.http.put(&one, &with(&stored, "next")).await?.expect(200)?;
    same("the first event", &watch.expect("MODIFIED").await?.revision(), &revision(&next))
}

//! Checks 19 to 23, 66: `create` and other commands that create objects.

use serde_json::{Value, json};

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    kubectl::CommandOutput,
    manifests::WEB,
    test_env::TestEnv,
};

/// Checks that a typed client sent protobuf, which it does since 1.32.
fn sent_protobuf(env: &TestEnv, output: &CommandOutput) -> CheckResult {
    let body =
        |line: &str| line.contains("Content-Type") && line.contains("application/vnd.kubernetes.protobuf");
    let sent = output.stderr.lines().any(body);
    ensure(sent || !env.version().is_at_least(32), || output.failure("does not send protobuf").to_string())
}

pub(super) async fn create_deployment(env: &TestEnv) -> CheckResult {
    let created = env.run("create deployment foo --image=busybox --replicas=2 --port=80 -v=8").await?;
    created.prints_exactly("deployment.apps/foo created")?;
    sent_protobuf(env, &created)?;
    let created = env.object("deployments/foo").await?;
    same("replicas", &created["spec"]["replicas"], &json!(2))?;
    same("the labels", &created["metadata"]["labels"], &json!({ "app": "foo" }))?;
    let container = &created["spec"]["template"]["spec"]["containers"][0];
    same("the image", &container["image"], &json!("busybox"))?;
    same("the pull policy", &container["imagePullPolicy"], &json!("Always"))?;
    same("the ports", &container["ports"], &json!([{ "containerPort": 80, "protocol": "TCP" }]))
}

pub(super) async fn no_replicas(env: &TestEnv) -> CheckResult {
    env.run("create deployment zero --image=b --replicas=0")
        .await?
        .prints_exactly("deployment.apps/zero created")?;
    let zero = env
        .until_object("deployments/zero", "availability", |zero| {
            let conditions = zero["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .into_iter()
                .any(|condition| condition["type"] == "Available" && condition["status"] == "True")
        })
        .await?;
    same("replicas", &zero["spec"]["replicas"], &json!(0))?;
    same("the pods", &env.names("pods").await?, &Vec::new())
}

pub(super) async fn exists_already(env: &TestEnv) -> CheckResult {
    env.run("create deployment foo --image=busybox").await?.prints("*created")?;
    env.run("create deployment foo --image=x")
        .await?
        .fails("error: failed to create deployment: deployments.apps \"foo\" already exists")?;
    env.apply_web(WEB).await?;
    env.run("create -f web.yaml").await?.fails(
        "Error from server (AlreadyExists): error when creating \"web.yaml\": deployments.apps \"web\" already exists",
    )?;
    Ok(())
}

pub(super) async fn create_namespace(env: &TestEnv) -> CheckResult {
    let team = format!("{}-team", env.namespace);
    env.file("web.yaml", WEB)?;
    let created = env.run(&format!("create ns {team} -v=8")).await?;
    created.prints_exactly(&format!("namespace/{team} created"))?;
    sent_protobuf(env, &created)?;
    env.run(&format!("-n {team} create -f web.yaml")).await?.prints_exactly("deployment.apps/web created")?;
    let namespace = env.http.get(&format!("/api/v1/namespaces/{team}")).await?.expect(200)?;
    same("the label", &namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], &json!(team))?;
    env.run(&format!("delete ns {team} --wait=false")).await?.prints("namespace \"*\" deleted")?;
    Ok(())
}

pub(super) async fn missing_namespace(env: &TestEnv) -> CheckResult {
    env.run("-n missing create deployment x --image=y")
        .await?
        .fails("error: failed to create deployment: namespaces \"missing\" not found")?;
    env.file("web.yaml", WEB)?;
    env.run("-n missing create -f web.yaml").await?.fails(
        "Error from server (NotFound): error when creating \"web.yaml\": namespaces \"missing\" not found",
    )?;
    Ok(())
}

pub(super) async fn others(env: &TestEnv) -> CheckResult {
    env.run("create deployment web --image=nginx:1 --port=80").await?.prints("*created")?;
    env.run("expose deploy web").await?.prints_exactly("service/web exposed")?;
    let service = env.object("services/web").await?;
    same("the selector", &service["spec"]["selector"], &json!({ "app": "web" }))?;
    let port = &service["spec"]["ports"][0];
    same("the port", &(&port["port"], &port["targetPort"]), &(&json!(80), &json!(80)))?;

    let scaled = env.run("autoscale deploy web --max=5 --min=2 --cpu-percent=50 -v=8").await?;
    scaled.prints_exactly("horizontalpodautoscaler.autoscaling/web autoscaled")?;
    sent_protobuf(env, &scaled)?;
    let autoscaler = env.object("horizontalpodautoscalers/web").await?;
    same("the maximum", &autoscaler["spec"]["maxReplicas"], &json!(5))?;
    same(
        "the target",
        &autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        &json!(50),
    )?;

    env.run("run bare --image=nginx:1 --env=A=b").await?.prints_exactly("pod/bare created")?;
    let pod = env.object("pods/bare").await?;
    same("the environment", &pod["spec"]["containers"][0]["env"], &json!([{ "name": "A", "value": "b" }]))?;

    let can = env.run("auth can-i create deploy -v=8").await?;
    can.prints_exactly("yes")?;
    sent_protobuf(env, &can)?;
    let who = env.run("auth whoami -o json -v=8").await?;
    let review: Value = serde_json::from_str(&who.stdout).unwrap_or_default();
    let user = review.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    ensure(!user.is_empty(), || who.failure("prints no user").to_string())?;
    sent_protobuf(env, &who)
}

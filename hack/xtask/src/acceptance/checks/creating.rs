//! 19 to 23, 66: creating by command.

use serde_json::{Value, json};

use super::Judged;
use crate::acceptance::{
    failure::{ensure, same},
    ground::Ground,
    kubectl::Ended,
    manifests::WEB,
};

/// From 1.32 on the typed clients send protobuf.
fn sent_protobuf(ground: &Ground, ended: &Ended) -> Judged {
    let body =
        |line: &str| line.contains("Content-Type") && line.contains("application/vnd.kubernetes.protobuf");
    let sent = ended.stderr.lines().any(body);
    ensure(sent || !ground.version().is_at_least(32), || ended.but("does not send protobuf").to_string())
}

pub(super) async fn create_deployment(ground: &Ground) -> Judged {
    let created = ground.run("create deployment foo --image=busybox --replicas=2 --port=80 -v=8").await?;
    created.prints_exactly("deployment.apps/foo created")?;
    sent_protobuf(ground, &created)?;
    let created = ground.object("deployments/foo").await?;
    same("replicas", &created["spec"]["replicas"], &json!(2))?;
    same("the labels", &created["metadata"]["labels"], &json!({ "app": "foo" }))?;
    let container = &created["spec"]["template"]["spec"]["containers"][0];
    same("the image", &container["image"], &json!("busybox"))?;
    same("the pull policy", &container["imagePullPolicy"], &json!("Always"))?;
    same("the ports", &container["ports"], &json!([{ "containerPort": 80, "protocol": "TCP" }]))
}

pub(super) async fn no_replicas(ground: &Ground) -> Judged {
    ground
        .run("create deployment zero --image=b --replicas=0")
        .await?
        .prints_exactly("deployment.apps/zero created")?;
    let zero = ground
        .until_object("deployments/zero", "availability", |zero| {
            let conditions = zero["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .into_iter()
                .any(|condition| condition["type"] == "Available" && condition["status"] == "True")
        })
        .await?;
    same("replicas", &zero["spec"]["replicas"], &json!(0))?;
    same("the pods", &ground.names("pods").await?, &Vec::new())
}

pub(super) async fn exists_already(ground: &Ground) -> Judged {
    ground.run("create deployment foo --image=busybox").await?.prints("*created")?;
    ground
        .run("create deployment foo --image=x")
        .await?
        .fails("error: failed to create deployment: deployments.apps \"foo\" already exists")?;
    ground.apply_web(WEB).await?;
    ground.run("create -f web.yaml").await?.fails(
        "Error from server (AlreadyExists): error when creating \"web.yaml\": deployments.apps \"web\" already exists",
    )?;
    Ok(())
}

pub(super) async fn create_namespace(ground: &Ground) -> Judged {
    let team = format!("{}-team", ground.namespace);
    ground.file("web.yaml", WEB)?;
    let created = ground.run(&format!("create ns {team} -v=8")).await?;
    created.prints_exactly(&format!("namespace/{team} created"))?;
    sent_protobuf(ground, &created)?;
    ground
        .run(&format!("-n {team} create -f web.yaml"))
        .await?
        .prints_exactly("deployment.apps/web created")?;
    let namespace = ground.wire.get(&format!("/api/v1/namespaces/{team}")).await?.expect(200)?;
    same("the label", &namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], &json!(team))?;
    ground.run(&format!("delete ns {team} --wait=false")).await?.prints("namespace \"*\" deleted")?;
    Ok(())
}

pub(super) async fn missing_namespace(ground: &Ground) -> Judged {
    ground
        .run("-n missing create deployment x --image=y")
        .await?
        .fails("error: failed to create deployment: namespaces \"missing\" not found")?;
    ground.file("web.yaml", WEB)?;
    ground.run("-n missing create -f web.yaml").await?.fails(
        "Error from server (NotFound): error when creating \"web.yaml\": namespaces \"missing\" not found",
    )?;
    Ok(())
}

pub(super) async fn others(ground: &Ground) -> Judged {
    ground.run("create deployment web --image=nginx:1 --port=80").await?.prints("*created")?;
    ground.run("expose deploy web").await?.prints_exactly("service/web exposed")?;
    let service = ground.object("services/web").await?;
    same("the selector", &service["spec"]["selector"], &json!({ "app": "web" }))?;
    let port = &service["spec"]["ports"][0];
    same("the port", &(&port["port"], &port["targetPort"]), &(&json!(80), &json!(80)))?;

    let scaled = ground.run("autoscale deploy web --max=5 --min=2 --cpu-percent=50 -v=8").await?;
    scaled.prints_exactly("horizontalpodautoscaler.autoscaling/web autoscaled")?;
    sent_protobuf(ground, &scaled)?;
    let autoscaler = ground.object("horizontalpodautoscalers/web").await?;
    same("the maximum", &autoscaler["spec"]["maxReplicas"], &json!(5))?;
    same(
        "the target",
        &autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        &json!(50),
    )?;

    ground.run("run bare --image=nginx:1 --env=A=b").await?.prints_exactly("pod/bare created")?;
    let pod = ground.object("pods/bare").await?;
    same("the environment", &pod["spec"]["containers"][0]["env"], &json!([{ "name": "A", "value": "b" }]))?;

    let can = ground.run("auth can-i create deploy -v=8").await?;
    can.prints_exactly("yes")?;
    sent_protobuf(ground, &can)?;
    let who = ground.run("auth whoami -o json -v=8").await?;
    let told: Value = serde_json::from_str(&who.stdout).unwrap_or_default();
    let user = told.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    ensure(!user.is_empty(), || who.but("names no user").to_string())?;
    sent_protobuf(ground, &who)
}

//! Checks 24 to 29: rejected objects and their error messages.

use serde_json::json;

use super::CheckResult;
use crate::{
    failure::{ensure, same},
    manifests::{WEB, web_with},
    test_env::TestEnv,
};

pub(super) async fn unknown_field(env: &TestEnv) -> CheckResult {
    env.file("bad.yaml", &web_with(&["repliccas: 4"]))?;
    env.run("create -f bad.yaml").await?.fails(
        "Error from server (BadRequest): error when creating \"bad.yaml\": Deployment in version \"v1\" cannot be \
         handled as a Deployment: strict decoding error: unknown field \"spec.repliccas\"",
    )?;
    env.file("twice.yaml", &WEB.replace("image: nginx:1", "image: nginx:1\n        imagee: x"))?;
    env.run("apply -f twice.yaml").await?.fails(
        "Error from server (BadRequest): error when creating \"twice.yaml\": Deployment in version \"v1\" cannot be \
         handled as a Deployment: strict decoding error: unknown field \"spec.template.spec.containers[0].imagee\"",
    )?;
    same("the Deployments", &env.names("deployments").await?, &Vec::new())
}

pub(super) async fn validate_less(env: &TestEnv) -> CheckResult {
    env.file("bad.yaml", &web_with(&["repliccas: 4"]))?;
    env.run("create --validate=warn -f bad.yaml")
        .await?
        .prints_exactly("deployment.apps/web created")?
        .warns("Warning: unknown field \"spec.repliccas\"")?;
    same("the field", &env.object("deployments/web").await?["spec"]["repliccas"], &json!(null))?;
    env.file("bad.yaml", &web_with(&["repliccas: 4"]).replace("name: web", "name: silent"))?;
    env.run("create --validate=ignore -f bad.yaml")
        .await?
        .prints_exactly("deployment.apps/silent created")?
        .has_empty_stderr()?;
    Ok(())
}

pub(super) async fn selector_mismatch(env: &TestEnv) -> CheckResult {
    env.file("web.yaml", &WEB.replacen("        app: web", "        app: x", 1))?;
    env.run("apply -f web.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: \
         `selector` does not match template `labels`",
    )?;
    Ok(())
}

pub(super) async fn immutable_selector(env: &TestEnv) -> CheckResult {
    env.apply_web(WEB).await?;
    env.file("web.yaml", &WEB.replace("app: web", "app: other"))?;
    env.run("apply -f web.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.selector: Invalid value: \
         {\"matchLabels\":{\"app\":\"other\"}}: field is immutable",
    )?;
    Ok(())
}

pub(super) async fn bad_values(env: &TestEnv) -> CheckResult {
    env.file("one.yaml", &WEB.replace("replicas: 3", "replicas: -1"))?;
    env.run("apply -f one.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    )?;
    let strategy = |text: &str| web_with(&[&format!("strategy: {text}")]);
    env.file("both.yaml", &strategy("{rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}"))?;
    env.run("apply -f both.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": \
         may not be 0 when `maxSurge` is 0",
    )?;
    env.file("over.yaml", &strategy("{rollingUpdate: {maxUnavailable: 101%}}"))?;
    env.run("apply -f over.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": \
         must not be greater than 100%",
    )?;
    env.file("recreate.yaml", &strategy("{type: Recreate, rollingUpdate: {maxSurge: 1}}"))?;
    env.run("apply -f recreate.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.strategy.rollingUpdate: Forbidden: may not be specified when \
         strategy `type` is 'Recreate'",
    )?;
    env.file("deadline.yaml", &web_with(&["minReadySeconds: 10", "progressDeadlineSeconds: 10"]))?;
    env.run("apply -f deadline.yaml").await?.fails(
        "The Deployment \"web\" is invalid: spec.progressDeadlineSeconds: Invalid value: 10: must be greater than \
         minReadySeconds",
    )?;

    let all = web_with(&["minReadySeconds: 10", "progressDeadlineSeconds: 10", "strategy: {type: Sideways}"])
        .replace("replicas: 3", "replicas: -1");
    env.file("all.yaml", &all)?;
    let refused = env.run("apply -f all.yaml").await?;
    refused.fails("The Deployment \"web\" is invalid:")?;
    for wanted in [
        r"\* spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        r"\* spec.progressDeadlineSeconds: Invalid value: 10: must be greater than minReadySeconds",
        r#"\* spec.strategy: Unsupported value: {*"Type":"Sideways"*}: supported values: "Recreate", "RollingUpdate""#,
    ] {
        refused.warns(wanted)?;
    }
    let errors = refused.stderr.lines().filter(|line| line.starts_with("* ")).count();
    ensure(errors == 3, || refused.failure("does not print three errors").to_string())?;
    same("the Deployments", &env.names("deployments").await?, &Vec::new())
}

pub(super) async fn bad_name(env: &TestEnv) -> CheckResult {
    env.file("web.yaml", &WEB.replacen("name: web", "name: Web_1", 1))?;
    env.run("apply -f web.yaml").await?.fails(
        "The Deployment \"Web_1\" is invalid: metadata.name: Invalid value: \"Web_1\": a lowercase RFC 1123 subdomain \
         must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
         character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]\\*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]\\*[a-z0-9])?)\\*')",
    )?;
    Ok(())
}

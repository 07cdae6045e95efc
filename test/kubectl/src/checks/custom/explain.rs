//! Checks of `kubectl explain`.

use super::Kind;
use crate::{checks::CheckResult, test_env::TestEnv};

pub(crate) async fn kind(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.until_described().await?;
    kind.run("explain websites.GROUP").await?.prints(
        "GROUP: *
         KIND: Website
         VERSION: v1
         DESCRIPTION:
         A website.
         FIELDS:
         apiVersion <string>
         kind <string>
         metadata <ObjectMeta>
         spec <Object> -required-
         status <Object>",
    )?;
    // The kind is found by a short name, which needs no group.
    kind.run("explain SHORT.spec").await?.prints(
        "FIELD: spec <Object>
         Desired state of the website.
         host <string> -required-
         Name of the host.
         paths <[]Object>
         replicas <integer>
         tags <[]string>
         tier <string>",
    )?;
    kind.run("explain SHORT.spec.paths.weight").await?.prints("FIELD: weight <integer>")?;
    kind.delete().await
}

pub(crate) async fn recursive(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.until_described().await?;
    kind.run("explain SHORT --recursive").await?.prints(
        "metadata <ObjectMeta>
         labels <map[string]string>
         spec <Object> -required-
         paths <[]Object>
         path <string> -required-
         status <Object>",
    )?;
    kind.run("explain SHORT.spec.nothing").await?.fails("error: field \"nothing\" does not exist")?;
    kind.delete().await
}

pub(crate) async fn deployment_strategy(env: &TestEnv) -> CheckResult {
    env.run("explain deployment.spec.strategy").await?.prints(
        "GROUP: apps
         KIND: Deployment
         VERSION: v1
         FIELD: strategy <DeploymentStrategy>
         rollingUpdate <RollingUpdateDeployment>
         type <string>",
    )?;
    env.run("explain deploy.spec").await?.prints(
        "replicas <integer>
         selector <LabelSelector> -required-
         template <PodTemplateSpec> -required-",
    )?;
    env.run("explain deploy.spec.strategy.rollingUpdate.maxSurge")
        .await?
        .prints("FIELD: maxSurge <IntOrString>")?;
    Ok(())
}

pub(crate) async fn built_in_kinds(env: &TestEnv) -> CheckResult {
    env.run("explain pods.spec.containers.resources").await?.prints(
        "KIND: Pod
         FIELD: resources <ResourceRequirements>
         limits <map[string]Quantity>
         requests <map[string]Quantity>",
    )?;
    env.run("explain rs --recursive")
        .await?
        .prints("spec <ReplicaSetSpec>\nreplicas <integer>\nstatus <ReplicaSetStatus>")?;
    env.run("explain crd.spec.versions")
        .await?
        .prints("name <string> -required-\nserved <boolean> -required-")?;
    env.run("explain hpa --api-version=autoscaling/v1")
        .await?
        .prints("VERSION: v1\nspec <HorizontalPodAutoscalerSpec>*")?;
    env.run("explain deploy.spec.nothing").await?.fails("error: field \"nothing\" does not exist")?;
    Ok(())
}

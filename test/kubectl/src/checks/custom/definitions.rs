//! Checks of CustomResourceDefinitions.

use serde_json::json;

use super::{CREATED, DEFINITION, Kind, WEBSITE};
use crate::{checks::CheckResult, failure::same, test_env::TestEnv};

pub(crate) async fn create(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let path = kind.text("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.GROUP");
    let definition = env.http.get(&path).await?.expect(200)?;
    same("storedVersions", &definition["status"]["storedVersions"], &json!(["v1"]))?;
    same("the accepted kind", &definition["status"]["acceptedNames"]["listKind"], &json!("WebsiteList"))?;
    same("the conversion", &definition["spec"]["conversion"], &json!({"strategy": "None"}))?;
    kind.delete().await
}

pub(crate) async fn api_resources(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let listed = kind.run("api-resources --api-group=GROUP").await?;
    listed.prints("websites * */v1 true Website")?;
    kind.run("api-resources --api-group=GROUP -o wide")
        .await?
        .prints("websites * create,delete,deletecollection,get,list,patch,update,watch *")
        .or_else(|_| listed.prints("websites *"))?;
    kind.delete().await
}

pub(crate) async fn get(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.run("get crd websites.GROUP").await?.prints_exactly("NAME CREATED AT\nwebsites.* *Z")?;
    kind.run("get crds websites.GROUP -o name")
        .await?
        .prints_exactly("customresourcedefinition.apiextensions.k8s.io/websites.*")?;
    kind.delete().await
}

pub(crate) async fn describe(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.run("describe crd websites.GROUP").await?.prints(
        "Name: websites.*
         Kind: CustomResourceDefinition
         Message: no conflicts found
         Reason: NoConflicts
         Type: NamesAccepted
         Reason: InitialNamesAccepted
         Type: Established",
    )?;
    kind.delete().await
}

/// Change of the definition, and expected lines of stderr.
struct Rejected {
    from: &'static str,
    to: &'static str,
    errors: &'static str,
}

pub(crate) async fn invalid(env: &TestEnv) -> CheckResult {
    let kind = Kind::new(env);
    let cases = [
        Rejected {
            from: "name: websites.GROUP",
            to: "name: sites.GROUP",
            errors: "* metadata.name: Invalid value: \"sites.*\": must be spec.names.plural+\".\"+spec.group",
        },
        Rejected {
            from: "scope: Namespaced",
            to: "scope: Wide",
            errors: "* spec.scope: Unsupported value: \"Wide\": supported values: \"Cluster\", \"Namespaced\"",
        },
        Rejected {
            from: "tier: {type: string, enum: [free, paid]}",
            to: "tier: {}",
            errors: "* spec.validation.openAPIV3Schema.properties[spec].properties[tier].type: Required value: must not \
                     be empty for specified object fields",
        },
        Rejected {
            from: "x-kubernetes-list-map-keys: [path]",
            to: "x-kubernetes-list-map-keys: [name]",
            errors: "* spec.validation.openAPIV3Schema.properties[spec].properties[paths].x-kubernetes-list-map-keys: \
                     Invalid value: [\"name\"]: entries must all be names of item properties",
        },
        Rejected {
            from: "default: 1}",
            to: "default: one}",
            errors: "* spec.validation.openAPIV3Schema.properties[spec].properties[replicas].default: Invalid value: \
                     \"string\":* in body must be of type integer: \"string\"",
        },
        Rejected {
            from: "{name: Host, type: string,",
            to: "{name: Host, type: text,",
            errors: "* spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
                     boolean,date,integer,number,string",
        },
        Rejected {
            from: "storage: true",
            to: "storage: false",
            errors: "\\* spec.versions: Invalid value: *: must have exactly one version marked as storage version\n\
                     \\* status.storedVersions: Invalid value: *: must have at least one stored version",
        },
    ];
    for Rejected { from, to, errors } in cases {
        kind.file("crd.yaml", &DEFINITION.replacen(from, to, 1))?;
        kind.run("create -f crd.yaml").await?.fails(errors)?;
    }
    Ok(())
}

pub(crate) async fn unknown_keyword(env: &TestEnv) -> CheckResult {
    let kind = Kind::new(env);
    kind.file("crd.yaml", &DEFINITION.replacen("minLength: 3", "minLenght: 3", 1))?;
    kind.run("create -f crd.yaml").await?.fails(
        "Error from server (BadRequest): error when creating \"crd.yaml\": CustomResourceDefinition in version \"v1\" \
         cannot be handled as a CustomResourceDefinition: strict decoding error: unknown field \
         \"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.host.minLenght\"",
    )?;
    Ok(())
}

pub(crate) async fn taken_names(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let other = DEFINITION.replace("websites", "sites").replace("website,", "site,").replace("[SHORT]", "[]");
    kind.file("other.yaml", &other)?;
    kind.run("create -f other.yaml").await?.prints("* created")?;
    kind.run("wait --for=condition=NamesAccepted=False crd/sites.GROUP").await?.prints("* condition met")?;
    kind.run("get crd sites.GROUP -o jsonpath='{.status.conditions[*].reason}'")
        .await?
        .prints_exactly("ListKindConflict NotAccepted")?;
    kind.run("delete crd websites.GROUP").await?.prints("* deleted*")?;
    kind.run("wait --for=condition=Established crd/sites.GROUP").await?.prints("* condition met")?;
    kind.run("delete crd sites.GROUP").await?.prints("* deleted*")?;
    Ok(())
}

pub(crate) async fn immutable(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let patch =
        r#"patch crd websites.GROUP --type=merge -p '{"spec":{"scope":"Cluster","names":{"kind":"Site"}}}'"#;
    kind.run(patch).await?.fails(
        "The CustomResourceDefinition \"websites.*\" is invalid:*
         \\* spec.scope: Invalid value: \"Cluster\": field is immutable
         \\* spec.names.kind: Invalid value: \"Site\": field is immutable",
    )?;
    let rename = r#"patch crd websites.GROUP --type=json
        -p '[{"op":"replace","path":"/spec/versions/0/name","value":"v2"}]'"#;
    kind.run(&rename.replace('\n', " "))
        .await?
        .fails("* status.storedVersions[0]: Invalid value: \"v1\": missing from *")?;
    kind.delete().await
}

pub(crate) async fn update(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.create("  color: red\n").await?.fails("* unknown field \"spec.color\"")?;
    let field = "              color: {type: string, default: blue}\n              port:";
    kind.file("crd.yaml", &DEFINITION.replacen("              port:", field, 1))?;
    kind.run("apply -f crd.yaml").await?.prints("* configured")?;
    env.until("the new default", async || {
        Ok((kind.get("/a").await?["spec"]["color"] == "blue").then_some(()))
    })
    .await?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"spec\":{\"color\":\"red\"}}'")
        .await?
        .prints("* patched")?;
    same("the color", &kind.get("/a").await?["spec"]["color"], &json!("red"))?;
    kind.delete().await
}

pub(crate) async fn delete(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/x\"]}}'")
        .await?
        .exits(0)?;
    kind.run("delete crd websites.GROUP --wait=false").await?.prints("* deleted*")?;
    env.until("the deletion of the website", async || {
        Ok((!kind.get("/a").await?["metadata"]["deletionTimestamp"].is_null()).then_some(()))
    })
    .await?;
    kind.file("b.yaml", &WEBSITE.replace("name: a", "name: b"))?;
    kind.run("create -f b.yaml")
        .await?
        .fails("* create not allowed while custom resource definition is terminating")?;
    kind.run("get crd websites.GROUP -o jsonpath='{.status.conditions[?(@.type==\"Terminating\")].status}'")
        .await?
        .prints_exactly("True")?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")
        .await?
        .exits(0)?;
    kind.run("wait --for=delete --timeout=30s crd/websites.GROUP").await?.exits(0)?;
    env.until("the end of the custom kind", async || {
        let left = env.http.get(&kind.text("/apis/GROUP/v1")).await?;
        Ok((left.status == 404).then_some(()))
    })
    .await
}

pub(crate) async fn cluster_scoped(env: &TestEnv) -> CheckResult {
    let kind = Kind::define_as(env, &DEFINITION.replace("scope: Namespaced", "scope: Cluster")).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("api-resources --api-group=GROUP --namespaced=false")
        .await?
        .prints("websites * */v1 false Website")?;
    kind.run("get websites.GROUP -o name").await?.prints_exactly("website.*/a")?;
    same("the website exists in the namespace", &kind.exists("/a").await?, &false)?;
    kind.run("delete websites.GROUP a").await?.prints("* deleted*")?;
    kind.delete().await
}

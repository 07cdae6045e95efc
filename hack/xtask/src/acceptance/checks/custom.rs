//! Checks 73 to 112: CustomResourceDefinitions and custom resources.
//!
//! Each check defines a kind `Website` in a separate group.

use http::{Method, header};
use serde_json::{Value, json};

use super::CheckResult;
use crate::acceptance::{
    failure::{Failure, ensure, same},
    kubectl::CommandOutput,
    test_env::TestEnv,
};

/// Definition. `GROUP` is the group of the check, `SHORT` a short name that only this check uses.
const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: websites.GROUP
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: websites, singular: website, kind: Website, shortNames: [SHORT], categories: [CATEGORY]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Host, type: string, jsonPath: .spec.host}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Tier, type: string, jsonPath: .spec.tier, priority: 1}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type==\"Ready\")].status'}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A website.
        required: [spec]
        properties:
          spec:
            type: object
            description: Desired state of the website.
            required: [host]
            properties:
              host: {type: string, description: Name of the host., minLength: 3, pattern: '^[a-z.]+$'}
              replicas: {type: integer, minimum: 0, maximum: 10, default: 1}
              tier: {type: string, enum: [free, paid]}
              port: {x-kubernetes-int-or-string: true}
              note: {type: string, nullable: true}
              paths:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [path]
                items:
                  type: object
                  required: [path]
                  properties:
                    path: {type: string}
                    weight: {type: integer}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
              conditions:
                type: array
                items: {type: object, properties: {type: {type: string}, status: {type: string}}}
";

/// Object of the kind.
const WEBSITE: &str = "\
apiVersion: GROUP/v1
kind: Website
metadata:
  name: a
spec:
  host: example.org
";

/// Kind of a check.
struct Kind<'a> {
    env: &'a TestEnv,
    group: String,
}

impl<'a> Kind<'a> {
    fn new(env: &'a TestEnv) -> Self {
        Self { env, group: format!("{}.example.com", env.namespace) }
    }

    /// Defines the kind and waits until it is served.
    async fn define(env: &'a TestEnv) -> Result<Self, Failure> {
        Self::define_as(env, DEFINITION).await
    }

    async fn define_as(env: &'a TestEnv, definition: &str) -> Result<Self, Failure> {
        let kind = Self::new(env);
        kind.file("crd.yaml", definition)?;
        kind.run("create -f crd.yaml")
            .await?
            .prints("customresourcedefinition.apiextensions.k8s.io/websites.* created")?;
        kind.run("wait --for=condition=Established crd/websites.GROUP").await?.prints("* condition met")?;
        // An API server may serve the kind a moment later.
        env.until("the custom kind", async || {
            let found = env.http.get(&kind.text("/apis/GROUP/v1/websites")).await?;
            Ok((found.status == 200).then_some(()))
        })
        .await?;
        Ok(kind)
    }

    /// Waits until the kind is found by its short name and has a schema in the OpenAPI document.
    async fn until_described(&self) -> CheckResult {
        self.env
            .until("the OpenAPI document", async || {
                let document = self.env.http.get(&self.text("/openapi/v3/apis/GROUP/v1")).await?;
                let is_listed = document.status == 200 && document.body.to_string().contains("\"Website\"");
                Ok(is_listed.then_some(()))
            })
            .await?;
        // Fills the discovery cache.
        self.run("get websites.GROUP").await?.exits(0)?;
        Ok(())
    }

    fn text(&self, text: &str) -> String {
        let short = self.env.namespace.replace("check-", "w").replace('-', "x");
        text.replace("GROUP", &self.group).replace("SHORT", &short).replace("CATEGORY", &format!("{short}s"))
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        self.env.file(name, &self.text(text))
    }

    async fn run(&self, line: &str) -> Result<CommandOutput, Failure> {
        self.env.run(&self.text(line)).await
    }

    /// Creates the website `a` with more lines in its spec.
    async fn create(&self, lines: &str) -> Result<CommandOutput, Failure> {
        self.file("a.yaml", &format!("{WEBSITE}{lines}"))?;
        self.run("create -f a.yaml").await
    }

    fn path(&self, what: &str) -> String {
        self.text(&format!("/apis/GROUP/v1/namespaces/{}/websites{what}", self.env.namespace))
    }

    async fn get(&self, what: &str) -> Result<Value, Failure> {
        self.env.http.get(&self.path(what)).await?.expect(200)
    }

    async fn exists(&self, what: &str) -> Result<bool, Failure> {
        Ok(self.env.http.get(&self.path(what)).await?.status == 200)
    }

    /// Removes the definition.
    async fn delete(self) -> CheckResult {
        self.run("delete crd websites.GROUP")
            .await?
            .prints("customresourcedefinition.* \"websites.*\" deleted*")?;
        Ok(())
    }
}

const CREATED: &str = "website.*/a created";

pub(super) async fn create_definition(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let path = kind.text("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.GROUP");
    let definition = env.http.get(&path).await?.expect(200)?;
    same("storedVersions", &definition["status"]["storedVersions"], &json!(["v1"]))?;
    same("the accepted kind", &definition["status"]["acceptedNames"]["listKind"], &json!("WebsiteList"))?;
    same("the conversion", &definition["spec"]["conversion"], &json!({"strategy": "None"}))?;
    kind.delete().await
}

pub(super) async fn api_resources(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let listed = kind.run("api-resources --api-group=GROUP").await?;
    listed.prints("websites * */v1 true Website")?;
    kind.run("api-resources --api-group=GROUP -o wide")
        .await?
        .prints("websites * create,delete,deletecollection,get,list,patch,update,watch *")
        .or_else(|_| listed.prints("websites *"))?;
    kind.delete().await
}

pub(super) async fn get_definitions(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.run("get crd websites.GROUP").await?.prints_exactly("NAME CREATED AT\nwebsites.* *Z")?;
    kind.run("get crds websites.GROUP -o name")
        .await?
        .prints_exactly("customresourcedefinition.apiextensions.k8s.io/websites.*")?;
    kind.delete().await
}

pub(super) async fn describe_definition(env: &TestEnv) -> CheckResult {
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

pub(super) async fn invalid_definition(env: &TestEnv) -> CheckResult {
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

pub(super) async fn unknown_keyword(env: &TestEnv) -> CheckResult {
    let kind = Kind::new(env);
    kind.file("crd.yaml", &DEFINITION.replacen("minLength: 3", "minLenght: 3", 1))?;
    kind.run("create -f crd.yaml").await?.fails(
        "Error from server (BadRequest): error when creating \"crd.yaml\": CustomResourceDefinition in version \"v1\" \
         cannot be handled as a CustomResourceDefinition: strict decoding error: unknown field \
         \"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.host.minLenght\"",
    )?;
    Ok(())
}

pub(super) async fn taken_names(env: &TestEnv) -> CheckResult {
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

pub(super) async fn immutable_definition(env: &TestEnv) -> CheckResult {
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

pub(super) async fn create(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("  unknown: 1\n").await?.fails("* strict decoding error: unknown field \"spec.unknown\"")?;
    kind.create("").await?.prints_exactly(CREATED)?;
    kind.create("").await?.fails("Error from server (AlreadyExists): * websites.* \"a\" already exists")?;
    let stored = kind.get("/a").await?;
    same("the spec", &stored["spec"], &json!({"host": "example.org", "replicas": 1}))?;
    same("the generation", &stored["metadata"]["generation"], &json!(1))?;
    kind.run("get websites.GROUP a -o jsonpath='{.kind} {.spec.replicas}'")
        .await?
        .prints_exactly("Website 1")?;
    kind.run("get websites.GROUP b")
        .await?
        .fails("Error from server (NotFound): websites.* \"b\" not found")?;
    kind.delete().await
}

pub(super) async fn printer_columns(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("  tier: paid\n").await?.prints(CREATED)?;
    kind.run("get websites.GROUP")
        .await?
        .prints_exactly("NAME HOST REPLICAS READY AGE\na example.org 1 *s")?;
    kind.run("get websites.GROUP -o wide")
        .await?
        .prints_exactly("NAME HOST REPLICAS TIER READY AGE\na example.org 1 paid *s")?;
    let ready = r#"patch websites.GROUP a --subresource=status --type=merge
        -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'"#;
    kind.run(&ready.replace('\n', " ")).await?.prints("* patched")?;
    kind.run("get websites.GROUP a --no-headers").await?.prints_exactly("a example.org 1 True *s")?;
    kind.delete().await
}

pub(super) async fn age_column(env: &TestEnv) -> CheckResult {
    let start = DEFINITION.find("    additionalPrinterColumns").unwrap_or_default();
    let end = DEFINITION.find("    schema:").unwrap_or_default();
    let kind = Kind::define_as(env, &format!("{}{}", &DEFINITION[..start], &DEFINITION[end..])).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("get websites.GROUP").await?.prints_exactly("NAME AGE\na *s")?;
    kind.delete().await
}

pub(super) async fn short_names(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    for name in ["SHORT", "Website.v1.GROUP", "websites.v1.GROUP", "website.GROUP", "CATEGORY"] {
        kind.run(&format!("get {name} -o name")).await?.prints_exactly("website.*/a")?;
    }
    kind.delete().await
}

pub(super) async fn apply(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", &format!("{WEBSITE}  tier: free\n"))?;
    kind.run("apply -f a.yaml").await?.prints_exactly(CREATED)?;
    kind.run("apply -f a.yaml").await?.prints_exactly("website.*/a unchanged")?;
    kind.file("a.yaml", &format!("{WEBSITE}  paths: [{{path: /a}}]\n"))?;
    kind.run("apply -f a.yaml").await?.prints_exactly("website.*/a configured")?;
    let spec = kind.get("/a").await?["spec"].clone();
    same("the spec", &spec, &json!({"host": "example.org", "replicas": 1, "paths": [{"path": "/a"}]}))?;
    kind.delete().await
}

pub(super) async fn diff(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", WEBSITE)?;
    kind.run("apply -f a.yaml").await?.prints(CREATED)?;
    kind.run("diff -f a.yaml").await?.exits(0)?;
    kind.file("a.yaml", &WEBSITE.replace("example.org", "example.net"))?;
    let changed = kind.run("diff -f a.yaml").await?;
    changed.exits(1)?;
    ensure(changed.stdout.contains("+  host: example.net"), || {
        changed.failure("shows no change").to_string()
    })?;
    kind.delete().await
}

pub(super) async fn dry_run(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", WEBSITE)?;
    kind.run("create --dry-run=server -f a.yaml")
        .await?
        .prints_exactly("website.*/a created (server dry run)")?;
    same("the website exists", &kind.exists("/a").await?, &false)?;
    let other =
        DEFINITION.replace("websites", "sites").replace("kind: Website", "kind: Site").replace("SHORT", "sx");
    kind.file("other.yaml", &other)?;
    kind.run("create --dry-run=server -f other.yaml").await?.prints("* created (server dry run)")?;
    kind.run("get crd sites.GROUP").await?.fails("Error from server (NotFound): *")?;
    kind.delete().await
}

pub(super) async fn validate_less(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", &format!("{WEBSITE}  unknown: 1\n"))?;
    kind.run("create --validate=warn -f a.yaml")
        .await?
        .prints_exactly(CREATED)?
        .warns("Warning: unknown field \"spec.unknown\"")?;
    same("the field", &kind.get("/a").await?["spec"]["unknown"], &json!(null))?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"spec\":{\"other\":1}}'")
        .await?
        .warns("Warning: unknown field \"spec.other\"")?;
    kind.delete().await
}

pub(super) async fn schema_violations(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let cases = [
        ("  replicas: 11\n", "* spec.replicas in body should be less than or equal to 10"),
        ("  tier: gold\n", "* spec.tier: Unsupported value: \"gold\": supported values: \"free\", \"paid\""),
        ("  port: true\n", "* spec.port in body must be of type integer,string: \"boolean\""),
        (
            "  paths: [{path: a}, {path: b}, {path: c}, {path: d}]\n",
            "* spec.paths: Too many: 4: must have at most 3 items",
        ),
        ("  paths: [{weight: 1}]\n", "* spec.paths[0].path: Required value"),
        (
            "  replicas: many\n",
            "\\* spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"\n\
             \\* .spec.replicas: Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected \
             int64",
        ),
    ];
    for (lines, errors) in cases {
        kind.create(lines).await?.fails("The Website \"a\" is invalid:*")?.warns(errors)?;
    }
    kind.file("a.yaml", &WEBSITE.replace("  host: example.org", "  tier: free"))?;
    kind.run("create -f a.yaml").await?.fails("The Website \"a\" is invalid: spec.host: Required value")?;
    kind.file("a.yaml", &WEBSITE.replace("example.org", "ab"))?;
    kind.run("create -f a.yaml").await?.fails("* spec.host in body should be at least 3 chars long")?;
    kind.delete().await
}

pub(super) async fn list_types(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("  paths: [{path: a}, {path: a}]\n")
        .await?
        .fails("The Website \"a\" is invalid: spec.paths[1]: Duplicate value: {\"path\":\"a\"}")?;
    kind.create("  tags: [a, b, a]\n")
        .await?
        .fails("The Website \"a\" is invalid: spec.tags[2]: Duplicate value: \"a\"")?;
    kind.delete().await
}

pub(super) async fn extensions(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("  port: http\n  note: null\n  extra: {any: {thing: [1, null]}}\n").await?.prints(CREATED)?;
    let spec = kind.get("/a").await?["spec"].clone();
    let expected = json!({"host": "example.org", "replicas": 1, "port": "http", "note": null,
        "extra": {"any": {"thing": [1, null]}}});
    same("the spec", &spec, &expected)?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"spec\":{\"port\":80}}'")
        .await?
        .prints("* patched")?;
    same("the port", &kind.get("/a").await?["spec"]["port"], &json!(80))?;
    kind.delete().await
}

pub(super) async fn patch(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let merge = "patch websites.GROUP a --type=merge -p '{\"spec\":{\"tier\":\"paid\"}}'";
    kind.run(merge).await?.prints_exactly("website.*/a patched")?;
    kind.run(merge).await?.prints_exactly("website.*/a patched (no change)")?;
    let replace =
        r#"patch websites.GROUP a --type=json -p '[{"op":"replace","path":"/spec/tier","value":"free"}]'"#;
    kind.run(replace).await?.prints_exactly("website.*/a patched")?;
    let stored = kind.get("/a").await?;
    same("the tier", &stored["spec"]["tier"], &json!("free"))?;
    same("the generation", &stored["metadata"]["generation"], &json!(3))?;
    kind.run("patch websites.GROUP a -p '{\"spec\":{}}'").await?.fails(
        "* the body of the request was in an unknown format - accepted media types include: *application/merge-patch+json*",
    )?;
    kind.delete().await
}

pub(super) async fn edit(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let editor = env.with("KUBE_EDITOR", "sed -i s/example.org/example.net/");
    editor.run(&kind.text("edit websites.GROUP a")).await?.prints_exactly("website.*/a edited")?;
    same("the host", &kind.get("/a").await?["spec"]["host"], &json!("example.net"))?;
    kind.delete().await
}

pub(super) async fn label(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("label websites.GROUP a x=y").await?.prints_exactly("website.*/a labeled")?;
    kind.run("annotate websites.GROUP a x=y").await?.prints_exactly("website.*/a annotated")?;
    kind.run("get websites.GROUP -l x=y -o name").await?.prints_exactly("website.*/a")?;
    kind.run("get websites.GROUP --field-selector metadata.name!=a -o name").await?.prints_exactly("")?;
    same("the generation", &kind.get("/a").await?["metadata"]["generation"], &json!(1))?;
    kind.delete().await
}

pub(super) async fn replace(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let stale = kind.run("get websites.GROUP a -o yaml").await?.stdout;
    env.file("stale.yaml", &stale)?;
    let mut unversioned = kind.get("/a").await?;
    unversioned["metadata"]["resourceVersion"] = json!("");
    let content_type = (header::CONTENT_TYPE, "application/json");
    let refused = env.http.send(Method::PUT, &kind.path("/a"), content_type, Some(&unversioned)).await?;
    same("the status of an update without version", &refused.status, &422)?;
    env.file("fresh.yaml", &stale.replace("replicas: 1", "replicas: 2"))?;
    kind.run("replace -f fresh.yaml").await?.prints_exactly("website.*/a replaced")?;
    kind.run("replace -f stale.yaml").await?.fails("* the object has been modified; *")?;
    kind.delete().await
}

pub(super) async fn scale(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("scale websites.GROUP a --replicas=3").await?.prints_exactly("website.*/a scaled")?;
    same("replicas", &kind.get("/a").await?["spec"]["replicas"], &json!(3))?;
    kind.run("scale websites.GROUP a --replicas=11")
        .await?
        .fails("* spec.replicas in body should be less than or equal to 10")?;
    let scale = kind.get("/a/scale").await?;
    same("the kind", &scale["kind"], &json!("Scale"))?;
    same("the scale", &(&scale["spec"]["replicas"], &scale["status"]["replicas"]), &(&json!(3), &json!(0)))?;
    kind.delete().await
}

pub(super) async fn status(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", &format!("{WEBSITE}status: {{replicas: 5}}\n"))?;
    kind.run("create -f a.yaml").await?.prints(CREATED)?;
    same("the status", &kind.get("/a").await?["status"], &json!(null))?;
    let patch = "-p '{\"status\":{\"replicas\":2},\"spec\":{\"tier\":\"paid\"}}'";
    kind.run(&format!("patch websites.GROUP a --subresource=status --type=merge {patch}"))
        .await?
        .prints_exactly("website.*/a patched")?;
    let stored = kind.get("/a").await?;
    same("the status", &stored["status"], &json!({"replicas": 2}))?;
    same("the tier", &stored["spec"]["tier"], &json!(null))?;
    kind.run(&format!("patch websites.GROUP a --type=merge {patch}")).await?.prints("* patched")?;
    let stored = kind.get("/a").await?;
    same("the tier", &stored["spec"]["tier"], &json!("paid"))?;
    kind.run("get websites.GROUP a --subresource=status -o jsonpath={.status.replicas}")
        .await?
        .prints_exactly("2")?;
    kind.delete().await
}

pub(super) async fn wait(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("wait --for=jsonpath='{.spec.replicas}'=1 websites.GROUP/a")
        .await?
        .prints_exactly("website.*/a condition met")?;
    kind.run("wait --for=condition=Ready --timeout=1s websites.GROUP/a")
        .await?
        .fails("error: timed out waiting for the condition on websites/a")?;
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kind.run(&format!("patch websites.GROUP a --subresource=status --type=merge -p '{ready}'"))
        .await?
        .exits(0)?;
    kind.run("wait --for=condition=Ready websites.GROUP/a")
        .await?
        .prints_exactly("website.*/a condition met")?;
    kind.delete().await
}

pub(super) async fn get_watch(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let mut watch = env.start(&kind.text("get websites.GROUP -w"))?;
    watch.until("a example.org 1 *").await?;
    kind.run("scale websites.GROUP a --replicas=2").await?.exits(0)?;
    watch.until("a example.org 2 *").await?;
    watch.interrupt().await?;
    kind.delete().await
}

pub(super) async fn delete(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("delete websites.GROUP a").await?.prints("website.* \"a\" deleted*")?;
    kind.create("").await?.prints(CREATED)?;
    kind.file("b.yaml", &WEBSITE.replace("name: a", "name: b"))?;
    kind.run("create -f b.yaml").await?.exits(0)?;
    kind.run("delete websites.GROUP --all").await?.prints("* \"a\" deleted*\n* \"b\" deleted*")?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/x\"]}}'")
        .await?
        .exits(0)?;
    kind.run("delete websites.GROUP a --wait=false").await?.prints("* deleted*")?;
    ensure(!kind.get("/a").await?["metadata"]["deletionTimestamp"].is_null(), || {
        "not terminating".to_owned()
    })?;
    kind.run("patch websites.GROUP a --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")
        .await?
        .exits(0)?;
    same("the website exists", &kind.exists("/a").await?, &false)?;
    kind.delete().await
}

pub(super) async fn server_side_apply(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.file("a.yaml", &format!("{WEBSITE}  paths: [{{path: /a, weight: 1}}]\n  tags: [x]\n"))?;
    kind.run("apply --server-side -f a.yaml").await?.prints_exactly("website.*/a serverside-applied")?;
    kind.file("b.yaml", &format!("{WEBSITE}  paths: [{{path: /b}}]\n  tags: [z]\n"))?;
    kind.run("apply --server-side --field-manager=other -f b.yaml").await?.exits(0)?;
    let spec = kind.get("/a").await?["spec"].clone();
    same("the paths", &spec["paths"], &json!([{"path": "/a", "weight": 1}, {"path": "/b"}]))?;
    same("the tags", &spec["tags"], &json!(["x", "z"]))?;
    kind.file("b.yaml", &WEBSITE.replace("example.org", "example.net"))?;
    kind.run("apply --server-side --field-manager=other -f b.yaml")
        .await?
        .fails("error: Apply failed with 1 conflict: conflict with \"kubectl\": .spec.host*")?;
    kind.run("apply --server-side --field-manager=other --force-conflicts -f b.yaml").await?.exits(0)?;
    let spec = kind.get("/a").await?["spec"].clone();
    same("the host", &spec["host"], &json!("example.net"))?;
    same("the tags", &spec["tags"], &json!(["x"]))?;
    kind.delete().await
}

pub(super) async fn explain(env: &TestEnv) -> CheckResult {
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

pub(super) async fn explain_recursive(env: &TestEnv) -> CheckResult {
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

pub(super) async fn explain_built_in(env: &TestEnv) -> CheckResult {
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

pub(super) async fn explain_others(env: &TestEnv) -> CheckResult {
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

/// [`DEFINITION`] with the version `v1beta1`, which has no tier.
fn two_versions() -> String {
    let start = DEFINITION.find("  - name: v1\n").unwrap_or_default();
    let version = &DEFINITION[start..];
    let beta = version
        .replacen("name: v1\n", "name: v1beta1\n    deprecated: true\n", 1)
        .replacen("storage: true", "storage: false", 1)
        .replace("              tier: {type: string, enum: [free, paid]}\n", "")
        .replace("    - {name: Tier, type: string, jsonPath: .spec.tier, priority: 1}\n", "");
    format!("{DEFINITION}{beta}")
}

pub(super) async fn versions(env: &TestEnv) -> CheckResult {
    let kind = Kind::define_as(env, &two_versions()).await?;
    kind.create("  tier: paid\n").await?.prints(CREATED)?;
    kind.run("get websites.v1beta1.GROUP a -o jsonpath='{.apiVersion} {.spec}'")
        .await?
        .prints_exactly("*/v1beta1 {\"host\":\"example.org\",\"replicas\":1}")?;
    kind.run("get websites.GROUP a -o jsonpath='{.apiVersion} {.spec.tier}'")
        .await?
        .prints_exactly("*/v1 paid")?;
    let versions = env.http.get(&kind.text("/apis/GROUP")).await?.expect(200)?;
    same("the preferred version", &versions["preferredVersion"]["version"], &json!("v1"))?;
    kind.delete().await
}

pub(super) async fn deprecated_version(env: &TestEnv) -> CheckResult {
    let kind = Kind::define_as(env, &two_versions()).await?;
    kind.file("a.yaml", &WEBSITE.replace("/v1", "/v1beta1"))?;
    kind.run("create -f a.yaml")
        .await?
        .prints(CREATED)?
        .warns("Warning: */v1beta1 Website is deprecated*")?;
    kind.run("get websites.GROUP a -o jsonpath={.apiVersion}").await?.prints_exactly("*/v1")?;
    kind.run("get websites.v1beta1.GROUP").await?.warns("Warning: */v1beta1 Website is deprecated*")?;
    kind.delete().await
}

pub(super) async fn update_definition(env: &TestEnv) -> CheckResult {
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

pub(super) async fn delete_definition(env: &TestEnv) -> CheckResult {
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

pub(super) async fn namespace(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let team = format!("{}-team", env.namespace);
    env.run(&format!("create ns {team}")).await?.exits(0)?;
    kind.file("a.yaml", &WEBSITE.replace("  name: a", &format!("  name: a\n  namespace: {team}")))?;
    let elsewhere = env.kubectl.clone();
    let elsewhere = crate::acceptance::kubectl::Kubectl { namespace: Some(team.clone()), ..elsewhere };
    elsewhere.run("create -f a.yaml").await?.prints(CREATED)?;
    env.run(&format!("delete ns {team}")).await?.exits(0)?;
    let left = env.http.get(&kind.text("/apis/GROUP/v1/websites")).await?.expect(200)?;
    same("the websites", &left["items"], &json!([]))?;
    kind.delete().await
}

pub(super) async fn owners(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let uid = kind.get("/a").await?["metadata"]["uid"].clone();
    let owner =
        json!({"apiVersion": format!("{}/v1", kind.group), "kind": "Website", "name": "a", "uid": uid});
    let config = json!({"metadata": {"name": "owned", "ownerReferences": [owner]}});
    env.http.post(&env.path("configmaps"), &config).await?.expect(201)?;
    let mut nested =
        json!({"apiVersion": format!("{}/v1", kind.group), "kind": "Website", "spec": {"host": "abc"}});
    nested["metadata"] = json!({"name": "b", "ownerReferences": [owner]});
    env.http.post(&kind.path(""), &nested).await?.expect(201)?;
    kind.run("delete websites.GROUP a --cascade=foreground").await?.prints("* deleted*")?;
    env.until_gone("configmaps/owned").await?;
    same("the owned website exists", &kind.exists("/b").await?, &false)?;
    kind.delete().await
}

pub(super) async fn cluster_scoped(env: &TestEnv) -> CheckResult {
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

//! Checks of custom resources.

use http::{Method, header};
use serde_json::json;

use super::{CREATED, DEFINITION, Kind, WEBSITE};
use crate::{
    checks::CheckResult,
    failure::{ensure, same},
    test_env::TestEnv,
};

pub(crate) async fn create(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn printer_columns(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn age_column(env: &TestEnv) -> CheckResult {
    let start = DEFINITION.find("    additionalPrinterColumns").unwrap_or_default();
    let end = DEFINITION.find("    schema:").unwrap_or_default();
    let kind = Kind::define_as(env, &format!("{}{}", &DEFINITION[..start], &DEFINITION[end..])).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("get websites.GROUP").await?.prints_exactly("NAME AGE\na *s")?;
    kind.delete().await
}

pub(crate) async fn short_names(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    for name in ["SHORT", "Website.v1.GROUP", "websites.v1.GROUP", "website.GROUP", "CATEGORY"] {
        kind.run(&format!("get {name} -o name")).await?.prints_exactly("website.*/a")?;
    }
    kind.delete().await
}

pub(crate) async fn apply(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn diff(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn dry_run(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn validate_less(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn schema_violations(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn list_types(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("  paths: [{path: a}, {path: a}]\n")
        .await?
        .fails("The Website \"a\" is invalid: spec.paths[1]: Duplicate value: {\"path\":\"a\"}")?;
    kind.create("  tags: [a, b, a]\n")
        .await?
        .fails("The Website \"a\" is invalid: spec.tags[2]: Duplicate value: \"a\"")?;
    kind.delete().await
}

pub(crate) async fn extensions(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn patch(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn edit(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let editor = env.with("KUBE_EDITOR", "sed -i s/example.org/example.net/");
    editor.run(&kind.text("edit websites.GROUP a")).await?.prints_exactly("website.*/a edited")?;
    same("the host", &kind.get("/a").await?["spec"]["host"], &json!("example.net"))?;
    kind.delete().await
}

pub(crate) async fn label(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    kind.run("label websites.GROUP a x=y").await?.prints_exactly("website.*/a labeled")?;
    kind.run("annotate websites.GROUP a x=y").await?.prints_exactly("website.*/a annotated")?;
    kind.run("get websites.GROUP -l x=y -o name").await?.prints_exactly("website.*/a")?;
    kind.run("get websites.GROUP --field-selector metadata.name!=a -o name").await?.prints_exactly("")?;
    same("the generation", &kind.get("/a").await?["metadata"]["generation"], &json!(1))?;
    kind.delete().await
}

pub(crate) async fn replace(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn scale(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn status(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn wait(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn get_watch(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    kind.create("").await?.prints(CREATED)?;
    let mut watch = env.start(&kind.text("get websites.GROUP -w"))?;
    watch.until("a example.org 1 *").await?;
    kind.run("scale websites.GROUP a --replicas=2").await?.exits(0)?;
    watch.until("a example.org 2 *").await?;
    watch.interrupt().await?;
    kind.delete().await
}

pub(crate) async fn delete(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn server_side_apply(env: &TestEnv) -> CheckResult {
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

pub(crate) async fn namespace(env: &TestEnv) -> CheckResult {
    let kind = Kind::define(env).await?;
    let team = format!("{}-team", env.namespace);
    env.run(&format!("create ns {team}")).await?.exits(0)?;
    kind.file("a.yaml", &WEBSITE.replace("  name: a", &format!("  name: a\n  namespace: {team}")))?;
    let elsewhere = env.kubectl.clone();
    let elsewhere = crate::kubectl::Kubectl { namespace: Some(team.clone()), ..elsewhere };
    elsewhere.run("create -f a.yaml").await?.prints(CREATED)?;
    env.run(&format!("delete ns {team}")).await?.exits(0)?;
    let left = env.http.get(&kind.text("/apis/GROUP/v1/websites")).await?.expect(200)?;
    same("the websites", &left["items"], &json!([]))?;
    kind.delete().await
}

pub(crate) async fn owners(env: &TestEnv) -> CheckResult {
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

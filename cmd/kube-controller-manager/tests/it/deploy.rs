//! Checks of the files in `deploy/`: flags, probes, security contexts, roles and kustomizations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use kcm_controller_manager::{CONTROLLERS, Command, Options};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// Documents of a file in `deploy/`.
fn documents(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(deploy().join(path)).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn document(path: &str) -> Value {
    let [document] = documents(path).try_into().unwrap();
    document
}

/// All YAML files in a folder and its subfolders, sorted.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap())
}

// Pods.

/// Pod spec of each deployment method.
fn pods() -> [(&'static str, Value); 3] {
    [
        ("deployment", document("deployment/deployment.yaml")["spec"]["template"]["spec"].clone()),
        ("static-pod", document("static-pod/kube-controller-manager-rs.yaml")["spec"].clone()),
        (
            "static-pod-old-kubeconfig",
            document("static-pod-old-kubeconfig/kube-controller-manager-rs.yaml")["spec"].clone(),
        ),
    ]
}

fn options(pod: &Value, more: &[&str]) -> Options {
    let mut command = texts(&pod["containers"][0]["command"]);
    assert_eq!(command.next(), Some("kube-controller-manager"), "name in the image");
    match Command::parse(command.chain(more.iter().copied()).map(OsString::from)).unwrap() {
        Command::Run(options) => *options,
        Command::Print(text) => panic!("{text}"),
    }
}

#[test]
fn pods_use_valid_flags() {
    for (name, pod) in pods() {
        let parsed = options(&pod, &[]);
        assert_eq!(parsed.ignored, Vec::<&str>::new(), "{name}");
        let election = parsed.manager.leader_election.unwrap();
        assert_eq!(election.resource_name, "kube-controller-manager-rs", "{name}: differs from upstream's");
        assert_eq!(election.resource_namespace, "kube-system", "{name}");
    }
}

#[test]
fn parked_lease_is_the_lease_of_the_pods() {
    let lease = document("parked-lease.yaml");
    for (name, pod) in pods() {
        let election = options(&pod, &[]).manager.leader_election.unwrap();
        assert_eq!(lease["metadata"]["name"], election.resource_name, "{name}");
        assert_eq!(lease["metadata"]["namespace"], election.resource_namespace, "{name}");
    }
    assert_eq!(lease["spec"]["holderIdentity"], "nobody-yet");
}

#[test]
fn probes_use_the_secure_port() {
    for (name, pod) in pods() {
        let serving = options(&pod, &[]).serving;
        let container = &pod["containers"][0];
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let get = &container[probe]["httpGet"];
            // A standby is healthy before its caches have synced.
            let path = if probe == "readinessProbe" { "/readyz" } else { "/healthz" };
            assert_eq!((&get["path"], &get["scheme"]), (&path.into(), &"HTTPS".into()), "{name} {probe}");
            let port = match &get["port"] {
                Value::String(name) => {
                    let ports = container["ports"].as_array().unwrap();
                    let port = ports.iter().find(|port| port["name"] == name.as_str()).unwrap();
                    &port["containerPort"]
                }
                number => number,
            };
            assert_eq!(*port, serving.secure_port, "{name} {probe}");
            if serving.bind_address.is_loopback() {
                assert_eq!(get["host"], serving.bind_address.to_string(), "{name} {probe}");
            }
        }
    }
}

#[test]
fn pods_have_restricted_security_contexts() {
    for (name, pod) in pods() {
        let spec = &pod["securityContext"];
        assert_eq!(spec["runAsNonRoot"], true, "{name}");
        assert_eq!(spec["runAsUser"], 65532, "{name}: as in the Containerfile");
        assert_eq!(spec["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(
            container["resources"]["limits"].get("cpu"),
            None,
            "{name}: a throttled leader renews late"
        );
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            assert_eq!(mount["readOnly"], true, "{name}");
        }
    }
    let containerfile = fs::read_to_string(deploy().join("Containerfile")).unwrap();
    assert!(containerfile.contains("USER 65532:65532"));
}

#[test]
fn grace_period_exceeds_the_shutdown_time() {
    for (name, pod) in pods() {
        let manager = options(&pod, &[]).manager;
        let release = manager.leader_election.unwrap().renew_deadline;
        let needs = manager.controller_shutdown_timeout + release;
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > needs.as_secs(), "{name}");
    }
}

#[test]
fn static_pods_mount_the_files_of_their_flags() {
    for (name, pod) in &pods()[1..] {
        assert_mounts_files_of_flags(name, pod);
    }
}

#[test]
fn static_pods_differ_in_one_flag() {
    let [_, (_, own), (_, mut old)] = pods();
    let command = old["containers"][0]["command"].as_array_mut().unwrap();
    let flags = command.len();
    command.retain(|flag| flag != "--use-service-account-credentials=true");
    assert_eq!(command.len(), flags - 1);
    assert_eq!(old, own);
}

#[test]
fn network_policy_admits_only_the_secure_port() {
    let (policy, deployment) =
        (document("deployment/network-policy.yaml"), document("deployment/deployment.yaml"));
    assert_eq!(policy["spec"]["podSelector"], deployment["spec"]["selector"]);
    assert_eq!(policy["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress"]));
    let port = options(&pods()[0].1, &[]).serving.secure_port;
    let [rule] = policy["spec"]["ingress"].as_array().unwrap().as_slice() else { panic!("{policy}") };
    assert_eq!(rule["ports"], serde_json::json!([{"protocol": "TCP", "port": port}]));
    let peers = rule["from"].as_array().unwrap();
    assert!(!peers.is_empty(), "an empty list admits all peers");
    for peer in peers {
        for selector in ["namespaceSelector", "podSelector"] {
            let labels = peer[selector]["matchLabels"].as_object();
            assert!(
                labels.is_some_and(|labels| !labels.is_empty()),
                "{peer}: an empty {selector} admits all"
            );
        }
    }
}

/// Compares with the FlowSchemas that the API server creates for upstream's manager (`kubectl get flowschema -o yaml`).
#[test]
fn flow_schemas_equal_upstream() {
    let subject = serde_json::json!([{"kind": "User", "user": {"name": "kube-controller-manager-rs"}}]);
    let [election, all] = documents("static-pod/flow-schemas.yaml").try_into().unwrap();
    let spec = |level: &str, precedence: u32, distinguisher: &str, mut rule: Value| {
        rule["subjects"] = subject.clone();
        serde_json::json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": distinguisher}, "rules": [rule],
        })
    };
    let leases = serde_json::json!({"resourceRules": [{
        "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "namespaces": ["*"],
    }]});
    assert_eq!(election["spec"], spec("leader-election", 100, "ByUser", leases));
    let everything = serde_json::json!({
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    assert_eq!(all["spec"], spec("workload-high", 800, "ByNamespace", everything));
}

fn assert_mounts_files_of_flags(name: &str, pod: &Value) {
    let mounted: Vec<_> = pod["containers"][0]["volumeMounts"].as_array().unwrap().iter().collect();
    let mounts = |path: &str| mounted.iter().any(|mount| mount["mountPath"] == path);
    let files: Vec<_> = texts(&pod["containers"][0]["command"])
        .filter_map(|flag| flag.split_once("=/").map(|(_, path)| format!("/{path}")))
        .collect();
    assert_eq!(files.len(), 3, "{name}");
    assert!(files.iter().all(|file| mounts(file)), "{name}: {files:?}");
}

#[test]
fn component_enables_the_replication_controller() {
    let component = document("replication-controller/kustomization.yaml");
    let patch = component["patches"][0]["patch"].as_str().unwrap();
    let patch: Value = serde_saphyr::from_str(patch).unwrap();
    let flag = patch[0]["value"].as_str().unwrap();
    let (_, pod) = &pods()[0];
    let count = |more: &[&str]| {
        let selection = options(pod, more).manager.controllers;
        CONTROLLERS.iter().filter(|one| selection.includes(one.name)).count()
    };
    assert_eq!((count(&[]), count(&[flag])), (2, 3), "disabled by default");
}

// Monitoring.

/// File in the repository.
fn repository_file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn service_monitor_and_rules_have_the_same_job() {
    let (service, monitor) =
        (document("monitoring/service.yaml"), document("monitoring/service-monitor.yaml"));
    // The operator's default for the label `job` is the Service's name.
    assert_eq!(monitor["spec"].get("jobLabel"), None);
    let job = service["metadata"]["name"].as_str().unwrap();
    for path in ["docs/observability/rules.yaml", "docs/observability/rules.test.yaml"] {
        let text = repository_file(path);
        let jobs: BTreeSet<_> = text
            .split("{")
            .filter_map(|labels| labels.split_once("job=\"")?.1.split_once('"'))
            .map(|(job, _)| job)
            .collect();
        assert!(jobs.contains(job), "{path}: {jobs:?}");
        // The tests contain another job, too.
        assert!(path.contains("test") || jobs.len() == 1, "{path}: {jobs:?}");
    }
    assert!(repository_file("docs/observability/README.md").contains(&format!("- job_name: {job}\n")));

    let labels = &monitor["spec"]["selector"]["matchLabels"];
    for (label, value) in labels.as_object().unwrap() {
        assert_eq!(service["metadata"]["labels"][label], *value, "the ServiceMonitor selects the Service");
    }
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
}

// Roles.

/// Group, resource, name (empty for all names) and verb.
type Right = (String, String, String, String);

fn rights(role: &Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let names: Vec<_> = texts(&rule["resourceNames"]).collect();
        let names = if names.is_empty() { vec![""] } else { names };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for name in &names {
                    for verb in texts(&rule["verbs"]) {
                        rights.insert([group, resource, name, verb].map(str::to_owned).into());
                    }
                }
            }
        }
    }
    rights
}

/// Parses lines of groups, resource and verbs. `core` is the group without a name.
fn table(lines: &[&str]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for line in lines {
        let [groups, resource, verbs]: [&str; 3] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let (resource, name) = resource.split_once('=').unwrap_or((resource, ""));
        for group in groups.split(',') {
            for verb in verbs.split(',') {
                let group = if group == "core" { "" } else { group };
                rights.insert([group, resource, name, verb].map(str::to_owned).into());
            }
        }
    }
    rights
}

/// Roles of the controllers in API server v1.36 (`kubectl get clusterrole system:controller:NAME`).
const UPSTREAM: [(&str, &[&str]); 3] = [
    (
        "rbac/deployment-controller.yaml",
        &[
            "apps,extensions deployments get,list,watch,update",
            "apps,extensions deployments/status update",
            "apps,extensions deployments/finalizers update",
            "apps,extensions replicasets get,list,watch,create,update,patch,delete",
            "core pods get,list,watch,update",
            "core,events.k8s.io events create,update,patch",
        ],
    ),
    (
        "rbac/replicaset-controller.yaml",
        &[
            "apps,extensions replicasets get,list,watch,update",
            "apps,extensions replicasets/status update",
            "apps,extensions replicasets/finalizers update",
            "core pods list,watch,patch,create,delete",
            "core,events.k8s.io events create,update,patch",
        ],
    ),
    (
        "replication-controller/cluster-role.yaml",
        &[
            "core replicationcontrollers get,list,watch,update",
            "core replicationcontrollers/status update",
            "core replicationcontrollers/finalizers update",
            "core pods list,watch,patch,create,delete",
            "core,events.k8s.io events create,update,patch",
        ],
    ),
];

/// Rights for leader election and for watching the Lease.
const ELECTION: &[&str] = &[
    "coordination.k8s.io leases create",
    "coordination.k8s.io leases=kube-controller-manager-rs get,update,watch",
];

#[test]
fn roles_equal_upstream() {
    for (file, expected) in UPSTREAM {
        assert_eq!(rights(&document(file)), table(expected), "{file}");
    }
    assert_eq!(rights(&document("rbac/leader-election.yaml")), table(ELECTION));
}

#[test]
fn bindings_refer_to_all_roles() {
    let defined: BTreeSet<_> = ["rbac", "replication-controller"]
        .iter()
        .flat_map(|folder| files(&deploy().join(folder)))
        .map(|path| document(path.to_str().unwrap()))
        .filter(|role| role.get("rules").is_some())
        .map(|role| (text(&role["kind"]), text(&role["metadata"]["name"])))
        .collect();
    let predefined =
        [("ClusterRole", "system:auth-delegator"), ("Role", "extension-apiserver-authentication-reader")]
            .map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    for (bindings, more, subject) in [
        ("deployment/bindings.yaml", Some("replication-controller/binding.yaml"), "ServiceAccount"),
        ("static-pod/bindings.yaml", None, "User"),
    ] {
        let mut expected: BTreeSet<_> = defined.iter().chain(&predefined).cloned().collect();
        if more.is_none() {
            expected.retain(|(_, name)| !name.ends_with(":replication-controller"));
        }
        let documents: Vec<_> = [Some(bindings), more].into_iter().flatten().flat_map(documents).collect();
        let bound: BTreeSet<_> = documents
            .iter()
            .map(|binding| (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"])))
            .collect();
        assert_eq!(bound, expected, "{bindings}");
        for binding in documents {
            let subjects = &binding["subjects"];
            assert_eq!(subjects.as_array().unwrap().len(), 1);
            assert_eq!(subjects[0]["kind"], subject);
            assert_eq!(subjects[0]["name"], "kube-controller-manager-rs");
        }
    }
}

#[test]
fn upstreams_user_can_use_the_lease() {
    let binding = document("static-pod-old-kubeconfig/binding.yaml");
    assert_eq!(binding["roleRef"]["name"], document("rbac/leader-election.yaml")["metadata"]["name"]);
    assert_eq!(binding["metadata"]["namespace"], "kube-system");
    assert_eq!(
        binding["subjects"],
        serde_json::json!([{
            "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:kube-controller-manager",
        }])
    );
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

// Kustomizations.

/// Kind, namespace and name of each object of the kustomization in `folder`, without its components.
fn names(folder: &Path) -> BTreeSet<[String; 3]> {
    let kustomization = document(folder.join("kustomization.yaml").to_str().unwrap());
    let suffix = kustomization["nameSuffix"].as_str().unwrap_or_default();
    let mut found = BTreeSet::new();
    for resource in texts(&kustomization["resources"]) {
        let path = folder.join(resource);
        if path.is_dir() {
            found.extend(names(&path));
        } else {
            found.extend(documents(path.to_str().unwrap()).iter().map(|object| {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
                [text(&object["kind"]), namespace.to_owned(), text(&object["metadata"]["name"])]
            }));
        }
    }
    found.into_iter().map(|[kind, namespace, name]| [kind, namespace, name + suffix]).collect()
}

/// `kubectl delete -k` of one variant must not delete roles of another.
#[test]
fn variants_share_no_objects() {
    let mut all = BTreeSet::new();
    for variant in ["deployment", "static-pod", "static-pod-old-kubeconfig"] {
        for name in names(&deploy().join(variant)) {
            assert!(all.insert(name.clone()), "{variant}: {name:?}");
        }
    }
    let role = |name: &str| ["ClusterRole", "", name].map(str::to_owned);
    assert!(all.contains(&role("kube-controller-manager-rs:deployment-controller")));
    assert!(all.contains(&role("kube-controller-manager-rs:deployment-controller-static-pod")));
}

/// A digest in place of a tag alone, and the targets of the Containerfile.
#[test]
fn base_image_takes_a_digest() {
    for path in ["deploy/Containerfile", "../../examples/website-operator/deploy/Containerfile"] {
        let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let bases: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
        assert_eq!(bases.len(), 2, "{path}");
        assert!(bases[0].contains("${RUST_DIGEST} AS build") && bases[1] == "scratch", "{path}: {bases:?}");
        assert!(file.lines().any(|line| line == "ARG RUST_DIGEST=\"\""), "{path}");
    }
    let deny = repository_file("deny.toml");
    for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        assert!(deny.contains(target), "{target}: a target of the Containerfile");
    }
}

#[test]
fn kustomizations_contain_all_files() {
    let folders = [
        "rbac",
        "deployment",
        "static-pod",
        "static-pod-old-kubeconfig",
        "monitoring",
        "replication-controller",
    ];
    let mut used = BTreeSet::new();
    for folder in folders {
        let folder = deploy().join(folder);
        let kustomization = folder.join("kustomization.yaml");
        for resource in texts(&document(kustomization.to_str().unwrap())["resources"]) {
            let path = folder.join(resource);
            assert!(path.exists(), "{}", path.display());
            used.insert(path);
        }
        used.insert(kustomization);
    }
    let unused: Vec<_> = files(&deploy()).into_iter().filter(|file| !used.contains(file)).collect();
    let separate = [
        "parked-lease.yaml",
        "static-pod/kube-controller-manager-rs.yaml",
        "static-pod-old-kubeconfig/kube-controller-manager-rs.yaml",
    ];
    assert_eq!(unused, separate.map(|file| deploy().join(file)));
}

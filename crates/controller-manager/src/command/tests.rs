use std::time::Duration;

use super::*;

/// Parses `line` after the name of a Lease, which is required.
fn parse(line: &str) -> Result<Command, CommandError> {
    let arguments = ["--leader-elect-resource-name=lease"].into_iter().chain(line.split_whitespace());
    Command::parse(arguments.map(OsString::from))
}

fn printed(line: &str) -> String {
    match parse(line) {
        Ok(Command::Print(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn run(line: &str) -> Box<Options> {
    match parse(line) {
        Ok(Command::Run(options)) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn prints_help_and_version() {
    assert!(printed("--kubeconfig=x -h").contains("--concurrent-deployment-syncs"));
    assert!(printed("--help and more").contains("--concurrent-deployment-syncs"));
    assert!(printed("--version").starts_with("kube-controller-manager v"));
    assert!(printed("--version=raw").starts_with("version=\"v"));
    assert!(printed("--version --secure-port=-1").starts_with("kube-controller-manager v"));
    assert!(matches!(parse("--version=false"), Ok(Command::Run(_))));
}

#[test]
fn rejects_invalid_flags() {
    assert_eq!(parse("--help --nonsense").unwrap_err().to_string(), "unknown flag: --nonsense");
    assert_eq!(
        parse("--version=maybe").unwrap_err().to_string(),
        "invalid argument \"maybe\" for \"--version\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax"
    );
    assert_eq!(
        parse("--version now").unwrap_err().to_string(),
        "\"kube-controller-manager\" does not take any arguments, got [\"now\"]"
    );
}

#[test]
fn requires_the_name_of_the_lease() {
    for line in ["", "--leader-elect=true", KUBEADM] {
        let error = Command::parse(line.split_whitespace().map(OsString::from)).unwrap_err().to_string();
        for choice in [
            "--leader-elect-resource-name must be set: either to kube-controller-manager-rs,",
            "or to kube-controller-manager,",
            "--controllers=*,-deployment-controller,-replicaset-controller",
            "--leader-elect=false",
        ] {
            assert!(error.contains(choice), "{choice} is not in {error}");
        }
    }
}

/// Arguments in the static pod that kubeadm v1.36 writes.
const KUBEADM: &str = "
    --allocate-node-cidrs=true
    --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
    --authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
    --bind-address=127.0.0.1
    --client-ca-file=/etc/kubernetes/pki/ca.crt
    --cluster-cidr=10.244.0.0/16
    --cluster-name=kubernetes
    --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
    --cluster-signing-key-file=/etc/kubernetes/pki/ca.key
    --controllers=*,bootstrapsigner,tokencleaner
    --enable-hostpath-provisioner=true
    --kubeconfig=/etc/kubernetes/controller-manager.conf
    --leader-elect=true
    --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
    --root-ca-file=/etc/kubernetes/pki/ca.crt
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key
    --service-cluster-ip-range=10.96.0.0/12
    --use-service-account-credentials=true
";

#[test]
fn accepts_arguments_of_kubeadm() {
    let run = run(KUBEADM);
    let kubeconfig = "/etc/kubernetes/controller-manager.conf";
    assert_eq!(run.server, Server::Kubeconfig { path: kubeconfig.into(), master: None });
    assert_eq!(run.authentication.kubeconfig, Some(kubeconfig.into()));
    assert_eq!(run.authorization.kubeconfig, Some(kubeconfig.into()));
    assert_eq!(run.authentication.client_ca_file, Some("/etc/kubernetes/pki/ca.crt".into()));
    assert!(run.authentication.request_header.client_ca_file.is_some());
    assert_eq!(run.serving.bind_address.to_string(), "127.0.0.1");
    assert!(run.manager.leader_election.is_some() && run.service_account_credentials);
    assert_eq!(
        run.manager.controllers.unavailable(),
        ["bootstrap-signer-controller", "token-cleaner-controller"]
    );
    let mut ignored = run.ignored.clone();
    ignored.sort_unstable();
    assert_eq!(
        ignored,
        [
            "allocate-node-cidrs",
            "cluster-cidr",
            "cluster-name",
            "cluster-signing-cert-file",
            "cluster-signing-key-file",
            "enable-hostpath-provisioner",
            "root-ca-file",
            "service-account-private-key-file",
            "service-cluster-ip-range",
        ]
    );
}

#[test]
fn accepts_arguments_of_kops() {
    let run = run("--allocate-node-cidrs=true --attach-detach-reconcile-sync-period=1m0s
        --authentication-kubeconfig=/var/lib/kube-controller-manager/kubeconfig
        --authorization-kubeconfig=/var/lib/kube-controller-manager/kubeconfig --cloud-provider=external
        --cluster-cidr=100.96.0.0/11 --cluster-name=a.example --cluster-signing-cert-file=/srv/ca.crt
        --cluster-signing-key-file=/srv/ca.key --configure-cloud-routes=false
        --feature-gates=InPlacePodVerticalScaling=true --flex-volume-plugin-dir=/usr/libexec/volume/exec/
        --kubeconfig=/var/lib/kube-controller-manager/kubeconfig --leader-elect=true --root-ca-file=/srv/ca.crt
        --service-account-private-key-file=/srv/service-account.key --tls-cert-file=/srv/server.crt
        --tls-private-key-file=/srv/server.key --use-service-account-credentials=true --v=2");
    assert_eq!(run.serving.tls_cert_file, Some("/srv/server.crt".into()));
    assert_eq!(
        run.warnings,
        ["feature gate InPlacePodVerticalScaling is GA, and will be removed in a future release"]
    );
}

#[test]
fn accepts_arguments_of_k3s() {
    let run = run("--allocate-node-cidrs=true --authentication-kubeconfig=/k3s/controller.kubeconfig
        --authorization-kubeconfig=/k3s/controller.kubeconfig --bind-address=127.0.0.1 --cluster-cidr=10.42.0.0/16
        --cluster-signing-kube-apiserver-client-cert-file=/k3s/client-ca.nochain.crt
        --cluster-signing-kube-apiserver-client-key-file=/k3s/client-ca.key
        --cluster-signing-kubelet-client-cert-file=/k3s/client-ca.nochain.crt
        --cluster-signing-kubelet-client-key-file=/k3s/client-ca.key
        --cluster-signing-kubelet-serving-cert-file=/k3s/server-ca.nochain.crt
        --cluster-signing-kubelet-serving-key-file=/k3s/server-ca.key
        --cluster-signing-legacy-unknown-cert-file=/k3s/server-ca.nochain.crt
        --cluster-signing-legacy-unknown-key-file=/k3s/server-ca.key --configure-cloud-routes=false
        --controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle
        --kubeconfig=/k3s/controller.kubeconfig --leader-elect=false --profiling=false
        --root-ca-file=/k3s/server-ca.crt --secure-port=10257 --service-account-private-key-file=/k3s/service.current.key
        --service-cluster-ip-range=10.43.0.0/16 --tls-cert-file=/k3s/kube-controller-manager.crt
        --tls-private-key-file=/k3s/kube-controller-manager.key --use-service-account-credentials=true");
    assert_eq!(run.manager.leader_election, None);
    assert_eq!(run.manager.controllers.unavailable(), ["token-cleaner-controller"]);
    assert_eq!(run.serving.tls_cert_file, Some("/k3s/kube-controller-manager.crt".into()));
    assert!(!run.profiling);
}

#[test]
fn accepts_underscores_and_short_controller_names() {
    let run =
        run("--kubeconfig /k --leader-elect-resource-name deployments --leader_elect_lease_duration=30s
        --controllers deployment,replicaset -v 4 --concurrent_rc_syncs=3");
    let election = run.manager.leader_election.unwrap();
    assert_eq!(
        (election.resource_name.as_str(), election.lease_duration),
        ("deployments", Duration::from_secs(30))
    );
    assert_eq!(run.manager.concurrent_replication_controller_syncs, 3);
    assert_eq!(run.logging.verbosity, 4);
}

use std::{collections::BTreeMap, ffi::OsString};

use kcm_serving::{SniCertKey, TlsVersion};

use super::*;
use crate::{
    Command, Options,
    logging::{LogFormat, LoggingOptions, ModuleVerbosity},
};

fn flags(line: &str) -> Flags {
    Flags::parse(line.split_whitespace().map(OsString::from)).unwrap()
}

/// Options of `line` after the name of a Lease, which is required.
fn options(line: &str) -> Result<Box<Options>, String> {
    let arguments = ["--leader-elect-resource-name=lease"].into_iter().chain(line.split_whitespace());
    match Command::parse(arguments.map(OsString::from)) {
        Ok(Command::Run(options)) => Ok(options),
        Ok(Command::Print(text)) => panic!("{text}"),
        Err(error) => Err(error.to_string()),
    }
}

fn run(line: &str) -> Box<Options> {
    options(line).unwrap()
}

#[test]
fn only_the_name_of_the_lease_is_required() {
    let elects = ManagerConfig {
        leader_election: Some(LeaderElectionSettings::new("kube-system", "lease")),
        ..ManagerConfig::default()
    };
    let run_without = run("");
    assert_eq!(run_without.manager, elects);
    assert_eq!(run("--leader-elect=false").manager, ManagerConfig::default());
    assert_eq!(run_without.serving, Default::default());
    assert_eq!(run_without.authentication, Default::default());
    assert_eq!(run_without.authorization, Default::default());
    assert_eq!(run_without.metrics, Default::default());
    assert_eq!(run_without.logging, LoggingOptions::default());
    assert!(run_without.profiling && !run_without.contention_profiling);
    assert!(run_without.ignored.is_empty() && run_without.warnings.is_empty());
}

#[test]
fn flags_set_the_manager_config() {
    let line = "--controllers=deployment --concurrent-deployment-syncs=7 --concurrent_replicaset_syncs 8 \
                --kube-api-qps=1.5 --kube-api-burst=3 --min-resync-period=1h30m \
                --controller-start-interval=2s --controller-shutdown-timeout=0 --concurrent-rc-syncs=9 \
                --leader-elect=true --leader-elect-resource-name=custom --leader-elect-resource-namespace=ns \
                --leader-elect-lease-duration=60s --leader-elect-renew-deadline=40s \
                --leader-elect-retry-period=5s --feature-gates=PodDeletionCost=false";
    let expected = ManagerConfig {
        controllers: ControllerSelection::new(&["deployment".to_owned()]).unwrap(),
        concurrent_deployment_syncs: 7,
        concurrent_replica_set_syncs: 8,
        concurrent_replication_controller_syncs: 9,
        rate_limit: RateLimit { qps: 1.5, burst: 3 },
        min_resync_period: Duration::from_secs(5400),
        controller_start_interval: Duration::from_secs(2),
        controller_shutdown_timeout: Duration::ZERO,
        features: ControllerFeatures { pod_deletion_cost: false, ..ControllerFeatures::default() },
        leader_election: Some(LeaderElectionSettings {
            lease_duration: Duration::from_secs(60),
            renew_deadline: Duration::from_secs(40),
            retry_period: Duration::from_secs(5),
            resource_name: "custom".to_owned(),
            resource_namespace: "ns".to_owned(),
            release_on_cancel: true,
        }),
    };
    assert_eq!(run(line).manager, expected);
}

#[test]
fn lease_is_released_unless_the_gate_is_disabled() {
    const GATE: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";
    let released = |line: &str| {
        let run = run(line);
        assert!(run.warnings.is_empty(), "{:?}", run.warnings);
        run.manager.leader_election.unwrap().release_on_cancel
    };
    assert!(released("--leader-elect") && released(&format!("--feature-gates={GATE}=true")));
    assert!(!released(&format!("--feature-gates={GATE}=false")));
}

#[test]
fn flags_set_serving_options() {
    let run = run(
        "--bind-address=127.0.0.1 --secure-port=443 --cert-dir=/c --tls-cert-file=/a --tls-private-key-file=/b \
                   --tls-sni-cert-key=/c,/d:x.y,*.z --tls-min-version=VersionTLS13 --disable-http2-serving \
                   --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --permit-port-sharing \
                   --http2-max-streams-per-connection=42 --authentication-kubeconfig=/e \
                   --authorization-kubeconfig=/f --client-ca-file=/g --requestheader-client-ca-file=/h \
                   --requestheader-allowed-names=front-proxy-client --authentication-token-webhook-cache-ttl=1m \
                   --authorization-always-allow-paths=/healthz,/metrics/* --profiling=false",
    );
    let serving = &run.serving;
    assert_eq!(serving.bind_address.to_string(), "127.0.0.1");
    assert_eq!((serving.secure_port, serving.http2_max_streams_per_connection), (443, 42));
    assert_eq!(serving.tls_min_version, Some(TlsVersion::Tls13));
    assert_eq!(serving.tls_cipher_suites, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
    assert_eq!(
        serving.tls_sni_cert_keys,
        [SniCertKey {
            cert_file: "/c".into(),
            key_file: "/d".into(),
            names: vec!["x.y".to_owned(), "*.z".to_owned()]
        }]
    );
    assert!(serving.disable_http2 && serving.permit_port_sharing && !serving.permit_address_sharing);
    assert_eq!(run.authentication.kubeconfig, Some("/e".into()));
    assert_eq!(run.authentication.token_cache_ttl, Duration::from_secs(60));
    assert_eq!(run.authentication.request_header.allowed_names, ["front-proxy-client"]);
    assert_eq!(run.authorization.always_allow_paths, ["/healthz", "/metrics/*"]);
    assert!(!run.profiling);
}

#[test]
fn flags_set_metrics_and_logging_options() {
    let metrics =
        run("--disabled-metrics=a,b --show-hidden-metrics-for-version=1.35 --allow-metric-labels=m,l=x,y")
            .metrics;
    assert_eq!(metrics.disabled, ["a", "b"]);
    assert_eq!(metrics.show_hidden_for_version.as_deref(), Some("1.35"));
    let labels = ("m".to_owned(), "l".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
    assert_eq!(metrics.allowed_labels, [labels]);
    let logging =
        run("-v4 --vmodule=run*=9 --feature-gates=LoggingAlphaOptions=true --log-text-split-stream").logging;
    let expected = LoggingOptions {
        format: LogFormat::Text,
        verbosity: 4,
        vmodule: vec![ModuleVerbosity { pattern: "run*".to_owned(), verbosity: 9 }],
        split_streams: true,
        targets: Vec::new(),
    };
    assert_eq!(logging, expected);
    assert_eq!(
        run("--logging-format=json --v=2147483647").logging,
        LoggingOptions { format: LogFormat::Json, verbosity: 255, ..LoggingOptions::default() }
    );
}

#[test]
fn reads_allowed_labels_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("labels.yaml");
    let with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let labels = options(&format!("--allow-metric-labels-manifest={}", path.display()));
        labels.map(|run| run.metrics.allowed_labels)
    };
    let expected = vec![("m".to_owned(), "l".to_owned(), vec!["a".to_owned(), "b".to_owned()])];
    assert_eq!(with("\"m,l\": a,b\n").as_ref(), Ok(&expected));
    assert_eq!(with("allowListMapping:\n  \"m,l\": a,b\n"), Ok(expected));
    assert!(
        with("m: a")
            .unwrap_err()
            .contains("invalid allow list mapping in manifest: Invalid value: {\"m\":\"a\"}")
    );
    let error = with("- x").unwrap_err();
    assert!(error.contains("failed to parse allow list manifest: ") && !error.contains('\n'), "{error}");
    assert!(options("--allow-metric-labels-manifest=/nowhere/x").unwrap_err().starts_with(
        "metrics.allowListMappingManifest: Invalid value: \"/nowhere/x\": failed to read allow list manifest: "
    ));
}

#[test]
fn rejects_invalid_options_with_upstreams_messages() {
    let cases: BTreeMap<String, String> = serde_saphyr::from_str(include_str!("rejected.yaml")).unwrap();
    for (line, error) in cases {
        assert_eq!(options(&line).err(), Some(error), "{line}");
    }
    assert_eq!(options("--leader-elect-resource-name=").err().as_deref(), Some(NO_LEASE_NAME));
}

#[test]
fn disabled_leader_election_is_not_validated() {
    let line = "--leader-elect=false --leader-elect-retry-period=0 --leader-elect-resource-lock=endpoints \
                --leader-elect-resource-name=";
    assert_eq!(run(line).manager.leader_election, None);
}

#[test]
fn controllers_are_unserved_with_upstreams_lease_only() {
    let unserved = |line: &str| run(line).manager.unserved_controllers();
    let upstreams = "--leader-elect-resource-name=kube-controller-manager";
    assert!(unserved(upstreams).contains(&"job-controller"));
    assert!(!unserved(&format!("{upstreams} --controllers=*,-job")).contains(&"job-controller"));
    assert!(unserved(&format!("{upstreams} --leader-elect-resource-namespace=other")).is_empty());
    assert!(unserved(&format!("{upstreams} --leader-elect=false")).is_empty());
    assert!(unserved("").is_empty());
}

#[test]
fn disabled_port_is_not_validated() {
    let line =
        "--secure-port=0 --tls-cert-file=/a --tls-min-version=x --authorization-always-allow-paths=/a*b";
    assert_eq!(run(line).serving.secure_port, 0);
}

#[test]
fn warns_of_flags_without_effect() {
    let run = run(
        "--node-sync-period=1s --concurrent-gc-syncs=30 --cluster-name=x --controllers=*,-job,tokencleaner \
                   --feature-gates=ContextualLogging=false --tls-min-version=VersionTLS10 \
                   --tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA --tls-curve-preferences=29 \
                   --enable-leader-migration --kube-api-content-type=application/cbor",
    );
    assert_eq!(run.ignored, ["cluster-name", "node-sync-period", "concurrent-gc-syncs"]);
    assert_eq!(
        run.warnings,
        [
            "--node-sync-period is deprecated: it has no effect",
            "feature gate ContextualLogging=false has no effect, ContextualLogging=true is always used",
            "--controllers selects controllers that are not part of this binary: token-cleaner-controller",
            "--enable-leader-migration has no effect: no controller of this binary supports it",
            "--kube-api-content-type=application/cbor is not supported, using application/json",
            "--tls-curve-preferences has no effect: the TLS library chooses",
            "--tls-min-version=VersionTLS10 is not supported, using VersionTLS12",
        ]
    );
}

#[test]
fn content_type_defaults_to_protobuf() {
    let content_type = |line: &str| run(line).content_type;
    assert_eq!(content_type(""), ContentType::Protobuf);
    assert_eq!(content_type("--kube-api-content-type=application/json"), ContentType::Json);
    assert_eq!(content_type("--kube-api-content-type="), ContentType::Json);
}

#[test]
fn rate_limit_follows_client_go() {
    let limit = |line: &str| run(line).manager.rate_limit;
    assert_eq!(limit("--kube-api-qps=-1"), RateLimit::UNLIMITED);
    assert_eq!(limit("--kube-api-qps=inf"), RateLimit::UNLIMITED);
    assert_eq!(limit("--kube-api-qps=0"), RateLimit { qps: 5.0, burst: 30 });
    assert_eq!(limit("--kube-api-qps=0 --kube-api-burst=0"), RateLimit { qps: 5.0, burst: 10 });
}

#[test]
fn server_defaults_to_the_cluster() {
    assert_eq!(server(&flags("")), Server::InCluster);
    assert_eq!(server(&flags("--master=m")), Server::Master("m".to_owned()));
    let path = "k".into();
    assert_eq!(server(&flags("--kubeconfig=k")), Server::Kubeconfig { path, master: None });
    let (path, master) = ("k".into(), Some("m".to_owned()));
    assert_eq!(server(&flags("--kubeconfig=k --master=m")), Server::Kubeconfig { path, master });
}

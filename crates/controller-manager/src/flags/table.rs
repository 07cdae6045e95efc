//! The table of flags: upstream v1.36's, all of them (US-1.5).
//!
//! Data, in the order in which the help shows it: by section, then by name. `upstream-v1.36.txt` is what upstream's
//! `--help` says of names, types, defaults and sections; a test holds this table to it.

use super::FlagKind;

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Under which heading the help shows it.
    pub section: &'static str,
    /// The name, without dashes in front.
    pub name: &'static str,
    /// The one letter that stands for it.
    pub short: Option<char>,
    /// What it takes.
    pub kind: FlagKind,
    /// The value when it is not given, as it would be given.
    pub default: &'static str,
    /// For people. `None`: only controllers use it that are not built in.
    pub help: Option<&'static str>,
    /// Why nobody should give it any more. Such a flag is not in the help.
    pub deprecated: Option<&'static str>,
}

/// `"section" { ('s') "name": Kind = "default" (deprecated: "why"), "help"; ... } ...`
macro_rules! flags {
    ($($section:literal { $(
        $(($short:literal))? $name:literal: $kind:ident = $default:literal
        $((deprecated: $why:literal))? $(, $help:literal)?;
    )* })*) => {
        &[$($(Flag {
            section: $section,
            name: $name,
            short: flags!(option $($short)?),
            kind: FlagKind::$kind,
            default: $default,
            help: flags!(option $($help)?),
            deprecated: flags!(option $($why)?),
        },)*)*]
    };
    (option) => { None };
    (option $value:literal) => { Some($value) };
}

/// All flags. Those without a help text are only used by controllers that are not built in.
#[rustfmt::skip]
pub static FLAGS: &[Flag] = flags! {
    "debugging" {
        "contention-profiling": Bool = "false",
            "Count where threads wait for locks, too. Nothing here waits for locks long enough to be \
             counted: no effect.";
        "profiling": Bool = "true",
            "Serve what can be told of the running process under /debug/pprof/ and /debug/flags/v.";
    }
    "leader-migration" {
        "enable-leader-migration": Bool = "false",
            "Migration of controllers between managers. None that migrates is built in: no effect.";
        "leader-migration-config": Text = "",
            "The file that says which controllers migrate. None that does is built in: no effect.";
    }
    "generic" {
        "allocate-node-cidrs": Bool = "false";
        "allow-untagged-cloud": Bool = "false" (deprecated: "a cluster-id will be required on cloud instances");
        "cidr-allocator-type": Text = "RangeAllocator";
        "cloud-config": Text = "";
        "cloud-provider": Text = "";
        "cluster-cidr": Text = "";
        "cluster-name": Text = "kubernetes";
        "configure-cloud-routes": Bool = "true";
        "controller-shutdown-timeout": Duration = "10s",
            "How long the controllers may take to stop once asked to. 0 means for ever.";
        "controller-start-interval": Duration = "0s",
            "How long each controller waits before it starts; up to twice that, drawn at random.";
        "controllers": List = "*",
            "Which controllers to run. '*' means all that are on by default, 'foo' means the one called \
             foo, '-foo' means all but that.";
        "emulated-version": List = "",
            "The version of Kubernetes to behave as. Only 1.36, also written kube=1.36, can be.";
        "external-cloud-volume-plugin": Text = "";
        "feature-gates": Gates = "",
            "Features to switch on or off, as Name=true or kube:Name=true. Names and stages are \
             upstream's; those of features that are not built in are accepted.";
        "kube-api-burst": Int32 = "30",
            "How many requests each controller may send at once after a quiet time.";
        "kube-api-content-type": Text = "application/vnd.kubernetes.protobuf",
            "What requests are written in. It is always JSON: no effect.";
        "kube-api-qps": Float32 = "20",
            "How many requests a second each controller may send in the long run. Below zero: any number.";
        "leader-elect": Bool = "true",
            "Run the controllers only while holding a lease, so that of several managers one works.";
        "leader-elect-lease-duration": Duration = "15s",
            "How long others wait after they last saw the leader renew, before they take over.";
        "leader-elect-renew-deadline": Duration = "10s",
            "How long a leader tries to renew before it gives up. Less than the lease duration.";
        "leader-elect-resource-lock": Text = "leases",
            "What kind of object is held. Only leases can be.";
        "leader-elect-resource-name": Text = "kube-controller-manager",
            "The name of the Lease.";
        "leader-elect-resource-namespace": Text = "kube-system",
            "The namespace of the Lease.";
        "leader-elect-retry-period": Duration = "2s",
            "How long to wait between two tries to acquire or to renew.";
        "min-compatibility-version": List = "",
            "The oldest version beside which to run: 1.33 to 1.36. Nothing here depends on it: no effect.";
        "min-resync-period": Duration = "12h0m0s",
            "After how long each object is looked at again though nothing happened; up to twice that, \
             drawn at random.";
        "node-monitor-period": Duration = "5s";
        "node-sync-period": Duration = "0s" (deprecated: "it has no effect");
        "route-reconciliation-period": Duration = "10s";
        "use-service-account-credentials": Bool = "false",
            "Let each controller act as a service account of its own.";
    }
    "service-lb-controller" {
        "concurrent-service-syncs": Int32 = "1";
    }
    "secure serving" {
        "bind-address": Address = "0.0.0.0",
            "The address to serve on. Nothing, 0.0.0.0 and :: mean all there are.";
        "cert-dir": Text = "",
            "Where the certificate that the manager signs itself is kept. Nothing: in memory. Not used \
             with --tls-cert-file.";
        "disable-http2-serving": Bool = "false",
            "Serve HTTP/1.1 only.";
        "http2-max-streams-per-connection": Int = "0",
            "How many requests one connection may have under way. 0 leaves it to the library.";
        "permit-address-sharing": Bool = "false",
            "Set SO_REUSEADDR on the port.";
        "permit-port-sharing": Bool = "false",
            "Set SO_REUSEPORT on the port, so that several processes may share it.";
        "secure-port": Int = "10257",
            "The port to serve health, metrics and the rest on, over TLS. 0: do not serve.";
        "tls-cert-file": Text = "",
            "The certificate to serve with, PEM, followed by those that signed it. None: one of the \
             manager's own.";
        "tls-cipher-suites": List = "",
            "The cipher suites of TLS 1.2 to offer, by Go's names. None: the library's choice.";
        "tls-curve-preferences": Int32List = "",
            "The key exchanges to offer, by number. The library chooses: no effect.";
        "tls-min-version": Text = "",
            "The oldest TLS to speak: VersionTLS12 or VersionTLS13. Older ones are accepted, and not spoken.";
        "tls-private-key-file": Text = "",
            "The key of --tls-cert-file.";
        "tls-sni-cert-key": CertKeys = "",
            "A further certificate and its key, and the names that it is for: cert,key or \
             cert,key:name,name. May be repeated.";
    }
    "authentication" {
        "authentication-kubeconfig": Text = "",
            "Who is asked whose a token is, and for the cluster's client CAs. None: nobody is known by a \
             token.";
        "authentication-skip-lookup": Bool = "false",
            "Do not ask the cluster for its client CAs.";
        "authentication-token-webhook-cache-ttl": Duration = "10s",
            "How long it is remembered whose a token is.";
        "authentication-tolerate-lookup-failure": Bool = "false",
            "Start though the cluster's client CAs cannot be had.";
        "client-ca-file": Text = "",
            "Whose signature makes a client's certificate be believed.";
        "requestheader-allowed-names": List = "",
            "The certificates' names that may say for whom they ask. None: any that the CA has signed.";
        "requestheader-client-ca-file": Text = "",
            "Whose signature makes a client be believed when it says for whom it asks.";
        "requestheader-extra-headers-prefix": List = "x-remote-extra-",
            "How headers with more about a user begin.";
        "requestheader-group-headers": List = "x-remote-group",
            "The headers with a user's groups.";
        "requestheader-uid-headers": List = "",
            "The headers with a user's UID.";
        "requestheader-username-headers": List = "x-remote-user",
            "The headers with a user's name.";
    }
    "authorization" {
        "authorization-always-allow-paths": List = "/healthz,/readyz,/livez",
            "The paths that are open to all. A * at the end means all that begin so.";
        "authorization-kubeconfig": Text = "",
            "Who is asked what somebody may. None: only the paths that are open to all are served.";
        "authorization-webhook-cache-authorized-ttl": Duration = "10s",
            "How long it is remembered what somebody may.";
        "authorization-webhook-cache-unauthorized-ttl": Duration = "10s",
            "How long it is remembered what somebody may not.";
    }
    "persistentvolume-attach-detach-controller" {
        "attach-detach-reconcile-sync-period": Duration = "1m0s";
        "disable-attach-detach-reconcile-sync": Bool = "false";
        "disable-force-detach-on-timeout": Bool = "false";
    }
    "certificatesigningrequest-signing-controller" {
        "cluster-signing-cert-file": Text = "";
        "cluster-signing-duration": Duration = "8760h0m0s";
        "cluster-signing-key-file": Text = "";
        "cluster-signing-kube-apiserver-client-cert-file": Text = "";
        "cluster-signing-kube-apiserver-client-key-file": Text = "";
        "cluster-signing-kubelet-client-cert-file": Text = "";
        "cluster-signing-kubelet-client-key-file": Text = "";
        "cluster-signing-kubelet-serving-cert-file": Text = "";
        "cluster-signing-kubelet-serving-key-file": Text = "";
        "cluster-signing-legacy-unknown-cert-file": Text = "";
        "cluster-signing-legacy-unknown-key-file": Text = "";
    }
    "deployment-controller" {
        "concurrent-deployment-syncs": Int32 = "5",
            "How many Deployments may be worked on at once. More means quicker reactions, and more load.";
    }
    "device-taint-eviction-controller" {
        "concurrent-device-taint-eviction-syncs": Int32 = "8";
    }
    "resourceclaim-controller" {
        "concurrent-resourceclaim-syncs": Int32 = "50";
    }
    "statefulset-controller" {
        "concurrent-statefulset-syncs": Int32 = "5";
    }
    "daemonset-controller" {
        "concurrent-daemonset-syncs": Int32 = "2";
    }
    "endpoints-controller" {
        "concurrent-endpoint-syncs": Int32 = "5";
        "endpoint-updates-batch-period": Duration = "0s";
    }
    "endpointslice-controller" {
        "concurrent-service-endpoint-syncs": Int32 = "5";
        "endpointslice-updates-batch-period": Duration = "0s";
        "max-endpoints-per-slice": Int32 = "100";
    }
    "endpointslice-mirroring-controller" {
        "mirroring-concurrent-service-endpoint-syncs": Int32 = "5";
        "mirroring-endpointslice-updates-batch-period": Duration = "0s";
        "mirroring-max-endpoints-per-subset": Int32 = "1000";
    }
    "ephemeral-volume-controller" {
        "concurrent-ephemeralvolume-syncs": Int32 = "5";
    }
    "garbage-collector-controller" {
        "concurrent-gc-syncs": Int32 = "20";
        "enable-garbage-collector": Bool = "true";
    }
    "horizontal-pod-autoscaler-controller" {
        "concurrent-horizontal-pod-autoscaler-syncs": Int32 = "5";
        "horizontal-pod-autoscaler-cpu-initialization-period": Duration = "5m0s";
        "horizontal-pod-autoscaler-downscale-stabilization": Duration = "5m0s";
        "horizontal-pod-autoscaler-initial-readiness-delay": Duration = "30s";
        "horizontal-pod-autoscaler-sync-period": Duration = "15s";
        "horizontal-pod-autoscaler-tolerance": Float = "0.1";
    }
    "job-controller" {
        "concurrent-job-syncs": Int32 = "5";
    }
    "cronjob-controller" {
        "concurrent-cron-job-syncs": Int32 = "5";
    }
    "legacy-serviceaccount-token-cleaner-controller" {
        "legacy-service-account-token-clean-up-period": Duration = "8760h0m0s";
    }
    "namespace-controller" {
        "concurrent-namespace-syncs": Int32 = "10";
        "namespace-sync-period": Duration = "5m0s";
    }
    "node-ipam-controller" {
        "node-cidr-mask-size": Int32 = "0";
        "node-cidr-mask-size-ipv4": Int32 = "0";
        "node-cidr-mask-size-ipv6": Int32 = "0";
        "service-cluster-ip-range": Text = "";
    }
    "node-lifecycle-controller" {
        "large-cluster-size-threshold": Int32 = "50";
        "node-eviction-rate": Float32 = "0.1";
        "node-monitor-grace-period": Duration = "50s";
        "node-startup-grace-period": Duration = "1m0s";
        "secondary-node-eviction-rate": Float32 = "0.01";
        "unhealthy-zone-threshold": Float32 = "0.55";
    }
    "persistentvolume-binder-controller" {
        "enable-dynamic-provisioning": Bool = "true";
        "enable-hostpath-provisioner": Bool = "false";
        "flex-volume-plugin-dir": Text = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/";
        "pv-recycler-increment-timeout-nfs": Int32 = "30";
        "pv-recycler-minimum-timeout-hostpath": Int32 = "60";
        "pv-recycler-minimum-timeout-nfs": Int32 = "300";
        "pv-recycler-pod-template-filepath-hostpath": Text = "";
        "pv-recycler-pod-template-filepath-nfs": Text = "";
        "pv-recycler-timeout-increment-hostpath": Int32 = "30";
        "pvclaimbinder-sync-period": Duration = "15s";
    }
    "pod-garbage-collector-controller" {
        "terminated-pod-gc-threshold": Int32 = "12500";
    }
    "replicaset-controller" {
        "concurrent-replicaset-syncs": Int32 = "5",
            "How many ReplicaSets may be worked on at once. More means quicker reactions, and more load.";
    }
    "replicationcontroller-controller" {
        "concurrent-rc-syncs": Int32 = "5",
            "How many ReplicationControllers may be worked on at once. More means quicker reactions, and \
             more load.";
    }
    "resourcequota-controller" {
        "concurrent-resource-quota-syncs": Int32 = "5";
        "resource-quota-sync-period": Duration = "5m0s";
    }
    "serviceaccount-controller" {
        "concurrent-serviceaccount-token-syncs": Int32 = "5";
        "root-ca-file": Text = "";
        "service-account-private-key-file": Text = "";
    }
    "ttl-after-finished-controller" {
        "concurrent-ttl-after-finished-syncs": Int32 = "5";
    }
    "validatingadmissionpolicy-status-controller" {
        "concurrent-validating-admission-policy-status-syncs": Int32 = "5";
    }
    "metrics" {
        "allow-metric-labels": Map = "",
            "Which values a metric's label may have: metric,label=value,value. Others are shown as \
             unexpected.";
        "allow-metric-labels-manifest": Text = "",
            "A YAML file with the same, below allowListMapping.";
        "disabled-metrics": List = "",
            "Metrics that are not shown, by their full names.";
        "show-hidden-metrics-for-version": Text = "",
            "Show again what the last version has hidden: 1.35.";
    }
    "logs" {
        "log-flush-frequency": Duration = "5s",
            "How long lines may be held back. None ever is: no effect.";
        "log-json-info-buffer-size": Quantity = "0",
            "How much may be held back where streams are split, in JSON. Nothing ever is: no effect. \
             Needs LoggingAlphaOptions.";
        "log-json-split-stream": Bool = "false",
            "In JSON, write errors to standard error and all else to standard output. Needs \
             LoggingAlphaOptions.";
        "log-text-info-buffer-size": Quantity = "0",
            "How much may be held back where streams are split, in text. Nothing ever is: no effect. \
             Needs LoggingAlphaOptions.";
        "log-text-split-stream": Bool = "false",
            "In text, write warnings and errors to standard error and all else to standard output. Needs \
             LoggingAlphaOptions.";
        "logging-format": Text = "text",
            "How lines are written: json or text.";
        ('v') "v": Level = "0",
            "How much to log: 2 what happens to objects, 4 every step, 6 every request.";
        "vmodule": Modules = "",
            "How much to log from files whose names match: pattern=N. Only for text.";
    }
    "misc" {
        "kubeconfig": Text = "",
            "The file that tells where the API server is and who we are there.";
        "master": Text = "",
            "The address of the API server; wins over the one in the kubeconfig.";
    }
    "global" {
        ('h') "help": Bool = "false",
            "Show this and exit.";
        "version": Version = "false",
            "Show the version and exit. --version=raw shows its parts.";
    }
};

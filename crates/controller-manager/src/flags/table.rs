//! Table of all flags of upstream v1.36 (US-1.5), in upstream's order.
//!
//! A test compares sections, names, types and defaults with `upstream-v1.36.txt`, which was recorded from upstream's
//! `--help`.

use super::FlagKind;

/// Command-line flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Section of upstream's `--help`.
    pub section: &'static str,
    /// Name without leading dashes.
    pub name: &'static str,
    /// Shorthand letter.
    pub short: Option<char>,
    /// Type of the value.
    pub kind: FlagKind,
    /// Default value, as on a command line.
    pub default: &'static str,
    /// Help text. `None` if only controllers that are not part of this binary use the flag.
    pub help: Option<&'static str>,
    /// Deprecation message. Deprecated flags are not in the help.
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

/// All flags of upstream's manager.
#[rustfmt::skip]
pub static FLAGS: &[Flag] = flags! {
    "debugging" {
        "contention-profiling": Bool = "false",
            "Enable block profiling. No effect: this binary has no profiler.";
        "profiling": Bool = "true",
            "Serve /debug/pprof/ and /debug/flags/v.";
    }
    "leader-migration" {
        "enable-leader-migration": Bool = "false",
            "Enable leader migration for controllers. No effect: no controller of this binary supports it.";
        "leader-migration-config": Text = "",
            "Path of the leader migration configuration. No effect: no controller of this binary supports \
             it.";
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
            "Time to wait for controllers to stop after the shutdown signal. If it expires, the process \
             exits with an error. 0: no limit.";
        "controller-start-interval": Duration = "0s",
            "Delay before each controller is started: between this value and twice this value, chosen at \
             random.";
        "controllers": List = "*",
            "Controllers to run. '*' enables all controllers that are on by default, 'foo' enables the \
             controller named 'foo', '-foo' disables the controller named 'foo'.";
        "emulated-version": List = "",
            "Version of Kubernetes to emulate, as [kube=]VERSION. Only 1.36 is supported.";
        "external-cloud-volume-plugin": Text = "";
        "feature-gates": Gates = "",
            "Comma-separated key=value pairs that enable or disable features, as Name=true or \
             kube:Name=true.";
        "kube-api-burst": Int32 = "30",
            "Burst of requests to the API server, per controller.";
        "kube-api-content-type": Text = "application/vnd.kubernetes.protobuf",
            "Content type of requests to the API server: application/vnd.kubernetes.protobuf or \
             application/json.";
        "kube-api-qps": Float32 = "20",
            "Requests per second to the API server, per controller. Negative: no limit.";
        "leader-elect": Bool = "true",
            "Acquire a lease before the controllers are started, so that one of several replicas is \
             active.";
        "leader-elect-lease-duration": Duration = "15s",
            "Time that a standby waits after the last observed renewal before it acquires the lease.";
        "leader-elect-renew-deadline": Duration = "10s",
            "Time within which the leader must renew the lease; otherwise it exits. Must be less than the \
             lease duration.";
        "leader-elect-resource-lock": Text = "leases",
            "Type of the lock object. Only \"leases\" is supported.";
        "leader-elect-resource-name": Text = "",
            "Name of the Lease. Required with --leader-elect. Choose kube-controller-manager-rs beside \
             upstream's manager. With kube-controller-manager, this process leads in place of upstream's, \
             and no process runs the controllers that are not part of this binary.";
        "leader-elect-resource-namespace": Text = "kube-system",
            "Namespace of the Lease.";
        "leader-elect-retry-period": Duration = "2s",
            "Time between attempts to acquire or renew the lease.";
        "min-compatibility-version": List = "",
            "Oldest version of control plane components to be compatible with, as [kube=]VERSION, 1.33 to \
             1.36. No effect.";
        "min-resync-period": Duration = "12h0m0s",
            "Resync period of informers: between this value and twice this value, chosen at random.";
        "node-monitor-period": Duration = "5s";
        "node-sync-period": Duration = "0s" (deprecated: "it has no effect");
        "route-reconciliation-period": Duration = "10s";
        "use-service-account-credentials": Bool = "false",
            "Use a separate service account for each controller.";
    }
    "service-lb-controller" {
        "concurrent-service-syncs": Int32 = "1";
    }
    "secure serving" {
        "bind-address": Address = "0.0.0.0",
            "IP address to listen on for --secure-port. Empty, 0.0.0.0 or :: listens on all interfaces.";
        "cert-dir": Text = "",
            "Directory for the self-signed certificate. If empty, the certificate is kept in memory. \
             Ignored if --tls-cert-file is set.";
        "disable-http2-serving": Bool = "false",
            "Serve HTTP/1.1 only.";
        "http2-max-streams-per-connection": Int = "0",
            "Maximum number of concurrent HTTP/2 streams per connection. 0: the server's default, 100.";
        "permit-address-sharing": Bool = "false",
            "Set SO_REUSEADDR on the listening socket. It is always set.";
        "permit-port-sharing": Bool = "false",
            "Set SO_REUSEPORT on the listening socket, so that several processes can listen on the port.";
        "secure-port": Int = "10257",
            "HTTPS port for health checks, metrics and configuration. 0: HTTPS is not served.";
        "tls-cert-file": Text = "",
            "PEM file with the serving certificate and its intermediates. If unset, a self-signed \
             certificate is generated.";
        "tls-cipher-suites": List = "",
            "TLS 1.2 cipher suites, by Go's names. If unset, the defaults of the TLS library.";
        "tls-curve-preferences": Int32List = "",
            "Key exchanges, by IANA number. No effect: the TLS library chooses.";
        "tls-min-version": Text = "",
            "Minimum TLS version: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 mean \
             VersionTLS12.";
        "tls-private-key-file": Text = "",
            "PEM file with the private key of --tls-cert-file.";
        "tls-sni-cert-key": CertKeys = "",
            "Certificate and key files for server names, as certFile,keyFile or \
             certFile,keyFile:domain,domain. Without domains, the names in the certificate apply. May be \
             repeated.";
    }
    "authentication" {
        "authentication-kubeconfig": Text = "",
            "Kubeconfig of the API server that authenticates bearer tokens (TokenReview) and has the \
             cluster's client CA bundle. If unset outside of a cluster, requests with a token are \
             anonymous.";
        "authentication-skip-lookup": Bool = "false",
            "Do not read the client CA bundle from the cluster.";
        "authentication-token-webhook-cache-ttl": Duration = "10s",
            "TTL of cached token review results.";
        "authentication-tolerate-lookup-failure": Bool = "false",
            "Continue startup if the cluster's client CA bundle cannot be read.";
        "client-ca-file": Text = "",
            "CA bundle used to verify client certificates.";
        "requestheader-allowed-names": List = "",
            "Common names of client certificates that may set the request headers. If empty, all \
             certificates of --requestheader-client-ca-file may.";
        "requestheader-client-ca-file": Text = "",
            "CA bundle used to verify client certificates of authenticating proxies.";
        "requestheader-extra-headers-prefix": List = "x-remote-extra-",
            "Prefixes of request headers with extra user attributes.";
        "requestheader-group-headers": List = "x-remote-group",
            "Request headers with the user's groups.";
        "requestheader-uid-headers": List = "",
            "Request headers with the user's UID.";
        "requestheader-username-headers": List = "x-remote-user",
            "Request headers with the user name.";
    }
    "authorization" {
        "authorization-always-allow-paths": List = "/healthz,/readyz,/livez",
            "Paths that are served without authorization. A trailing * matches all paths with that prefix.";
        "authorization-kubeconfig": Text = "",
            "Kubeconfig of the API server that authorizes requests (SubjectAccessReview). If unset \
             outside of a cluster, only always-allowed paths are served.";
        "authorization-webhook-cache-authorized-ttl": Duration = "10s",
            "TTL of cached 'authorized' results.";
        "authorization-webhook-cache-unauthorized-ttl": Duration = "10s",
            "TTL of cached 'unauthorized' results.";
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
            "Number of Deployments synced concurrently. A larger number reduces latency and increases \
             load.";
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
            "Number of ReplicaSets synced concurrently. A larger number reduces latency and increases \
             load.";
    }
    "replicationcontroller-controller" {
        "concurrent-rc-syncs": Int32 = "5",
            "Number of ReplicationControllers synced concurrently. A larger number reduces latency and \
             increases load.";
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
            "Allowed values of metric labels, as metric,label=value,value. Other values are exported as \
             'unexpected'.";
        "allow-metric-labels-manifest": Text = "",
            "YAML file with the mapping of --allow-metric-labels, at the top level or under \
             allowListMapping.";
        "disabled-metrics": List = "",
            "Fully qualified names of metrics that are not exported.";
        "show-hidden-metrics-for-version": Text = "",
            "Export the metrics that were hidden in this version. Only 1.35, the previous minor version, \
             is allowed.";
    }
    "logs" {
        "log-flush-frequency": Duration = "5s",
            "Maximum time between log flushes. No effect: lines are written immediately.";
        "log-json-info-buffer-size": Quantity = "0",
            "Buffer size for info lines in JSON format with split streams. No effect: lines are written \
             immediately. Requires LoggingAlphaOptions.";
        "log-json-split-stream": Bool = "false",
            "In JSON format, write errors to stderr and other lines to stdout. Requires \
             LoggingAlphaOptions.";
        "log-text-info-buffer-size": Quantity = "0",
            "Buffer size for info lines in text format with split streams. No effect: lines are written \
             immediately. Requires LoggingAlphaOptions.";
        "log-text-split-stream": Bool = "false",
            "In text format, write warnings and errors to stderr and other lines to stdout. Requires \
             LoggingAlphaOptions.";
        "logging-format": Text = "text",
            "Log format: text or json.";
        ('v') "v": Level = "0",
            "Log verbosity. 2: changes to objects, 3: lists and watches, 4: steps of each sync, 6: \
             requests to the API server.";
        "vmodule": Modules = "",
            "Comma-separated pattern=N settings with the log verbosity of matching source files. Only for \
             the text format.";
    }
    "misc" {
        "kubeconfig": Text = "",
            "Kubeconfig with the address of the API server and the credentials.";
        "master": Text = "",
            "Address of the API server. Overrides the address in the kubeconfig.";
    }
    "global" {
        ('h') "help": Bool = "false",
            "Print this help and exit.";
        "version": Version = "false",
            "Print the version and exit. --version=raw prints all version fields.";
    }
};

//! Configuration object of `/configz`.
//!
//! Contains the sections of all upstream controllers, filled from the flags.
//!
//! Upstream counterpart: `KubeControllerManagerConfiguration` of `kubecontrollermanager.config.k8s.io/v1alpha1`.

use serde_json::{Value, json};

use crate::{command::Options, flags::Flags};

/// Name of the configuration: its API group.
pub const CONFIGZ_NAME: &str = "kubecontrollermanager.config.k8s.io";

/// Configuration in upstream's format.
pub fn configz(options: &Options) -> Value {
    let flags = &options.flags;
    let flag = |name: &str| flags.value(name).to_json();
    let mut all = json!({
        "kind": "KubeControllerManagerConfiguration",
        "apiVersion": format!("{CONFIGZ_NAME}/v1alpha1"),
        "Generic": generic(options),
        "KubeCloudShared": cloud(flags),
        "DeploymentController": { "ConcurrentDeploymentSyncs": flag("concurrent-deployment-syncs") },
        "ReplicaSetController": { "ConcurrentRSSyncs": flag("concurrent-replicaset-syncs") },
        "ReplicationController": { "ConcurrentRCSyncs": flag("concurrent-rc-syncs") },
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut all, other_controllers(flags)) {
        all.extend(more);
    }
    all
}

fn generic(options: &Options) -> Value {
    let flags = &options.flags;
    let flag = |name: &str| flags.value(name).to_json();
    json!({
        "Port": 0,
        "Address": "0.0.0.0",
        "MinResyncPeriod": flag("min-resync-period"),
        "ClientConnection": {
            "kubeconfig": flag("kubeconfig"),
            "acceptContentTypes": "",
            "contentType": flag("kube-api-content-type"),
            "qps": flag("kube-api-qps"),
            "burst": flag("kube-api-burst"),
        },
        "ControllerStartInterval": flag("controller-start-interval"),
        "LeaderElection": {
            "leaderElect": flag("leader-elect"),
            "leaseDuration": flag("leader-elect-lease-duration"),
            "renewDeadline": flag("leader-elect-renew-deadline"),
            "retryPeriod": flag("leader-elect-retry-period"),
            "resourceLock": flag("leader-elect-resource-lock"),
            "resourceName": flag("leader-elect-resource-name"),
            "resourceNamespace": flag("leader-elect-resource-namespace"),
        },
        "Controllers": options.manager.controllers.elements(),
        "Debugging": {
            "enableProfiling": flag("profiling"),
            "enableContentionProfiling": flag("contention-profiling"),
        },
        "LeaderMigrationEnabled": flag("enable-leader-migration"),
        "LeaderMigration": { "leaderName": "", "resourceLock": "", "controllerLeaders": null },
    })
}

fn cloud(flags: &Flags) -> Value {
    let flag = |name: &str| flags.value(name).to_json();
    json!({
        "CloudProvider": { "Name": flag("cloud-provider"), "CloudConfigFile": flag("cloud-config") },
        "ExternalCloudVolumePlugin": flag("external-cloud-volume-plugin"),
        "UseServiceAccountCredentials": flag("use-service-account-credentials"),
        "AllowUntaggedCloud": flag("allow-untagged-cloud"),
        "RouteReconciliationPeriod": flag("route-reconciliation-period"),
        "NodeMonitorPeriod": flag("node-monitor-period"),
        "ClusterName": flag("cluster-name"),
        "ClusterCIDR": flag("cluster-cidr"),
        "AllocateNodeCIDRs": flag("allocate-node-cidrs"),
        "CIDRAllocatorType": flag("cidr-allocator-type"),
        "ConfigureCloudRoutes": flag("configure-cloud-routes"),
        "NodeSyncPeriod": flag("node-sync-period"),
    })
}

fn other_controllers(flags: &Flags) -> Value {
    let flag = |name: &str| flags.value(name).to_json();
    let signer = |name: &str| {
        json!({
            "CertFile": flag(&format!("cluster-signing-{name}-cert-file")),
            "KeyFile": flag(&format!("cluster-signing-{name}-key-file")),
        })
    };
    let range = flags.text("service-cluster-ip-range");
    let (first_range, second_range) = range.split_once(',').unwrap_or((range, ""));
    json!({
        "AttachDetachController": {
            "DisableAttachDetachReconcilerSync": flag("disable-attach-detach-reconcile-sync"),
            "ReconcilerSyncLoopPeriod": flag("attach-detach-reconcile-sync-period"),
            "disableForceDetachOnTimeout": flag("disable-force-detach-on-timeout"),
        },
        "CSRSigningController": {
            "ClusterSigningCertFile": flag("cluster-signing-cert-file"),
            "ClusterSigningKeyFile": flag("cluster-signing-key-file"),
            "KubeletServingSignerConfiguration": signer("kubelet-serving"),
            "KubeletClientSignerConfiguration": signer("kubelet-client"),
            "KubeAPIServerClientSignerConfiguration": signer("kube-apiserver-client"),
            "LegacyUnknownSignerConfiguration": signer("legacy-unknown"),
            "ClusterSigningDuration": flag("cluster-signing-duration"),
        },
        "DaemonSetController": { "ConcurrentDaemonSetSyncs": flag("concurrent-daemonset-syncs") },
        "StatefulSetController": { "ConcurrentStatefulSetSyncs": flag("concurrent-statefulset-syncs") },
        "DeprecatedController": {},
        "EndpointController": {
            "ConcurrentEndpointSyncs": flag("concurrent-endpoint-syncs"),
            "EndpointUpdatesBatchPeriod": flag("endpoint-updates-batch-period"),
        },
        "EndpointSliceController": {
            "ConcurrentServiceEndpointSyncs": flag("concurrent-service-endpoint-syncs"),
            "MaxEndpointsPerSlice": flag("max-endpoints-per-slice"),
            "EndpointUpdatesBatchPeriod": flag("endpointslice-updates-batch-period"),
        },
        "EndpointSliceMirroringController": {
            "MirroringConcurrentServiceEndpointSyncs": flag("mirroring-concurrent-service-endpoint-syncs"),
            "MirroringMaxEndpointsPerSubset": flag("mirroring-max-endpoints-per-subset"),
            "MirroringEndpointUpdatesBatchPeriod": flag("mirroring-endpointslice-updates-batch-period"),
        },
        "EphemeralVolumeController": {
            "ConcurrentEphemeralVolumeSyncs": flag("concurrent-ephemeralvolume-syncs"),
        },
        "GarbageCollectorController": {
            "EnableGarbageCollector": flag("enable-garbage-collector"),
            "ConcurrentGCSyncs": flag("concurrent-gc-syncs"),
            "GCIgnoredResources": [
                { "Group": "", "Resource": "events" },
                { "Group": "events.k8s.io", "Resource": "events" },
            ],
        },
        "HPAController": {
            "ConcurrentHorizontalPodAutoscalerSyncs": flag("concurrent-horizontal-pod-autoscaler-syncs"),
            "HorizontalPodAutoscalerSyncPeriod": flag("horizontal-pod-autoscaler-sync-period"),
            "HorizontalPodAutoscalerDownscaleStabilizationWindow":
                flag("horizontal-pod-autoscaler-downscale-stabilization"),
            "HorizontalPodAutoscalerTolerance": flag("horizontal-pod-autoscaler-tolerance"),
            "HorizontalPodAutoscalerCPUInitializationPeriod":
                flag("horizontal-pod-autoscaler-cpu-initialization-period"),
            "HorizontalPodAutoscalerInitialReadinessDelay":
                flag("horizontal-pod-autoscaler-initial-readiness-delay"),
        },
        "JobController": { "ConcurrentJobSyncs": flag("concurrent-job-syncs") },
        "CronJobController": { "ConcurrentCronJobSyncs": flag("concurrent-cron-job-syncs") },
        "LegacySATokenCleaner": { "CleanUpPeriod": flag("legacy-service-account-token-clean-up-period") },
        "NamespaceController": {
            "NamespaceSyncPeriod": flag("namespace-sync-period"),
            "ConcurrentNamespaceSyncs": flag("concurrent-namespace-syncs"),
        },
        "NodeIPAMController": {
            "ServiceCIDR": first_range,
            "SecondaryServiceCIDR": second_range,
            "NodeCIDRMaskSize": flag("node-cidr-mask-size"),
            "NodeCIDRMaskSizeIPv4": flag("node-cidr-mask-size-ipv4"),
            "NodeCIDRMaskSizeIPv6": flag("node-cidr-mask-size-ipv6"),
        },
        "NodeLifecycleController": {
            "NodeEvictionRate": flag("node-eviction-rate"),
            "SecondaryNodeEvictionRate": flag("secondary-node-eviction-rate"),
            "NodeStartupGracePeriod": flag("node-startup-grace-period"),
            "NodeMonitorGracePeriod": flag("node-monitor-grace-period"),
            "PodEvictionTimeout": "0s",
            "LargeClusterSizeThreshold": flag("large-cluster-size-threshold"),
            "UnhealthyZoneThreshold": flag("unhealthy-zone-threshold"),
        },
        "PersistentVolumeBinderController": {
            "PVClaimBinderSyncPeriod": flag("pvclaimbinder-sync-period"),
            "VolumeConfiguration": {
                "EnableHostPathProvisioning": flag("enable-hostpath-provisioner"),
                "EnableDynamicProvisioning": flag("enable-dynamic-provisioning"),
                "PersistentVolumeRecyclerConfiguration": {
                    "MaximumRetry": 3,
                    "MinimumTimeoutNFS": flag("pv-recycler-minimum-timeout-nfs"),
                    "PodTemplateFilePathNFS": flag("pv-recycler-pod-template-filepath-nfs"),
                    "IncrementTimeoutNFS": flag("pv-recycler-increment-timeout-nfs"),
                    "PodTemplateFilePathHostPath": flag("pv-recycler-pod-template-filepath-hostpath"),
                    "MinimumTimeoutHostPath": flag("pv-recycler-minimum-timeout-hostpath"),
                    "IncrementTimeoutHostPath": flag("pv-recycler-timeout-increment-hostpath"),
                },
                "FlexVolumePluginDir": flag("flex-volume-plugin-dir"),
            },
        },
        "PodGCController": { "TerminatedPodGCThreshold": flag("terminated-pod-gc-threshold") },
        "ResourceQuotaController": {
            "ResourceQuotaSyncPeriod": flag("resource-quota-sync-period"),
            "ConcurrentResourceQuotaSyncs": flag("concurrent-resource-quota-syncs"),
        },
        "SAController": {
            "ServiceAccountKeyFile": flag("service-account-private-key-file"),
            "ConcurrentSATokenSyncs": flag("concurrent-serviceaccount-token-syncs"),
            "RootCAFile": flag("root-ca-file"),
        },
        "ServiceController": { "ConcurrentServiceSyncs": flag("concurrent-service-syncs") },
        "TTLAfterFinishedController": { "ConcurrentTTLSyncs": flag("concurrent-ttl-after-finished-syncs") },
        "ValidatingAdmissionPolicyStatusController": {
            "ConcurrentPolicySyncs": flag("concurrent-validating-admission-policy-status-syncs"),
        },
        "DeviceTaintEvictionController": {
            "ConcurrentSyncs": flag("concurrent-device-taint-eviction-syncs"),
        },
        "ResourceClaimController": { "ConcurrentSyncs": flag("concurrent-resourceclaim-syncs") },
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::Command;

    fn shown(line: &str) -> Value {
        // Upstream's default.
        let lease = ["--leader-elect-resource-name=kube-controller-manager"];
        let words = lease.into_iter().chain(line.split_whitespace()).map(OsString::from);
        let Ok(Command::Run(options)) = Command::parse(words) else { panic!("{line}") };
        configz(&options)
    }

    #[test]
    fn defaults_equal_upstream() {
        let upstream: Value = serde_json::from_str(include_str!("configz/upstream-v1.36.json")).unwrap();
        assert_eq!(shown(""), upstream);
    }

    #[test]
    fn contains_values_of_flags() {
        let shown = shown(
            "--controllers=-job,deployment --leader-elect-lease-duration=90s --kube-api-qps=1.5 --kubeconfig=/k \
             --service-cluster-ip-range=10.0.0.0/8,fd00::/64 --concurrent-rc-syncs=9",
        );
        assert_eq!(shown["Generic"]["Controllers"], json!(["-job-controller", "deployment-controller"]));
        assert_eq!(shown["Generic"]["LeaderElection"]["leaseDuration"], "1m30s");
        assert_eq!(shown["Generic"]["ClientConnection"]["qps"], 1.5);
        assert_eq!(shown["Generic"]["ClientConnection"]["kubeconfig"], "/k");
        assert_eq!(shown["NodeIPAMController"]["SecondaryServiceCIDR"], "fd00::/64");
        assert_eq!(shown["ReplicationController"]["ConcurrentRCSyncs"], 9);
    }
}

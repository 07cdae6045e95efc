//! Flags of controllers that are not part of this binary.
//!
//! They have no effect. Values that upstream rejects are rejected, so that a manifest for this manager also works for
//! upstream's.

use super::Diagnostics;
use crate::flags::Flags;

/// Flags that must be at least 1, and upstream's message for smaller values.
const AT_LEAST_ONE: [(&str, &str); 8] = [
    ("concurrent-daemonset-syncs", "must be greater than 0, but got"),
    ("concurrent-device-taint-eviction-syncs", "must be greater than zero, got"),
    ("concurrent-resourceclaim-syncs", "must be larger than 0, got"),
    ("concurrent-statefulset-syncs", "must be greater than 0, but got"),
    ("concurrent-ephemeralvolume-syncs", "must be greater than 0, but got"),
    ("concurrent-horizontal-pod-autoscaler-syncs", "must be greater than 0, but got"),
    ("concurrent-job-syncs", "must be greater than 0, but got"),
    ("concurrent-cron-job-syncs", "must be greater than 0, but got"),
];

/// Flags with a minimum and a maximum.
const RANGES: [(&str, i64, i64); 4] = [
    ("concurrent-service-endpoint-syncs", 1, 50),
    ("max-endpoints-per-slice", 1, 1000),
    ("mirroring-concurrent-service-endpoint-syncs", 1, 50),
    ("mirroring-max-endpoints-per-subset", 1, 1000),
];

/// Signers with certificate and key files, and their names in upstream's messages.
const SIGNERS: [(&str, &str); 4] = [
    ("kubelet-serving", "cluster-signing-kubelet-serving"),
    ("kubelet-client", "cluster-signing-kube-apiserver-client"),
    ("kube-apiserver-client", "cluster-signing-kube-apiserver"),
    ("legacy-unknown", "cluster-signing-legacy-unknown"),
];

pub(crate) fn check(flags: &Flags, diagnostics: &mut Diagnostics) {
    if flags.duration("attach-detach-reconcile-sync-period").nanos() < 1_000_000_000 {
        diagnostics.error(
            "duration time must be greater than one second as set via command line option reconcile-sync-loop-period",
        );
    }
    check_signers(flags, diagnostics);
    for (name, rule) in AT_LEAST_ONE {
        let value = flags.int(name);
        if value < 1 {
            diagnostics.error(format!("{name} {rule} {value}"));
        }
    }
    for (name, least, most) in RANGES {
        let value = flags.int(name);
        if value < least {
            diagnostics.error(format!("{name} must not be less than {least}, but got {value}"));
        } else if value > most {
            diagnostics.error(format!("{name} must not be more than {most}, but got {value}"));
        }
    }
    if flags.text("service-cluster-ip-range").split(',').count() > 2 {
        diagnostics.error("--service-cluster-ip-range can not contain more than two entries");
    }
    let provider = flags.text("cloud-provider");
    if !provider.is_empty() && provider != "external" {
        diagnostics.error(format!(
            "cloud provider {provider:?} was specified, but built-in cloud providers are disabled. Please set \
             --cloud-provider=external and migrate to an external cloud provider"
        ));
    }
    let allocator = flags.text("cidr-allocator-type");
    if !allocator.is_empty() && allocator != "RangeAllocator" {
        diagnostics
            .error(format!("built-in cloud providers are disabled. The ipam {allocator} is not available"));
    }
}

fn check_signers(flags: &Flags, diagnostics: &mut Diagnostics) {
    let is_set =
        |signer: &str, part: &str| !flags.text(&format!("cluster-signing-{signer}{part}-file")).is_empty();
    let mut has_signer = false;
    for (signer, name) in SIGNERS {
        let (cert, key) = (is_set(signer, "-cert"), is_set(signer, "-key"));
        has_signer |= cert || key;
        match (cert, key) {
            (false, true) => diagnostics.error(format!("{name:?}: cannot specify key without cert")),
            (true, false) => diagnostics.error(format!("{name:?}: cannot specify cert without key")),
            _ => {}
        }
    }
    if has_signer && (is_set("", "cert") || is_set("", "key")) {
        diagnostics.error(
            "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time",
        );
    }
}

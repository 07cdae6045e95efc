//! Names that scenarios may use.

/// States of a rollout.
pub const STATES: &[&str] = &["complete", "progressing", "paused", "stuck", "deadline_exceeded", "unknown"];

/// Causes.
pub const CAUSES: &[&str] = &[
    "deployment_deleted",
    "empty_selector",
    "controller_not_running",
    "replica_set_controller_not_running",
    "paused",
    "replica_set_create_failed",
    "desired_replicas_annotation",
    "quota_exceeded",
    "limit_range",
    "admission_webhook",
    "pod_security",
    "create_refused",
    "unschedulable",
    "scheduling_gated",
    "scheduler_not_running",
    "node_lost",
    "image_pull",
    "container_config",
    "volume_mount",
    "init_container",
    "crash_loop",
    "pod_failed",
    "probe_failing",
    "readiness_gate",
    "pod_starting",
    "min_ready_seconds",
    "terminating_finalizer",
    "terminating_grace_period",
    "selector_overlap",
    "replicas_overwritten",
    "disruption_budget",
    "replica_set_deleted",
    "namespace_terminating",
    "delete_refused",
    "create_back_off",
    "image_pulling",
    "pod_sandbox",
    "probe_kill",
    "terminating_overdue",
    "status_outdated",
    "unknown",
];

/// Rules of a truthful diagnosis. Each has scenarios.
pub const RULES: &[(&str, &str)] = &[
    ("absence", "absence is not asserted from objects that were not read"),
    ("status", "the status is compared with the listed objects"),
    ("lease", "a controller is said not to run only by a stale Lease and without evidence against it"),
    ("deletion", "deleted objects, finalizers and grace periods are named"),
    ("evidence", "all evidence counts, ranked"),
    ("time", "time is the server's"),
    ("data", "text of others is data"),
    ("remedy", "a remedy is offered if it works"),
];

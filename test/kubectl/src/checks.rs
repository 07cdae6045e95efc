//! The 112 acceptance checks.

mod applying;
mod creating;
mod custom;
mod deleting;
mod discovery;
mod nodes;
mod observing;
mod patching;
mod protocol;
mod reading;
mod rollouts;
mod servers;
mod validation;

use std::{fmt, future::Future, pin::Pin};

use super::{failure::Failure, test_env::TestEnv};

/// Result of a check.
type CheckResult = Result<(), Failure>;
type CheckFuture<'a> = Pin<Box<dyn Future<Output = CheckResult> + 'a>>;

/// Prerequisite of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requires {
    /// A namespace only.
    Nothing,
    /// Nodes that run pods.
    Nodes,
    /// An API server that the check may start, stop and fill; not an existing cluster.
    OwnServer,
    /// The sandbox: the check covers its simulated behaviour.
    Sandbox,
    /// Several versions of `kubectl`.
    Versions,
}

/// Acceptance check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Number in the list.
    pub number: u8,
    /// Short description.
    pub title: &'static str,
    /// Prerequisite.
    pub requires: Requires,
    pub(super) run: for<'a> fn(&'a TestEnv) -> CheckFuture<'a>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("number", &self.number)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

/// All checks, sorted by number.
pub fn all() -> &'static [Check] {
    CHECKS
}

/// `true` if the check compares versions of `kubectl`.
pub(super) fn requires_versions(number: u8) -> bool {
    CHECKS.iter().any(|check| check.number == number && check.requires == Requires::Versions)
}

macro_rules! checks {
    ($($number:literal $requires:ident $function:path, $title:literal;)+) => {
        const CHECKS: &[Check] = &[$(Check {
            number: $number,
            title: $title,
            requires: Requires::$requires,
            run: |env| Box::pin($function(env)),
        }),+];
    };
}

checks! {
    1 OwnServer discovery::without_kubeconfig, "`get ns` without a kubeconfig";
    2 Nothing discovery::version, "`version`";
    3 Nothing discovery::api_resources, "`api-resources`";
    4 Nothing discovery::plain_discovery, "plain and aggregated discovery agree";
    5 Nothing applying::apply, "`apply -f` of a new Deployment";
    6 Nothing applying::apply_again, "`apply -f` without changes writes nothing";
    7 Nothing applying::apply_changed, "`apply -f` with another image is one PATCH";
    8 Nodes rollouts::status, "`rollout status`";
    9 Nodes reading::get, "`get deploy`, `-o wide`";
    10 Nodes reading::get_several, "`get deploy,rs,pods --show-labels`";
    11 Nothing reading::defaults, "`get -o yaml` has all defaults and no nulls";
    12 Nodes reading::label_selectors, "label selectors";
    13 Nodes reading::field_selectors, "field selectors";
    14 Nodes reading::chunks, "`--chunk-size=1`";
    15 Nodes reading::sort_by, "`--sort-by`";
    16 Nodes reading::get_watch, "`get deploy -w` while scaling";
    17 Nothing reading::not_found, "`get` of an absent object";
    18 Nothing reading::unknown_resource, "`get` of an unknown resource type";
    19 Nothing creating::create_deployment, "`create deployment`";
    20 Nothing creating::no_replicas, "`create deployment --replicas=0`";
    21 Nothing creating::exists_already, "creating an existing object";
    22 Nothing creating::create_namespace, "`create ns` and a Deployment in it";
    23 Nothing creating::missing_namespace, "creating in a missing namespace";
    24 Nothing validation::unknown_field, "unknown fields are rejected";
    25 Nothing validation::validate_less, "`--validate=warn`, `--validate=ignore`";
    26 Nothing validation::selector_mismatch, "a selector that does not match the template is rejected";
    27 Nothing validation::immutable_selector, "changes of the selector are rejected";
    28 Nothing validation::bad_values, "invalid numbers and strategies are reported in one response";
    29 Nothing validation::bad_name, "invalid names are rejected";
    30 Nothing applying::dry_run, "`--dry-run=server` of apply, create and delete";
    31 Nothing applying::diff, "`diff -f`";
    32 Nothing patching::edit, "`edit`";
    33 Nothing patching::edit_to_invalid, "`edit` with an invalid change";
    34 Nothing patching::patch, "`patch`, three types";
    35 Nothing patching::failing_test, "a JSON patch with a failing test";
    36 Nothing patching::strategic, "strategic merge patches remove, replace and retain keys";
    37 Nothing patching::set, "`set image`, `set env`, `set resources`";
    38 Nothing patching::scale, "`scale`";
    39 Nothing rollouts::scale_replica_set, "a scaled ReplicaSet is scaled back";
    40 Nothing patching::scale_subresource, "`--subresource=scale`";
    41 Nothing patching::status_subresource, "`--subresource=status`";
    42 Nothing rollouts::history, "`rollout history`";
    43 Nothing rollouts::change_cause, "`rollout history` with change causes";
    44 Nothing rollouts::undo, "`rollout undo` and its errors";
    45 Nothing rollouts::pause, "`rollout pause`, `rollout resume`";
    46 Nothing rollouts::restart, "`rollout restart`";
    47 Nothing rollouts::deadline, "a rollout that exceeds its progress deadline";
    48 Nodes observing::describe_deployment, "`describe deploy`";
    49 Nodes observing::describe_others, "`describe` of ReplicaSet, Pod, Node, Namespace";
    50 Nodes observing::events, "events in both API groups";
    51 Nodes observing::wait, "`wait`";
    52 Nodes deleting::pod, "`delete pod`";
    53 Nodes deleting::pod_at_once, "`delete pod --force`, `--now`";
    54 Nodes deleting::deployment, "`delete deploy`";
    55 Nodes deleting::foreground, "`--cascade=foreground`";
    56 Nodes deleting::orphan, "`--cascade=orphan` and adoption";
    57 Nodes deleting::replica_set, "`delete rs` of the newest ReplicaSet";
    58 Nothing deleting::namespace, "`delete ns` with content";
    59 Nothing deleting::default_namespace, "`delete ns default`";
    60 Nothing deleting::several, "`delete -f` of a Namespace and its content";
    61 Nothing patching::replace, "`replace`";
    62 Nothing deleting::finalizer, "finalizers delay the deletion";
    63 OwnServer nodes::drain, "`cordon`, `uncordon`, `drain`";
    64 Nothing applying::server_side, "`apply --server-side`, conflicts and force";
    65 Nothing patching::label, "`label`, `annotate`";
    66 Nothing creating::others, "`expose`, `autoscale`, `run`, `auth can-i`, `auth whoami`";
    67 Sandbox observing::logs, "`logs`; `exec` in a simulated process; `port-forward` is refused";
    68 Nothing protocol::watches, "watches: expired resource versions, streaming lists, label changes";
    69 Nothing protocol::two_writers, "concurrent updates; updates without changes";
    70 OwnServer servers::restart, "restart with `--data-dir`";
    71 Versions servers::versions, "results are equal for all `kubectl` versions";
    72 OwnServer servers::faults, "fault injection";
    73 Nothing custom::definitions::create, "`create -f` of a CustomResourceDefinition, `wait`";
    74 Nothing custom::definitions::api_resources, "`api-resources` lists a custom kind";
    75 Nothing custom::definitions::get, "`get crd`";
    76 Nothing custom::definitions::describe, "`describe crd`";
    77 Nothing custom::definitions::invalid, "invalid CustomResourceDefinitions are rejected";
    78 Nothing custom::definitions::unknown_keyword, "unknown keywords in schemas are rejected";
    79 Nothing custom::definitions::taken_names, "names that another CustomResourceDefinition has accepted";
    80 Nothing custom::definitions::immutable, "changes of scope, kind and stored versions are rejected";
    81 Nothing custom::objects::create, "`create -f` and `get` of a custom resource";
    82 Nothing custom::objects::printer_columns, "printer columns, `-o wide`";
    83 Nothing custom::objects::age_column, "a custom kind without printer columns";
    84 Nothing custom::objects::short_names, "short names, categories and full names of a custom kind";
    85 Nothing custom::objects::apply, "`apply -f` of a custom resource";
    86 Nothing custom::objects::diff, "`diff -f` of a custom resource";
    87 Nothing custom::objects::dry_run, "`--dry-run=server` of a custom resource and of a definition";
    88 Nothing custom::objects::validate_less, "`--validate=warn` of a custom resource";
    89 Nothing custom::objects::schema_violations, "violations of a schema are rejected";
    90 Nothing custom::objects::list_types, "duplicates in sets and keyed lists are rejected";
    91 Nothing custom::objects::extensions, "`int-or-string`, `nullable`, `preserve-unknown-fields`";
    92 Nothing custom::objects::patch, "`patch` of a custom resource, three types";
    93 Nothing custom::objects::edit, "`edit` of a custom resource";
    94 Nothing custom::objects::label, "`label`, `annotate` and selectors of a custom resource";
    95 Nothing custom::objects::replace, "`replace` of a custom resource";
    96 Nothing custom::objects::scale, "`scale` of a custom resource";
    97 Nothing custom::objects::status, "`--subresource=status` of a custom resource";
    98 Nothing custom::objects::wait, "`wait` for a custom resource";
    99 Nothing custom::objects::get_watch, "`get -w` of a custom kind";
    100 Nothing custom::objects::delete, "`delete`, `delete --all` and finalizers of custom resources";
    101 Nothing custom::objects::server_side_apply, "`apply --server-side` of a custom resource";
    102 Nothing custom::explain::kind, "`explain` of a custom kind";
    103 Nothing custom::explain::recursive, "`explain --recursive` of a custom kind";
    104 Nothing custom::explain::deployment_strategy, "`explain deployment.spec.strategy`";
    105 Nothing custom::explain::built_in_kinds, "`explain` of other built-in kinds";
    106 Nothing custom::versions::several, "several versions of a custom kind";
    107 Nothing custom::versions::deprecated, "a deprecated version of a custom kind";
    108 Nothing custom::definitions::update, "`apply` of a changed CustomResourceDefinition";
    109 Nothing custom::definitions::delete, "`delete crd` with a custom resource";
    110 Nothing custom::objects::namespace, "`delete ns` with a custom resource";
    111 Nothing custom::objects::owners, "custom resources as owners and as dependents";
    112 Nothing custom::definitions::cluster_scoped, "a cluster-scoped custom kind";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_numbered_without_gaps() {
        assert!(all().iter().map(|check| check.number).eq(1..=112));
    }
}

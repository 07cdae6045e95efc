//! The list of 72, in its order.

mod applying;
mod creating;
mod deleting;
mod first_contact;
mod looking;
mod nodes;
mod patching;
mod reading;
mod refusals;
mod rollouts;
mod servers;
mod wire;

use std::{fmt, future::Future, pin::Pin};

use super::{failure::Failure, ground::Ground};

/// What a check may end with.
type Judged = Result<(), Failure>;
type Running<'a> = Pin<Box<dyn Future<Output = Judged> + 'a>>;

/// What a check cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A namespace.
    Nothing,
    /// Nodes that run pods.
    Nodes,
    /// A server that it may start, stop and fill: not one of other people.
    OwnServer,
    /// It tells what the sandbox does in place of what real nodes do.
    Sandbox,
    /// Several versions of `kubectl`.
    Versions,
}

/// One of the 72.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its number.
    pub number: u8,
    /// What it does, in a few words.
    pub title: &'static str,
    /// What it cannot do without.
    pub needs: Needs,
    pub(super) run: for<'a> fn(&'a Ground) -> Running<'a>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("number", &self.number)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

/// All checks, in order.
pub fn all() -> &'static [Check] {
    CHECKS
}

/// Whether the check of this number is the one about versions.
pub(super) fn needs_versions(number: u8) -> bool {
    CHECKS.iter().any(|check| check.number == number && check.needs == Needs::Versions)
}

macro_rules! checks {
    ($($number:literal $needs:ident $function:path, $title:literal;)+) => {
        const CHECKS: &[Check] = &[$(Check {
            number: $number,
            title: $title,
            needs: Needs::$needs,
            run: |ground| Box::pin($function(ground)),
        }),+];
    };
}

checks! {
    1 OwnServer first_contact::without_kubeconfig, "`get ns` without a kubeconfig";
    2 Nothing first_contact::version, "`version`";
    3 Nothing first_contact::api_resources, "`api-resources`";
    4 Nothing first_contact::plain_discovery, "plain discovery says what aggregated discovery says";
    5 Nothing applying::apply, "`apply -f` of a new Deployment";
    6 Nothing applying::apply_again, "the same again writes nothing";
    7 Nothing applying::apply_changed, "`apply -f` with another image is one PATCH";
    8 Nodes rollouts::status, "`rollout status`";
    9 Nodes reading::get, "`get deploy`, `-o wide`";
    10 Nodes reading::get_several, "`get deploy,rs,pods --show-labels`";
    11 Nothing reading::defaults, "`get -o yaml` has every default and no nulls";
    12 Nodes reading::label_selectors, "label selectors";
    13 Nodes reading::field_selectors, "field selectors";
    14 Nodes reading::chunks, "`--chunk-size=1`";
    15 Nodes reading::sort_by, "`--sort-by`";
    16 Nodes reading::get_watch, "`get deploy -w` while scaling";
    17 Nothing reading::not_found, "what is not there";
    18 Nothing reading::unknown_resource, "a resource type that is not there";
    19 Nothing creating::create_deployment, "`create deployment`";
    20 Nothing creating::no_replicas, "`create deployment --replicas=0`";
    21 Nothing creating::exists_already, "creating what is there";
    22 Nothing creating::create_namespace, "`create ns`, and a Deployment in it";
    23 Nothing creating::missing_namespace, "creating in a namespace that is not there";
    24 Nothing refusals::unknown_field, "an unknown field is refused";
    25 Nothing refusals::validate_less, "`--validate=warn`, `--validate=ignore`";
    26 Nothing refusals::selector_mismatch, "a selector that does not match the template";
    27 Nothing refusals::immutable_selector, "applying another selector";
    28 Nothing refusals::bad_values, "numbers and strategies that are not allowed, all in one answer";
    29 Nothing refusals::bad_name, "a name that is not allowed";
    30 Nothing applying::dry_run, "`--dry-run=server` of apply, create and delete";
    31 Nothing applying::diff, "`diff -f`";
    32 Nothing patching::edit, "`edit`";
    33 Nothing patching::edit_to_invalid, "`edit` to what is refused";
    34 Nothing patching::patch, "`patch`, three types";
    35 Nothing patching::failing_test, "a JSON patch whose test fails";
    36 Nothing patching::strategic, "removing, replacing and retaining by strategic merge";
    37 Nothing patching::set, "`set image`, `set env`, `set resources`";
    38 Nothing patching::scale, "`scale`";
    39 Nothing rollouts::scale_replica_set, "a scaled ReplicaSet is set back";
    40 Nothing patching::scale_subresource, "`--subresource=scale`";
    41 Nothing patching::status_subresource, "`--subresource=status`";
    42 Nothing rollouts::history, "`rollout history`";
    43 Nothing rollouts::change_cause, "the change cause in the history";
    44 Nothing rollouts::undo, "`rollout undo`, and when it cannot";
    45 Nothing rollouts::pause, "`rollout pause`, `rollout resume`";
    46 Nothing rollouts::restart, "`rollout restart`";
    47 Nothing rollouts::deadline, "a rollout past its deadline";
    48 Nodes looking::describe_deployment, "`describe deploy`";
    49 Nodes looking::describe_others, "`describe` of ReplicaSet, Pod, Node, Namespace";
    50 Nodes looking::events, "events, through both APIs";
    51 Nodes looking::wait, "`wait`";
    52 Nodes deleting::pod, "`delete pod`";
    53 Nodes deleting::pod_at_once, "`delete pod --force`, `--now`";
    54 Nodes deleting::deployment, "`delete deploy`";
    55 Nodes deleting::foreground, "`--cascade=foreground`";
    56 Nodes deleting::orphan, "`--cascade=orphan`, and adoption";
    57 Nodes deleting::replica_set, "`delete rs` of the newest";
    58 Nothing deleting::namespace, "`delete ns` with content";
    59 Nothing deleting::default_namespace, "`delete ns default`";
    60 Nothing deleting::several, "`delete -f` of a Namespace and what is in it";
    61 Nothing patching::replace, "`replace`";
    62 Nothing deleting::finalizer, "a finalizer holds";
    63 OwnServer nodes::drain, "`cordon`, `uncordon`, `drain`";
    64 Nothing applying::server_side, "`apply --server-side`, conflicts and force";
    65 Nothing patching::label, "`label`, `annotate`";
    66 Nothing creating::others, "`expose`, `autoscale`, `run`, `auth can-i`, `auth whoami`";
    67 Sandbox looking::logs, "`logs`; `exec` and `port-forward` say that they cannot";
    68 Nothing wire::watches, "watches: too old, streaming lists, labels that change";
    69 Nothing wire::two_writers, "two writers, one wins; a write of nothing";
    70 OwnServer servers::restart, "a restart with `--data-dir`";
    71 Versions servers::versions, "all of the above with other versions";
    72 OwnServer servers::faults, "faults made on purpose";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_numbered_from_1_to_72() {
        assert!(all().iter().map(|check| check.number).eq(1..=72));
    }
}

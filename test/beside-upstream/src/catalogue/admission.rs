//! Rules and webhooks of the API server.

use super::{Admission, Bounds, Effect, Fault, Lasts};

const NONE: Fault = Fault {
    name: "",
    what: "",
    effect: Effect::Admission(Admission::Quota),
    lasts: Lasts::Seconds(8),
    reached: "calls of the webhook",
    bounds: Bounds::UNHARMED,
    rule: None,
};

/// The faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "names-refused",
        what: "a ValidatingAdmissionPolicy refuses pods whose names end in 2 to 9",
        effect: Effect::Admission(Admission::NamesRefused),
        lasts: Lasts::Throughout,
        reached: "refused creations",
        bounds: Bounds { convergence: 120.0, ..Bounds::UNHARMED },
        rule: None,
    },
    Fault {
        name: "owners-stripped",
        what: "a webhook removes the owner references of new pods for 8 s",
        effect: Effect::Admission(Admission::OwnersStripped),
        bounds: Bounds { excess: 100, ..Bounds::UNHARMED },
        ..NONE
    },
    Fault {
        name: "labels-changed",
        what: "a webhook changes the selected label of new pods for 3 s",
        effect: Effect::Admission(Admission::LabelsChanged),
        lasts: Lasts::Seconds(3),
        bounds: Bounds { excess: 300, ..Bounds::UNHARMED },
        ..NONE
    },
    Fault {
        name: "finalizers-added",
        what: "a webhook adds a finalizer to new pods, which is removed after their deletion",
        effect: Effect::Admission(Admission::FinalizersAdded),
        lasts: Lasts::Throughout,
        ..NONE
    },
    Fault {
        name: "webhook-slow",
        what: "a webhook answers the creation of a pod after 25 s, for 10 s",
        effect: Effect::Admission(Admission::Slow),
        lasts: Lasts::Seconds(10),
        bounds: Bounds { convergence: 60.0, ..Bounds::UNHARMED },
        ..NONE
    },
    Fault {
        name: "webhook-absent",
        what: "a webhook with `failurePolicy: Fail` has no server for 10 s",
        effect: Effect::Admission(Admission::Absent),
        lasts: Lasts::Seconds(10),
        reached: "refused creations",
        ..NONE
    },
    Fault {
        name: "quota-reached",
        what: "a quota admits no further pods for 10 s",
        effect: Effect::Admission(Admission::Quota),
        lasts: Lasts::Seconds(10),
        reached: "refused creations",
        ..NONE
    },
    Fault {
        name: "limit-range",
        what: "a LimitRange adds limits to new pods",
        effect: Effect::Admission(Admission::LimitRange),
        lasts: Lasts::Throughout,
        reached: "pods with limits",
        ..NONE
    },
    Fault {
        name: "replicas-mutated",
        what: "a webhook lets no ReplicaSet grow beyond 30 replicas for 5 s",
        effect: Effect::Admission(Admission::ReplicasMutated),
        lasts: Lasts::Seconds(5),
        bounds: Bounds { excess: 100, ..Bounds::UNHARMED },
        ..NONE
    },
    Fault {
        name: "namespace-terminating",
        what: "a second namespace, whose Deployment is scaled up, is being deleted",
        effect: Effect::Admission(Admission::NamespaceTerminating),
        lasts: Lasts::Seconds(10),
        reached: "refused creations",
        ..NONE
    },
];

//! Orders of ReplicaSets (US-3.6).
//!
//! Each order is total if names differ, so that the result does not depend on the order of the input.

use std::{cmp::Ordering, sync::Arc};

use kcm_api::ReplicaSet;

use crate::revisions::revision;

/// Orders by creation time and then by name, oldest first.
///
/// Upstream counterpart: `ReplicaSetsByCreationTimestamp`.
pub fn creation_order(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    let key = |set: &ReplicaSet| set.metadata.creation_timestamp;
    key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Sorts by [`creation_order`].
pub fn by_creation(replica_sets: &mut [Arc<ReplicaSet>]) {
    replica_sets.sort_by(|a, b| creation_order(a, b));
}

/// Orders by size, largest first, and then by [`creation_order`].
///
/// Upstream counterpart: `ReplicaSetsBySizeOlder`.
pub fn size_older_order(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    b.replicas().cmp(&a.replicas()).then_with(|| creation_order(a, b))
}

/// Orders by size, largest first, and then by reverse [`creation_order`].
///
/// Upstream counterpart: `ReplicaSetsBySizeNewer`.
pub fn size_newer_order(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    b.replicas().cmp(&a.replicas()).then_with(|| creation_order(b, a))
}

/// Sorts by revision, lowest first, and then by [`creation_order`]. A missing revision is 0.
///
/// If either revision of a pair is invalid, the pair is compared by [`creation_order`]. That comparison is not transitive
/// for some inputs. Their order is arbitrary upstream, too.
///
/// Upstream counterpart: `ReplicaSetsByRevision`.
pub fn by_revision(replica_sets: &mut [Arc<ReplicaSet>]) {
    // Insertion sort: `sort_by` may panic if the comparison is not transitive.
    for end in 1..replica_sets.len() {
        let mut at = end;
        while at > 0 && revision_order(&replica_sets[at - 1], &replica_sets[at]) == Ordering::Greater {
            replica_sets.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn revision_order(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    match (revision(&a.metadata), revision(&b.metadata)) {
        (Ok(a_revision), Ok(b_revision)) => a_revision.cmp(&b_revision).then_with(|| creation_order(a, b)),
        _ => creation_order(a, b),
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::Time;

    use super::*;
    use crate::{annotations::REVISION, fixtures::replica_set};

    fn set(name: &str, created: i64, size: i32, revision: Option<&str>) -> Arc<ReplicaSet> {
        let mut set = replica_set(name, size);
        set.metadata.creation_timestamp = Some(Time::from_unix(created));
        set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
        Arc::new(set)
    }

    fn sorted(sets: &[Arc<ReplicaSet>], sort: fn(&mut [Arc<ReplicaSet>])) -> String {
        let mut sets = sets.to_vec();
        sort(&mut sets);
        sets.iter().map(|set| &*set.metadata.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ties_are_broken_by_age_and_name() {
        let sets = [set("b", 2, 1, None), set("c", 1, 5, None), set("a", 2, 1, None)];
        assert_eq!(sorted(&sets, by_creation), "c a b");
        assert_eq!(sorted(&sets, |sets| sets.sort_by(|a, b| size_older_order(a, b))), "c a b");
        assert_eq!(sorted(&sets, |sets| sets.sort_by(|a, b| size_newer_order(a, b))), "c b a");
    }

    #[test]
    fn by_revision_takes_missing_as_zero_and_invalid_by_age() {
        let sets = [set("a", 1, 0, Some("2")), set("b", 2, 0, None), set("c", 3, 0, Some("1"))];
        assert_eq!(sorted(&sets, by_revision), "b c a");
        let sets = [set("a", 2, 0, Some("1")), set("b", 1, 0, Some("x"))];
        assert_eq!(sorted(&sets, by_revision), "b a");
    }

    #[test]
    fn by_revision_does_not_panic_if_not_transitive() {
        let text = |i: i64| if i % 3 == 0 { "x".to_owned() } else { (i * 7 % 50).to_string() };
        let sets: Vec<_> = (0..60).map(|i| set(&format!("rs-{i}"), i * 31 % 60, 0, Some(&text(i)))).collect();
        let mut shuffled = sets.clone();
        by_revision(&mut shuffled);
        assert_eq!(shuffled.len(), sets.len());
    }
}

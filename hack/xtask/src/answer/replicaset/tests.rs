//! The ReplicaSet controller against what upstream's own code did (v1.36).

use crate::{
    answer::{compare::differing_fields, replicaset},
    input,
};

const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../test/recordings/v1.36/vectors/replicaset.jsonl.xz");

#[test]
fn replicaset_controller_meets_all_recorded_answers() {
    let cases = input::cases(RECORDED).unwrap();
    assert_eq!(cases.len(), 1500);
    let missed: Vec<_> = cases
        .iter()
        .filter_map(|case| {
            let answer = replicaset::answer(case);
            let differing = differing_fields(&case["output"], &answer);
            (!differing.is_empty()).then(|| {
                format!(
                    "case {} differs in {differing:?}\n  recorded {}\n  answered {answer}",
                    case["id"], case["output"]
                )
            })
        })
        .collect();
    let (count, first) = (missed.len(), missed.iter().take(5).cloned().collect::<Vec<_>>().join("\n"));
    assert!(
        missed.is_empty(),
        "{count} of {} recorded answers are not met, the first of them:\n{first}",
        cases.len()
    );
}

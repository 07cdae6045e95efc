//! The ReplicaSet controller with recorded cases of upstream v1.36.

use crate::{
    answer::{compare::differing_fields, replicaset},
    input,
};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/v1.36/vectors/replicaset.jsonl.xz");

#[test]
fn replicaset_controller_equals_all_recorded_outputs() {
    let cases = input::cases(RECORDED).unwrap();
    assert_eq!(cases.len(), 1500);
    let failed: Vec<_> = cases
        .iter()
        .filter_map(|case| {
            let answer = replicaset::answer(case);
            let differing = differing_fields(&case["output"], &answer);
            (!differing.is_empty()).then(|| {
                format!(
                    "case {} differs in {differing:?}\n  recorded {}\n  actual   {answer}",
                    case["id"], case["output"]
                )
            })
        })
        .collect();
    let (count, first) = (failed.len(), failed.iter().take(5).cloned().collect::<Vec<_>>().join("\n"));
    assert!(
        failed.is_empty(),
        "{count} of {} recorded outputs differ, the first of them:\n{first}",
        cases.len()
    );
}

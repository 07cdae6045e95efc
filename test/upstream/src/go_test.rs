//! Output of `go test -v`.

/// Returns the names and results (`PASS`, `FAIL` or `SKIP`) of the tests without subtests, in the order of their start.
pub(super) fn results(log: &str) -> Vec<(String, String)> {
    let mut results: Vec<(String, String)> = Vec::new();
    for line in log.lines() {
        let Some((result, rest)) = line.trim_start().strip_prefix("--- ").and_then(|l| l.split_once(": "))
        else {
            continue;
        };
        let name = rest.split(" (").next().unwrap_or(rest);
        results.push((name.to_owned(), result.to_owned()));
    }
    // The line of a test precedes those of its subtests.
    let names: Vec<String> = results.iter().map(|(name, _)| name.clone()).collect();
    results.retain(|(name, _)| !names.iter().any(|other| is_subtest(other, name)));
    results
}

fn is_subtest(name: &str, of: &str) -> bool {
    name.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_leave_out_tests_with_subtests() {
        let log = "=== RUN TestA\n--- PASS: TestA (0.10s)\n--- FAIL: TestB (1.00s)\n    --- PASS: TestB/one (0.50s)\n    \
                   --- FAIL: TestB/two (0.50s)\n--- SKIP: TestBC (0.00s)\nFAIL\n";
        let pair = |name: &str, result: &str| (name.to_owned(), result.to_owned());
        assert_eq!(
            results(log),
            [
                pair("TestA", "PASS"),
                pair("TestB/one", "PASS"),
                pair("TestB/two", "FAIL"),
                pair("TestBC", "SKIP")
            ]
        );
    }
}

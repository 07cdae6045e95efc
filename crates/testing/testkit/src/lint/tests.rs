use super::*;

/// Messages of the problems in `text`.
fn problems(text: &str) -> Vec<String> {
    lint(text).into_iter().map(|problem| problem.message).collect()
}

fn gauge(samples: &str) -> String {
    format!("# HELP size Size.\n# TYPE size gauge\n{samples}")
}

fn histogram(samples: &str) -> String {
    format!("# HELP took_seconds Duration.\n# TYPE took_seconds histogram\n{samples}")
}

#[test]
fn valid_exposition_has_no_problems() {
    let text = format!(
        "{}{}# HELP done_total Finished runs.\n# TYPE done_total counter\ndone_total{{a=\"b\"}} 3\n",
        gauge("size{a=\"\"} NaN\nsize{a=\"b\"} -1\n"),
        histogram(
            "took_seconds_bucket{a=\"b\",le=\"1e-08\"} 1\ntook_seconds_bucket{a=\"b\",le=\"1\"} 1\n\
             took_seconds_bucket{a=\"b\",le=\"+Inf\"} 2\ntook_seconds_sum{a=\"b\"} 5\ntook_seconds_count{a=\"b\"} 2\n"
        )
    );
    assert_eq!(lint(&text), []);
    assert_eq!(lint(""), []);
}

#[test]
fn help_and_type_come_once_before_samples() {
    assert_eq!(
        problems("# HELP a x\n# HELP a x\n# TYPE a gauge\n# TYPE a gauge\na 1\n"),
        ["duplicate HELP", "duplicate TYPE"]
    );
    assert_eq!(problems("a 1\n# HELP a x\n# TYPE a gauge\n"), ["HELP after samples", "TYPE after samples"]);
    assert_eq!(problems("a 1\n"), ["no help text", "no type"]);
    assert_eq!(problems("# HELP a x\n# TYPE a gauge\n"), ["no samples"]);
}

#[test]
fn series_are_unique_and_adjacent() {
    assert_eq!(
        problems(&gauge("size{a=\"b\",c=\"d\"} 1\nsize{c=\"d\",a=\"b\"} 1\n")),
        ["duplicate time series size"]
    );
    let apart = format!("{}# HELP b x\n# TYPE b gauge\nb 1\nsize{{a=\"c\"}} 1\n", gauge("size{a=\"b\"} 1\n"));
    assert_eq!(problems(&apart), ["lines are not adjacent"]);
    assert_eq!(problems(&gauge("size 1\nsize{a=\"b\"} 1\n")), ["time series with different labels"]);
    assert_eq!(problems(&gauge("size{a=\"b\"} 1\nsize{b=\"b\"} 1\n")), ["time series with different labels"]);
}

#[test]
fn counters_end_in_total() {
    let counter = "# HELP done Runs.\n# TYPE done counter\ndone -1\n";
    assert_eq!(problems(counter), ["counter name does not end in _total", "counter is negative or NaN"]);
    assert_eq!(
        problems("# HELP a_total x\n# TYPE a_total gauge\na_total 1\n"),
        ["name ends in _total, type is not counter"]
    );
    assert_eq!(
        problems("# HELP a_total x\n# TYPE a_total counter\na_total NaN\n"),
        ["counter is negative or NaN"]
    );
}

#[test]
fn histogram_is_consistent() {
    let bucket = |bound: &str, count: u8| format!("took_seconds_bucket{{le=\"{bound}\"}} {count}\n");
    let end = "took_seconds_sum 1\ntook_seconds_count 2\n";
    for (samples, expected) in [
        (format!("{}{}{end}", bucket("1", 3), bucket("+Inf", 2)), "not cumulative"),
        (format!("{}{}{}{end}", bucket("2", 1), bucket("1", 1), bucket("+Inf", 2)), "not ascending"),
        (format!("{}{end}", bucket("1", 2)), "without a bucket +Inf"),
        (format!("{}{end}", bucket("+Inf", 1)), "does not equal _count"),
        (format!("{}took_seconds_count 2\n", bucket("+Inf", 2)), "without _sum"),
        (format!("{}took_seconds_sum 2\n", bucket("+Inf", 2)), "without _count"),
        (format!("{}{end}took_seconds 1\n", bucket("+Inf", 2)), "not a sample of a histogram"),
        (format!("{}{end}", bucket("one", 2)), "invalid bound"),
    ] {
        let found = problems(&histogram(&samples));
        let is_found = found.iter().any(|problem| problem.contains(expected));
        assert!(is_found, "{expected}: {found:?}\n{samples}");
    }
    let two = histogram(
        "took_seconds_bucket{a=\"x\",le=\"1\"} 0\ntook_seconds_bucket{a=\"x\",le=\"+Inf\"} 0\n\
         took_seconds_sum{a=\"x\"} 0\ntook_seconds_count{a=\"x\"} 0\ntook_seconds_bucket{a=\"y\",le=\"+Inf\"} 0\n\
         took_seconds_sum{a=\"y\"} 0\ntook_seconds_count{a=\"y\"} 0\n",
    );
    assert_eq!(problems(&two), ["time series with different bounds"]);
}

#[test]
fn names_are_in_snake_case_and_base_units() {
    for (name, expected) in [
        ("took_milliseconds", "unit milliseconds instead of seconds"),
        ("size_kb", "unit kb instead of bytes"),
        ("fooBar", "upper-case"),
        ("a:b", "recording rules"),
        ("size_gauge", "contains the type"),
        ("size_count", "suffix of histograms"),
    ] {
        let found = problems(&format!("# HELP {name} x\n# TYPE {name} gauge\n{name} 1\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    assert_eq!(problems(&gauge("size{le=\"1\"} 1\n")), ["label le, type is not histogram"]);
    assert_eq!(problems(&gauge("size{quantile=\"1\"} 1\n")), ["label quantile, type is not summary"]);
}

#[test]
fn problem_contains_line_and_metric() {
    let found = lint("# HELP size Size.\n# TYPE size gauge\nsize one");
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts, [": no newline at the end", "line 3: : invalid value \"one\"", "size: no samples"]);
}

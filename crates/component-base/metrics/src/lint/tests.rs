use super::*;

/// What is wrong with `text`, without lines and metrics.
fn problems(text: &str) -> Vec<String> {
    lint(text).into_iter().map(|problem| problem.what).collect()
}

fn gauge(samples: &str) -> String {
    format!("# HELP size How large.\n# TYPE size gauge\n{samples}")
}

fn histogram(samples: &str) -> String {
    format!("# HELP took_seconds How long.\n# TYPE took_seconds histogram\n{samples}")
}

#[test]
fn text_that_is_fine_has_no_problems() {
    let text = format!(
        "{}{}# HELP done_total What was done.\n# TYPE done_total counter\ndone_total{{a=\"b\"}} 3\n",
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
fn heads_come_once_and_first() {
    assert_eq!(
        problems("# HELP a x\n# HELP a x\n# TYPE a gauge\n# TYPE a gauge\na 1\n"),
        ["HELP twice", "TYPE twice"]
    );
    assert_eq!(problems("a 1\n# HELP a x\n# TYPE a gauge\n"), ["HELP after samples", "TYPE after samples"]);
    assert_eq!(problems("a 1\n"), ["no help text", "no type"]);
    assert_eq!(problems("# HELP a x\n# TYPE a gauge\n"), ["no samples"]);
}

#[test]
fn series_come_once_and_together() {
    assert_eq!(
        problems(&gauge("size{a=\"b\",c=\"d\"} 1\nsize{c=\"d\",a=\"b\"} 1\n")),
        ["a series of size twice"]
    );
    let apart = format!("{}# HELP b x\n# TYPE b gauge\nb 1\nsize{{a=\"c\"}} 1\n", gauge("size{a=\"b\"} 1\n"));
    assert_eq!(problems(&apart), ["its lines are not together"]);
    assert_eq!(problems(&gauge("size 1\nsize{a=\"b\"} 1\n")), ["series with different labels"]);
    assert_eq!(problems(&gauge("size{a=\"b\"} 1\nsize{b=\"b\"} 1\n")), ["series with different labels"]);
}

#[test]
fn counters_are_called_so_and_only_they() {
    let counter = "# HELP done What.\n# TYPE done counter\ndone -1\n";
    assert_eq!(
        problems(counter),
        ["a counter whose name does not end in _total", "a counter that is negative or no number"]
    );
    assert_eq!(
        problems("# HELP a_total x\n# TYPE a_total gauge\na_total 1\n"),
        ["no counter, and its name ends in _total"]
    );
    assert_eq!(
        problems("# HELP a_total x\n# TYPE a_total counter\na_total NaN\n"),
        ["a counter that is negative or no number"]
    );
}

#[test]
fn histogram_adds_up() {
    let bucket = |bound: &str, count: u8| format!("took_seconds_bucket{{le=\"{bound}\"}} {count}\n");
    let end = "took_seconds_sum 1\ntook_seconds_count 2\n";
    for (samples, expected) in [
        (format!("{}{}{end}", bucket("1", 3), bucket("+Inf", 2)), "a higher one has less"),
        (format!("{}{}{}{end}", bucket("2", 1), bucket("1", 1), bucket("+Inf", 2)), "out of order"),
        (format!("{}{end}", bucket("1", 2)), "without a bucket +Inf"),
        (format!("{}{end}", bucket("+Inf", 1)), "is not the count"),
        (format!("{}took_seconds_count 2\n", bucket("+Inf", 2)), "without _sum"),
        (format!("{}took_seconds_sum 2\n", bucket("+Inf", 2)), "without _count"),
        (format!("{}{end}took_seconds 1\n", bucket("+Inf", 2)), "twice"),
        (format!("{}{end}", bucket("one", 2)), "is no bound"),
    ] {
        let found = problems(&histogram(&samples));
        let is_found = found.iter().any(|problem| problem.contains(expected))
            // `took_seconds` alone is a sample of the same metric, and none of a histogram.
            || expected == "twice" && found.iter().any(|problem| problem.contains("no sample of a histogram"));
        assert!(is_found, "{expected}: {found:?}\n{samples}");
    }
    let two = histogram(
        "took_seconds_bucket{a=\"x\",le=\"1\"} 0\ntook_seconds_bucket{a=\"x\",le=\"+Inf\"} 0\n\
         took_seconds_sum{a=\"x\"} 0\ntook_seconds_count{a=\"x\"} 0\ntook_seconds_bucket{a=\"y\",le=\"+Inf\"} 0\n\
         took_seconds_sum{a=\"y\"} 0\ntook_seconds_count{a=\"y\"} 0\n",
    );
    assert_eq!(problems(&two), ["series with different bounds"]);
}

#[test]
fn names_are_plain_and_in_base_units() {
    for (name, expected) in [
        ("took_milliseconds", "the unit milliseconds, not seconds"),
        ("size_kb", "the unit kb, not bytes"),
        ("fooBar", "capitals"),
        ("a:b", "recording rules"),
        ("size_gauge", "the type in it"),
        ("size_count", "a histogram's samples"),
    ] {
        let found = problems(&format!("# HELP {name} x\n# TYPE {name} gauge\n{name} 1\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    assert_eq!(problems(&gauge("size{le=\"1\"} 1\n")), ["no histogram, and has the label le"]);
    assert_eq!(problems(&gauge("size{quantile=\"1\"} 1\n")), ["no summary, and has the label quantile"]);
}

#[test]
fn problem_says_where_it_is() {
    let found = lint("# HELP size How large.\n# TYPE size gauge\nsize one");
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts, [": the last line does not end", "line 3: : \"one\" is no number", "size: no samples"]);
}

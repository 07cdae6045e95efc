use std::collections::BTreeMap;

use super::*;

fn parse(line: &str) -> Result<Flags, FlagError> {
    Flags::parse(line.split_whitespace().map(OsString::from))
}

fn value(line: &str, name: &str) -> String {
    parse(line).unwrap().value(name).to_string()
}

/// Value of `flag` in a command line.
struct Case {
    line: &'static str,
    flag: &'static str,
    expected: &'static str,
}

#[track_caller]
fn check(case: &Case) {
    let Case { line, flag, expected } = case;
    assert_eq!(value(line, flag), *expected, "{line}");
}

fn error(line: &str) -> String {
    match parse(line).and_then(|flags| flags.no_arguments()) {
        Err(error) => error.to_string(),
        Ok(()) => panic!("{line} is accepted"),
    }
}

#[test]
fn parses_each_form_of_a_value() {
    assert_eq!(value("--kubeconfig=/a", "kubeconfig"), "/a");
    assert_eq!(value("--kubeconfig /a", "kubeconfig"), "/a");
    assert_eq!(value("--kubeconfig=", "kubeconfig"), "");
    assert_eq!(value("--kubeconfig a=b", "kubeconfig"), "a=b");
    assert_eq!(value("--kube_api_qps=5", "kube-api-qps"), "5");
    assert_eq!(value("--concurrent_rc_syncs=7", "concurrent-rc-syncs"), "7");
    assert_eq!(value("--master -x", "master"), "-x", "the next argument is the value");
    assert_eq!(value("--master a --master b", "master"), "b");
    for line in ["-v4", "-v=4", "-v 4", "--v=4", "--v 4"] {
        assert_eq!(value(line, "v"), "4", "{line}");
    }
}

#[test]
fn boolean_takes_its_value_after_an_equals_sign() {
    assert!(parse("--leader-elect").unwrap().bool("leader-elect"));
    assert!(!parse("--leader-elect=false").unwrap().bool("leader-elect"));
    assert!(!parse("--leader-elect=0").unwrap().bool("leader-elect"));
    assert_eq!(
        error("--leader-elect false"),
        "\"kube-controller-manager\" does not take any arguments, got [\"false\"]"
    );
}

#[test]
fn repeated_flags_replace_the_default_and_extend_lists() {
    let list = |line| parse(line).unwrap().list("controllers").to_vec();
    assert_eq!(list(""), ["*"]);
    assert_eq!(list("--controllers=a,-b --controllers c"), ["a", "-b", "c"]);
    assert!(list("--controllers=").is_empty());
    let cases = [
        Case { line: "--controllers=a,-b --controllers=c", flag: "controllers", expected: "[a,-b,c]" },
        Case {
            line: "--tls-curve-preferences=23 --tls-curve-preferences=0x1d",
            flag: "tls-curve-preferences",
            expected: "[23,29]",
        },
        Case {
            line: "--tls-sni-cert-key=a,b --tls-sni-cert-key=c,d:e,f",
            flag: "tls-sni-cert-key",
            expected: "[a,b;c,d:e,f]",
        },
        Case {
            line: "--allow-metric-labels=m,l=a,b --allow-metric-labels=a=b",
            flag: "allow-metric-labels",
            expected: "[a=b,\"m,l=a,b\"]",
        },
        Case {
            line: "--allow-metric-labels=\"m,l=a\",b=c",
            flag: "allow-metric-labels",
            expected: "[b=c,\"m,l=a\"]",
        },
        Case {
            line: "--feature-gates=kube:B=true,A=false --feature-gates=C=1",
            flag: "feature-gates",
            expected: ":A=false,:C=1,kube:B=true",
        },
        Case { line: "--vmodule=a=1 --vmodule=b*=2,c=3", flag: "vmodule", expected: "b*=2,c=3" },
    ];
    cases.iter().for_each(check);
}

#[test]
fn formats_values_as_upstream() {
    let cases = [
        Case { line: "--min-resync-period=90m", flag: "min-resync-period", expected: "1h30m0s" },
        Case { line: "--kube-api-qps=0.10", flag: "kube-api-qps", expected: "0.1" },
        Case { line: "--kube-api-burst=0x10", flag: "kube-api-burst", expected: "16" },
        Case { line: "--leader-elect=T", flag: "leader-elect", expected: "true" },
        Case { line: "--bind-address=::1", flag: "bind-address", expected: "::1" },
        Case { line: "--bind-address=", flag: "bind-address", expected: "<nil>" },
        Case {
            line: "--log-text-info-buffer-size=1024",
            flag: "log-text-info-buffer-size",
            expected: "1024",
        },
        Case {
            line: "--log-text-info-buffer-size=2048Ki",
            flag: "log-text-info-buffer-size",
            expected: "2Mi",
        },
        Case { line: "--version", flag: "version", expected: "true" },
    ];
    cases.iter().for_each(check);
}

#[test]
fn defaults_apply() {
    let flags = parse("").unwrap();
    assert_eq!(flags.duration("min-resync-period").to_string(), "12h0m0s");
    assert!(!flags.is_given("leader-elect"));
    assert_eq!(flags.value("no-such-flag").to_string(), "");
}

#[test]
fn rejects_invalid_flags_with_upstreams_messages() {
    let cases: BTreeMap<String, String> = serde_saphyr::from_str(include_str!("rejected.yaml")).unwrap();
    for (line, expected) in cases {
        assert_eq!(error(&line), expected, "{line}");
    }
    assert!(error("-v=").ends_with("parsing \"=\": invalid syntax"));
    assert!(error("--v=2147483648").ends_with("value out of range"));
}

#[cfg(unix)]
#[test]
fn rejects_arguments_that_are_not_utf8() {
    use std::os::unix::ffi::OsStringExt;
    let error = Flags::parse([OsString::from_vec(b"--master=\xff".to_vec())]).unwrap_err();
    assert_eq!(error.to_string(), "argument \"--master=\u{fffd}\" is not valid UTF-8");
}

#[test]
fn table_is_complete() {
    assert_eq!(FLAGS.len(), 150);
    let texts = table::topics().flat_map(|(_, flags)| flags).count();
    assert_eq!(
        FLAGS.iter().filter(|flag| flag.help.is_some()).count(),
        texts,
        "unknown or repeated flags in the help"
    );
    assert_eq!(FLAGS.iter().filter(|flag| flag.deprecated.is_some()).count(), 2);
}

#[test]
fn defaults_are_valid_values() {
    for flag in FLAGS.iter().filter(|flag| flag.kind != FlagKind::CertKeys && !flag.default.is_empty()) {
        let word = format!("--{}={}", flag.name, flag.default);
        let (given, not) = (Flags::parse([word.into()]).unwrap(), Flags::default());
        assert_eq!(given.value(flag.name), not.value(flag.name));
    }
}

#[test]
fn flagz_is_sorted_and_complete() {
    let shown = parse("--node-sync-period=3s").unwrap().flagz();
    assert_eq!(shown.len(), FLAGS.len());
    assert!(shown.is_sorted());
    assert!(shown.contains(&("node-sync-period".to_owned(), "3s".to_owned())));
    assert!(shown.contains(&("controllers".to_owned(), "[*]".to_owned())));
}

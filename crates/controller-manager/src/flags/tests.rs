use std::collections::BTreeMap;

use super::*;

fn parse(line: &str) -> Result<Flags, FlagError> {
    Flags::parse(line.split_whitespace().map(OsString::from))
}

fn value(line: &str, name: &str) -> String {
    parse(line).unwrap().value(name).to_string()
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
fn repeated_flags_extend_lists() {
    let list = |line| parse(line).unwrap().list("controllers").to_vec();
    assert_eq!(list(""), ["*"]);
    assert_eq!(list("--controllers=a,-b --controllers c"), ["a", "-b", "c"]);
    assert!(list("--controllers=").is_empty());
}

#[test]
fn formats_values_as_upstream() {
    #[derive(serde::Deserialize)]
    struct Case {
        line: String,
        flag: String,
        value: String,
    }

    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("values.yaml")).unwrap();
    for Case { line, flag, value: expected } in cases {
        assert_eq!(value(&line, &flag), expected, "{line}");
    }
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

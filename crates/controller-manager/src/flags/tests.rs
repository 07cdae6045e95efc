use super::*;

fn parse(line: &str) -> Result<Flags, FlagError> {
    Flags::parse(line.split_whitespace().map(OsString::from))
}

fn value(line: &str, name: &str) -> String {
    parse(line).unwrap().text(name).to_owned()
}

#[test]
fn flag_with_a_value_is_understood_in_each_of_pflags_forms() {
    assert_eq!(value("--kubeconfig=/a", "kubeconfig"), "/a");
    assert_eq!(value("--kubeconfig /a", "kubeconfig"), "/a");
    assert_eq!(value("--kubeconfig=", "kubeconfig"), "");
    assert_eq!(value("--kubeconfig a=b", "kubeconfig"), "a=b");
    assert_eq!(value("--kube_api_qps=5", "kube-api-qps"), "5");
    assert_eq!(value("--master -x", "master"), "-x", "what follows is the value, whatever it looks like");
    assert_eq!(value("--master a --master b", "master"), "b");
    for line in ["-v4", "-v=4", "-v 4", "--v=4", "--v 4"] {
        assert_eq!(value(line, "v"), "4", "{line}");
    }
}

#[test]
fn boolean_takes_its_value_only_after_an_equals_sign() {
    assert_eq!(parse("--leader-elect").unwrap().bool("leader-elect"), Ok(true));
    assert_eq!(parse("--leader-elect=false").unwrap().bool("leader-elect"), Ok(false));
    assert_eq!(parse("--leader-elect=0").unwrap().bool("leader-elect"), Ok(false));
    assert_eq!(parse("--leader-elect false").unwrap_err(), FlagError::Argument("false".to_owned()));
    let error = parse("--leader-elect=maybe").unwrap().bool("leader-elect").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid argument \"maybe\" for \"--leader-elect\" flag: neither true nor false"
    );
}

#[test]
fn lists_add_up_and_replace_the_default() {
    assert_eq!(parse("").unwrap().list("controllers"), ["*"]);
    assert_eq!(parse("--controllers=a,-b --controllers c").unwrap().list("controllers"), ["a", "-b", "c"]);
    assert!(parse("--controllers=").unwrap().list("controllers").is_empty());
}

#[test]
fn flag_not_given_has_its_default() {
    let flags = parse("").unwrap();
    assert_eq!(flags.text("min-resync-period"), "12h0m0s");
    assert!(!flags.is_given("leader-elect"));
}

#[test]
fn command_line_that_makes_no_sense_is_told_in_one_line() {
    let cases = [
        ("--frobnicate", "unknown flag: --frobnicate"),
        ("--frob_nicate=1", "unknown flag: --frob-nicate"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("-hx", "unknown shorthand flag: 'x' in -hx"),
        ("--kubeconfig", "flag needs an argument: --kubeconfig"),
        ("-v", "flag needs an argument: --v"),
        ("run", "\"kube-controller-manager\" does not take any arguments, got \"run\""),
        ("-", "\"kube-controller-manager\" does not take any arguments, got \"-\""),
        ("-- run", "\"kube-controller-manager\" does not take any arguments, got \"run\""),
    ];
    for (line, expected) in cases {
        assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
    }
}

#[cfg(unix)]
#[test]
fn word_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let error = Flags::parse([OsString::from_vec(b"--master=\xff".to_vec())]).unwrap_err();
    assert_eq!(error.to_string(), "argument \"--master=\u{fffd}\" is not valid UTF-8");
}

#[test]
fn flags_are_named_once_and_grouped_by_section() {
    let mut names: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FLAGS.len());
    let mut sections: Vec<_> = FLAGS.iter().map(|flag| flag.section).collect();
    sections.dedup();
    let runs = sections.len();
    sections.sort_unstable();
    sections.dedup();
    assert_eq!(sections.len(), runs, "each section comes once");
    for flag in FLAGS {
        assert!(help().contains(&format!("--{}", flag.name)), "{}", flag.name);
    }
}

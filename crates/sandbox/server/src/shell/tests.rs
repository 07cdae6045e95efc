use std::time::Duration;

use kcm_clock::FakeClock;

use super::*;

/// Runs a command with the input. Returns the standard output and error, and the exit code.
async fn run(command: &[&str], input: &str) -> (String, String, i32) {
    run_on(command, input, false).await
}

async fn run_on(command: &[&str], input: &str, tty: bool) -> (String, String, i32) {
    let clock = Arc::new(FakeClock::new(jiff::Timestamp::UNIX_EPOCH));
    let process = Process {
        program: Program::Command(command.iter().map(|word| (*word).to_owned()).collect()),
        env: vec![("NAME".to_owned(), "a b".to_owned())],
        clock: clock.clone(),
        stdin: true,
        stdout: Some(1),
        stderr: Some(2),
        tty,
    };
    let (stdin, receiver) = mpsc::channel(1);
    stdin.send(Bytes::copy_from_slice(input.as_bytes())).await.unwrap();
    drop(stdin);
    let (output, mut outputs) = mpsc::channel::<(u8, Bytes)>(1);
    let collect = async {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some((channel, data)) = outputs.recv().await {
            if channel == 1 { &mut out } else { &mut err }.extend_from_slice(&data);
        }
        (out, err)
    };
    let step = async {
        for _ in 0..10_000_000 {
            tokio::task::yield_now().await;
            clock.step(Duration::from_secs(1));
        }
    };
    let (code, (out, err)) = tokio::select! {
        ended = async { tokio::join!(process.run(Some(receiver), output), collect) } => ended,
        () = step => panic!("{command:?} does not end"),
    };
    (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned(), code)
}

#[tokio::test]
async fn scripts_print_what_a_shell_prints() {
    for (script, out, err, code) in [
        ("echo a  b", "a b\n", "", 0),
        ("echo -n a; echo -e 'b\\tc'", "ab\tc\n", "", 0),
        ("echo 'a  b' \"c  $NAME\" $NAME \\$NAME", "a  b c  a b a b $NAME\n", "", 0),
        ("printf '%s-%d%%\\n' \"$NAME\" 3", "a b-3%\n", "", 0),
        ("echo a >&2; echo b 1>&2; echo c 2>&1 >/dev/null", "", "a\nb\n", 0),
        ("for i in $(seq 1 3); do echo $i; done", "1\n2\n3\n", "", 0),
        (
            "for i in `seq 4`; do if [ $i -lt 3 ]; then echo o $i; else echo e $i >&2; fi; done",
            "o 1\no 2\n",
            "e 3\ne 4\n",
            0,
        ),
        ("echo a | cat", "a\n", "", 0),
        ("true && echo a || echo b; false && echo c; false || echo d", "a\nd\n", "", 0),
        ("sleep 1; exit 3; echo a", "", "", 3),
        ("sh -c 'exit 4' || echo $(echo \"in $(echo two)\")", "in two\n", "", 0),
        ("while true; do exit 5; done", "", "", 5),
        ("if false; then echo a; fi # no", "", "", 0),
        ("\"\"", "", "exec: \"\": executable file not found in $PATH\n", 127),
        ("nothing", "", "exec: \"nothing\": executable file not found in $PATH\n", 127),
        ("echo 'a", "", "sh: syntax error: unexpected end of file\n", 2),
        ("echo a > file", "", "sh: syntax error: > file is not simulated\n", 2),
        ("false; echo $?; sh -c 'exit 300'; echo ${?}; false; exit", "1\n44\n", "", 1),
        ("echo a\\\nb \"c\\\nd\"", "ab cd\n", "", 0),
        ("exit x", "", "sh: exit: not a number\n", 2),
        ("echo ${NAME:-b}", "", "sh: syntax error: ${NAME:-b} is not simulated\n", 2),
        ("echo $1", "", "sh: syntax error: $1 is not simulated\n", 2),
        ("done", "", "sh: syntax error: unexpected \"done\"\n", 2),
        ("ls /none", "", "ls: /none: No such file or directory\n", 1),
    ] {
        assert_eq!(run(&["/bin/sh", "-c", script], "").await, (out.into(), err.into(), code), "{script}");
    }
}

#[tokio::test]
async fn programs_read_their_input() {
    assert_eq!(run(&["cat"], "a\nb").await.0, "a\nb");
    assert_eq!(run(&["sh", "-c", "cat | cat"], "a").await.0, "a");
    let script = "echo one\nfor i in 1 2; do\necho $i\ndone\nexit 7\necho two\n";
    assert_eq!(run(&["sh"], script).await, ("one\n1\n2\n".into(), String::new(), 7));
    assert_eq!(run(&["sh"], "cat\nrest").await.0, "rest");
}

#[tokio::test]
async fn terminals_echo() {
    let typed = "echo a\rexit 3\rrest";
    assert_eq!(
        run_on(&["sh"], typed, true).await,
        ("echo a\r\nexit 3\r\nresta\r\n".into(), String::new(), 3)
    );
    assert_eq!(run_on(&["cat"], "a\u{4}b", true).await.0, "aa");
}

#[tokio::test]
async fn commands_without_a_shell() {
    let (date, ..) = run(&["date"], "").await;
    assert!(date.starts_with("Thu Jan  1 00:00:0") && date.ends_with(" UTC 1970\n"), "{date}");
    assert_eq!(run(&["date", "foo"], "").await, (String::new(), "date: invalid date 'foo'\n".into(), 1));
    assert_eq!(run(&["false"], "").await.2, 1);
    assert_eq!(run(&["uptime"], "").await.0.lines().count(), 1);
    let (zipped, ..) = run(&["sh", "-c", "printf 123456789 | gzip | cat"], "").await;
    assert!(zipped.contains("123456789"), "{zipped}");
    assert_eq!(commands::crc32(b"123456789"), 0xcbf4_3926);
}

/// Scripts that do not end, or whose output or nesting has no limit, fail.
#[tokio::test]
async fn limits() {
    for script in [
        "while do done",
        "for a in $(seq 999); do for b in $(seq 999); do $NONE; done; done",
        "seq 1000000000 >/dev/null | cat",
        "for i in $(cat); do echo $i$i; done",
    ] {
        assert_eq!(run(&["sh", "-c", script], &"x".repeat(MAX_BUFFER)).await.2, MISUSE, "{script}");
    }
    let deep = format!("{}{}", "echo $(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(run(&["sh", "-c", &deep], "").await.2, MISUSE);
    let deep = format!("{}true", "if ".repeat(100_000));
    assert_eq!(run(&["sh", "-c", &deep], "").await.2, MISUSE);
    let (_, err, _) = run(&["sh"], &"sh\n".repeat(100_000)).await;
    assert!(err.starts_with("sh: too many commands in each other"), "{err}");
}

//! Output and exit codes of the binary.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "a test fails that way")]

#[cfg(unix)]
mod busy;
#[cfg(unix)]
mod cluster;
#[cfg(unix)]
mod debug;
#[cfg(unix)]
mod hand_over;
#[cfg(unix)]
mod port;
#[cfg(unix)]
mod slow_writes;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
};

#[cfg(unix)]
use cluster::signal;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"));
    command
        .args(arguments)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A panic would print a backtrace, which the tests reject.
    command.env("RUST_BACKTRACE", "1");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The only line on stderr of a run that fails, without the program's name. The name of a Lease precedes `arguments`.
fn error_line(arguments: &[&str]) -> String {
    let arguments = &[&["--leader-elect-resource-name=lease"], arguments].concat();
    let output = run(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let line = stderr.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{arguments:?}: {stderr}");
    line.strip_prefix("kube-controller-manager: ").unwrap().to_owned()
}

/// Last line on stderr of a run that fails, without the program's name, after the log.
fn last_line(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    stderr.lines().last().unwrap().strip_prefix("kube-controller-manager: ").unwrap().to_owned()
}

#[test]
fn invalid_command_line_is_an_error() {
    let cases: [(&[&str], &str); 6] = [
        (&["--frobnicate"], "unknown flag: --frobnicate"),
        (&["--kubeconfig"], "flag needs an argument: --kubeconfig"),
        (&["start"], "\"kube-controller-manager\" does not take any arguments, got [\"start\"]"),
        (&["--controllers=*,-foo"], "\"foo\" is not in the list of known controllers"),
        (
            &["--kube-api-qps=fast"],
            "invalid argument \"fast\" for \"--kube-api-qps\" flag: \
             strconv.ParseFloat: parsing \"fast\": invalid syntax",
        ),
        (&["--master=ftp://x"], "master \"ftp://x\": address \"ftp://x\": the scheme must be http or https"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(error_line(arguments), expected);
    }
}

#[test]
fn missing_name_of_the_lease_is_an_error() {
    let output = run(&["--master=http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "kube-controller-manager: --leader-elect-resource-name must be set: ";
    assert!(stderr.starts_with(expected) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn missing_api_server_is_an_error() {
    assert_eq!(
        error_line(&[]),
        "no API server configured: set --kubeconfig or --master, or run inside a cluster: in-cluster configuration: \
         KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
    );
}

#[test]
fn invalid_kubeconfig_is_an_error() {
    assert_eq!(
        error_line(&["--kubeconfig=/nowhere/config"]),
        "kubeconfig \"/nowhere/config\": No such file or directory (os error 2)"
    );

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let flag = format!("--kubeconfig={}", path.display());
    let cases = [
        ("users: [{name: u, user: {token: s3cr3t}}\nclusters: {", "not valid YAML at line 2 column "),
        ("kind: Config", "failed to determine current context"),
    ];
    for (text, expected) in cases {
        fs::write(&path, text).unwrap();
        let line = error_line(&[&flag]);
        assert!(line.starts_with(&format!("kubeconfig {path:?}: {expected}")), "{line}");
        assert!(!line.contains("s3cr3t"), "{line}");
    }

    write_kubeconfig(
        &path,
        "https://127.0.0.1:6443",
        "client-certificate: absent.crt, client-key: absent.key",
    );
    let line = error_line(&[&flag]);
    assert!(
        line.contains("absent.crt") && line.ends_with("No such file or directory (os error 2)"),
        "{line}"
    );
}

#[test]
fn invalid_proxy_variable_is_an_error() {
    let mut command = command(&["--master=https://api.example", "--leader-elect=false"]);
    let output =
        command.env("HTTPS_PROXY", "ftp://user:s3cr3t@proxy").env_remove("NO_PROXY").output().unwrap();
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "kube-controller-manager: master \"https://api.example\": environment variable HTTPS_PROXY: \
         unsupported scheme of the proxy URL, must be http, https, or socks5\n"
    );
}

#[test]
fn unreachable_api_server_is_an_error() {
    let address = kcm_testkit::unused_address();
    let master = format!("--master={address}");
    let line = last_line(&[&master, "--leader-elect=false", "--secure-port=0"]);
    assert!(
        line.starts_with(&format!(
            "failed to wait for the API server at http://{address} to become healthy within 10s: "
        )),
        "{line}"
    );
    assert!(line.ends_with("Connection refused (os error 111)"), "{line}");
}

#[test]
fn help_and_version_are_printed() {
    let help = run(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.contains("\nLeader election:\n") && text.contains("--kube-api-qps"), "{text}");

    let version = run(&["--version"]);
    assert!(version.status.success() && version.stderr.is_empty());
    let text = String::from_utf8(version.stdout).unwrap();
    assert!(text.starts_with("kube-controller-manager v") && text.lines().count() == 1, "{text}");
}

#[cfg(unix)]
#[test]
fn sigterm_stops_the_manager() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    write_kubeconfig(&path, &format!("http://{}", empty_cluster()), "token: s3cr3t");
    let flag = format!("--kubeconfig={}", path.display());
    let mut manager = command(&[&flag, "--leader-elect=false", "--secure-port=0", "-v=10"]).spawn().unwrap();
    let mut stderr = BufReader::new(manager.stderr.take().unwrap());
    let mut log = String::new();
    while !log.contains("Starting controller") {
        assert_ne!(stderr.read_line(&mut log).unwrap(), 0, "{log}");
    }
    signal(&manager, "TERM");
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(manager.wait().unwrap().code(), Some(0), "{log}");
    assert!(log.contains("\"Shutting down\""), "{log}");
    assert!(!log.contains("s3cr3t"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('I')), "{log}");
}

#[cfg(unix)]
#[test]
fn sigint_stops_a_manager_that_waits_for_the_api_server() {
    // Accepts connections and sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--master={}", listener.local_addr().unwrap());
    let lease = "--leader-elect-resource-name=lease";
    let mut manager = command(&[&flag, lease, "--secure-port=0"]).spawn().unwrap();
    let _connection = listener.accept().unwrap();
    signal(&manager, "INT");
    assert_eq!(manager.wait().unwrap().code(), Some(0));
}

#[cfg(unix)]
#[test]
fn second_sigterm_exits_immediately() {
    let (address, posted) = cluster_without_responses_to_posts();
    let master = format!("--master={address}");
    let mut manager = command(&[&master, "--leader-elect=false", "--secure-port=0"]).spawn().unwrap();
    posted.recv().unwrap();
    let mut stderr = BufReader::new(manager.stderr.take().unwrap());
    signal(&manager, "TERM");
    let mut log = String::new();
    while !log.contains("\"Shutting down\"") {
        assert_ne!(stderr.read_line(&mut log).unwrap(), 0, "{log}");
    }
    signal(&manager, "TERM");
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(manager.wait().unwrap().code(), Some(1), "{log}");
    assert!(!log.contains("timeout"), "{log}");
}

#[cfg(unix)]
#[test]
fn maximum_verbosity_logs_no_secrets_and_objects() {
    let (address, posted) = cluster_without_responses_to_posts();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    write_kubeconfig(&path, &format!("http://{address}"), "token: s3cr3t");
    let kubeconfig = format!("--kubeconfig={}", path.display());
    for format in ["text", "json"] {
        let format = format!("--logging-format={format}");
        let arguments = [&kubeconfig, "--leader-elect=false", "--secure-port=0", "-v=10", &format];
        let mut manager = command(&arguments).spawn().unwrap();
        posted.recv().unwrap();
        manager.kill().unwrap();
        let log = String::from_utf8(manager.wait_with_output().unwrap().stderr).unwrap();
        assert!(log.contains("FLAG: --logging-format=") && log.contains("Too few replicas"), "{log}");
        assert!(!log.contains("s3cr3t"), "{log}");
    }
}

fn write_kubeconfig(path: &Path, server: &str, user: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    );
    fs::write(path, text).unwrap();
}

/// Healthy API server without objects.
fn empty_cluster() -> SocketAddr {
    cluster("", None)
}

/// API server with a ReplicaSet of one replica, which never responds to a POST. The receiver gets a message per POST.
fn cluster_without_responses_to_posts() -> (SocketAddr, Receiver<()>) {
    let (posted, received) = channel();
    let replica_set = r#"{"type":"ADDED","object":{"metadata":{"namespace":"shop","name":"web","uid":"u",
        "resourceVersion":"1"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},
        "template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c",
        "env":[{"name":"PASSWORD","value":"s3cr3t"}]}]}}}}}"#;
    (cluster(replica_set, Some(posted)), received)
}

fn cluster(replica_set: &'static str, posted: Option<Sender<()>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let posted = posted.clone();
            std::thread::spawn(move || serve(connection.unwrap(), replica_set, posted.as_ref()));
        }
    });
    address
}

fn serve(connection: TcpStream, replica_set: &str, posted: Option<&Sender<()>>) {
    let mut to = connection.try_clone().unwrap();
    let mut lines = BufReader::new(connection).lines();
    while let Some(Ok(request)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let response = if request.starts_with("GET /healthz ") {
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned()
        } else if request.starts_with("POST ") {
            // The rest is the body.
            posted.iter().for_each(|posted| posted.send(()).unwrap());
            loop {
                std::thread::park();
            }
        } else {
            // A watch with initial events and without an end.
            let first = if request.contains("/replicasets") { replica_set } else { "" };
            let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
            let events = format!("{}\n{end}\n", first.replace('\n', ""));
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n", events.len())
        };
        if to.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

//! Flags, arguments and output of the program, with a server of fixed responses.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod server;
mod workloads;

use std::{net::TcpListener, path::Path, process::Command};

use serde_json::{Value, json};

use self::server::{Content, DEPLOYMENTS, ENTRY, deployment, failed, idle, with_objects};

#[test]
fn time_is_that_of_the_server() {
    // The pod was created in the second of the response. The local clock is later.
    let content = with_objects(&[deployment("web", "app:1")], None);
    let just_created = Content { date: Some("Thu, 15 Jan 2026 00:00:00 GMT"), ..content.clone() };
    let (code, text, _) = just_created.start().why("web");
    assert!(text.contains("pod_starting") && code == 2, "{text}");
    let later = Content { date: Some("Thu, 15 Jan 2026 00:02:00 GMT"), ..content.clone() };
    let (_, text, _) = later.start().why("web");
    assert!(text.contains("scheduler_not_running"), "{text}");
    // Without the header, and with one that is no date, the local clock applies.
    for date in [None, Some("yesterday")] {
        let (_, text, _) = Content { date, ..content.clone() }.start().why("web");
        assert!(text.contains("scheduler_not_running"), "{text}");
    }
    // A clock before all times of the objects.
    let (_, text, _) = Content { date: Some(ENTRY), ..content }.start().why("web");
    assert!(text.contains("pod_starting"), "{text}");
}

#[test]
fn users_of_kubectl() {
    let server = Content::new().deployments(&[idle("web")]).start();
    assert_eq!(server.why("web --as=jane --as-group=a --as-group=b --as-uid=7").0, 0);
    assert_eq!(server.header("impersonate-user"), ["jane"]);
    assert_eq!(server.header("impersonate-group"), ["a", "b"]);
    assert_eq!(server.header("impersonate-uid"), ["7"]);
    assert_eq!(server.why("web --token=secret").0, 0);
    assert_eq!(server.header("authorization"), ["Bearer secret"]);
    assert_eq!(server.why("web --user=robot").0, 0);
    assert_eq!(server.header("authorization"), ["Bearer of-robot"]);
    assert_eq!(server.why("web --context=down --cluster=test").0, 0);
    assert_eq!(server.why(&format!("web --context=down --server={} --user=robot", server.url)).0, 0);
    // As for kubectl, credentials of files are not sent to another address without TLS.
    assert_eq!(server.header("authorization"), Vec::<String>::new());
    let (code, _, error) = server.why("web --user=missing");
    assert!(code == 1 && error.contains("user \"missing\" does not exist"), "{error}");
    let (code, _, error) = server.why("web --as-group=a");
    assert!(code == 1 && error.contains("without impersonating a user"), "{error}");
}

#[test]
fn server_without_a_kubeconfig() {
    let server = Content::new().deployments(&[idle("web")]).start();
    let (code, text, error) = server.why(&format!("web -n shop --kubeconfig=/missing -s {}", server.url));
    assert_eq!(code, 0, "{text}{error}");
}

#[test]
fn request_timeout() {
    // A server that accepts connections, and does not respond.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Content::new().start();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (code, _, error) = server.why(&format!("web -s {url} --request-timeout=100ms"));
    assert!(code == 1 && error.contains("timed out"), "{error}");
}

#[test]
fn user_agents() {
    let server = Content::new().deployments(&[idle("web")]).start();
    assert_eq!(server.why("web").0, 0);
    let agent = server.header("user-agent");
    assert!(
        agent[0].starts_with(concat!("kubectl-rollouts-why/v", env!("CARGO_PKG_VERSION"), " (")),
        "{agent:?}"
    );
    server.run(&["preview", "web", "--restart", "--dry-run=none"]);
    assert!(server.header("user-agent")[0].starts_with("kubectl-rollouts-preview/v"));
}

#[test]
fn names_on_the_command_line() {
    let server = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]).start();
    for line in ["web", "deploy web", "deployments.apps web", "deployment/web", "deploy/web -n shop"] {
        assert_eq!(server.why(line).0, 0, "{line}");
    }
    let before = server.paths().len();
    for (arguments, part) in [
        (["why", ""], "the name is empty: write the name of a Deployment"),
        (
            ["why", "rs/web"],
            "\"rs\" is not a kind that can be explained: write NAME, deployment/NAME, statefulset/NAME",
        ),
        (["why", "deploy/web/x"], "a name consists of lower-case letters"),
        (["why", "../../secrets/x"], "is not a kind that can be explained"),
        (["why", "web?watch=true"], "a name consists of lower-case letters"),
        (["why", "Web"], "write \"web\""),
        (["why", "-n=a/b"], "invalid name \"a/b\""),
    ] {
        let output = server.run(&arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && error.contains(part), "{arguments:?} {error}");
    }
    let (code, _, error) = server.why("web api");
    assert!(code == 1 && error.contains("more than one name"), "{error}");
    assert_eq!(server.paths().len(), before, "a request was sent for an invalid name");
}

#[test]
fn missing_objects() {
    let content = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]);
    let server = content.clone().start();
    let (code, _, error) = server.why("webb");
    let expected = "error: deployments.apps \"webb\" not found in namespace \"shop\": write a similar name (web), or \
                    another namespace with -n\n";
    assert_eq!((code, &*error), (1, expected));
    for line in ["web -n shopp", "-n shopp"] {
        let (code, text, error) = server.why(line);
        let expected = "error: namespace \"shopp\" does not exist: write a similar name with -n (shop)\n";
        assert_eq!((code, &*text, &*error), (1, "", expected), "{line}");
    }
    let forbidden = vec!["/api/v1/namespaces/other", "/apis/apps/v1/namespaces/other/deployments"];
    let (_, _, error) = Content { forbidden, ..content }.start().why("web -n other");
    assert_eq!(error, "error: deployments.apps \"web\" not found in namespace \"other\"\n");
    let empty = Content::new().start();
    assert_eq!(empty.why("-n shop"), (0, "No Deployments found.\n".to_owned(), String::new()));
}

#[test]
fn wide_table_and_common_causes() {
    let waiting = json!({ "reason": "ImagePullBackOff", "message": "Back-off" });
    let deployments =
        [deployment("a", "r.example/a:1"), deployment("b", "r.example/b:1"), deployment("c", "other/c:1")];
    let content =
        Content { date: Some("Thu, 15 Jan 2026 00:02:00 GMT"), ..with_objects(&deployments, Some(&waiting)) };
    let server = content.start();
    let (code, table, _) = server.why("-A -o wide");
    assert_eq!(code, 3, "{table}");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAMESPACE") && lines[0].ends_with("DEADLINE"), "{table}");
    assert!(lines[1].contains("stuck   image_pull"), "{table}");
    assert!(table.ends_with("\nCommon causes\n  2 Deployments: image_pull, registry r.example\n"), "{table}");
    let (_, list, _) = server.why("-o json");
    let list: Value = serde_json::from_str(&list).unwrap();
    let expected = json!([{
        "cause": "image_pull", "object": "registry r.example", "deployments": ["shop/a", "shop/b"],
    }]);
    assert_eq!(list["commonCauses"], expected);
}

#[test]
fn control_characters_of_messages() {
    let message = "pull \u{1b}[2J\u{9b}31m\u{202e}\u{7f}\rfailed";
    let waiting = json!({ "reason": "ImagePullBackOff", "message": message });
    let content = Content {
        date: Some("Thu, 15 Jan 2026 00:02:00 GMT"),
        forbidden: vec!["/apis/apps/v1/namespaces/shop/deployments/api"],
        ..with_objects(&[deployment("web", "app:1")], Some(&waiting))
    };
    let server = content.start();
    let is_safe = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}');
    for line in ["web", "-A -o wide", "web -o json", "web -o yaml"] {
        let (code, text, error) = server.why(line);
        assert!(code == 3 && is_safe(&text) && is_safe(&error), "{line}: {text:?}");
    }
    let (_, document, _) = server.why("web -o json");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert!(document["findings"][0]["message"].as_str().unwrap().contains(message), "{document:#}");

    // The message of an error response.
    let (code, text, error) = server.why("api");
    assert!(code == 1 && is_safe(&text) && is_safe(&error), "{error:?}");
    assert!(error.contains("\u{fffd}[31m/apis/apps/v1"), "{error:?}");
}

#[test]
fn until_a_state() {
    let content = Content::new().deployments(&[idle("web"), failed("bad"), deployment("api", "app:1")]);
    let server = content.start();
    let (code, text, _) = server.why("web --until=complete --timeout=1m");
    assert!(code == 0 && text.contains("Complete"), "{text}");
    for until in ["failed", "stuck", "complete,failed"] {
        let (code, text, _) = server.why(&format!("bad --until={until} --timeout=1m"));
        assert!(code == 4 && text.contains("Progress deadline exceeded"), "{text}");
    }
    // The state of one rollout, and the timeout.
    assert_eq!(server.why("--until=stuck --timeout=1m").0, 4);
    let (code, text, error) = server.why("bad --until=complete --timeout=300ms");
    assert_eq!(code, 124, "{text}{error}");
    assert!(
        error.starts_with("error: timed out after 300ms; shop/bad: Progress deadline exceeded"),
        "{error}"
    );
    let (code, _, error) = server.why("web --timeout=1m");
    assert!(code == 1 && error.contains("--until"), "{error}");
}

#[test]
fn until_without_a_match() {
    let server = Content::new().start();
    for line in ["-l app=none --until=complete", "--until=stuck,failed", "-A --until=complete"] {
        let (code, text, error) = server.why(&format!("{line} --timeout=1m"));
        assert_eq!((code, &*text, &*error), (1, "", "error: no matching resources found\n"), "{line}");
    }
    assert_eq!(server.why("-l app=none").0, 0);
}

#[test]
fn tables_name_what_was_not_read() {
    let content = with_objects(&[deployment("web", "app:1"), deployment("api", "app:1")], None);
    let forbidden = vec!["/api/v1/namespaces/shop/pods", "/api/v1/pods"];
    let server = Content { forbidden, ..content }.start();
    let (_, table, _) = server.why("-n shop");
    let expected = "\nNot read\n  - not permitted to list pods in namespace shop\n  kubectl -n shop create rolebinding \
                    rollouts-view --clusterrole=view --user=USER\n";
    assert!(table.ends_with(expected), "{table}");
    let (_, table, _) = server.why("-A");
    let expected = "\nNot read\n  - not permitted to list pods\n  kubectl create clusterrolebinding rollouts-view \
                    --clusterrole=view --user=USER\n";
    assert!(table.ends_with(expected), "{table}");
}

#[test]
fn forbidden_workloads() {
    let forbidden =
        vec![DEPLOYMENTS, "/apis/apps/v1/namespaces/shop/statefulsets/db", "/apis/apps/v1/deployments"];
    let server = Content { forbidden, ..Content::new() }.start();
    let role = "kubectl -n shop create rolebinding";
    for (line, permission, command) in [
        ("sts/db", "get statefulsets in namespace shop", role),
        ("-n shop", "list deployments in namespace shop", role),
        ("-n shop --watch", "list deployments in namespace shop", role),
        ("-A", "list deployments", "kubectl create clusterrolebinding"),
    ] {
        let (code, text, error) = server.why(line);
        assert!(code == 1 && text.is_empty(), "{line}: {text}");
        assert!(error.starts_with(&format!("error: not permitted to {permission}: ")), "{line}: {error}");
        let command = format!("\n  {command} rollouts-view --clusterrole=view --user=USER\n");
        assert!(error.ends_with(&command), "{line}: {error}");
    }
}

#[test]
fn completion() {
    let server = Content::new().deployments(&[idle("web"), idle("web-2"), idle("api")]).start();
    let complete = |words: &[&str]| {
        let arguments: Vec<&str> = ["__complete"].into_iter().chain(words.iter().copied()).collect();
        let output = server.run(&arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["why", "we"]), "web\nweb-2\n:4\n");
    assert_eq!(complete(&["why", "deploy/a"]), "deploy/api\n:4\n");
    assert_eq!(complete(&["why", "-n", ""]), "shop\n:4\n");
    assert_eq!(complete(&["why", "--context", ""]), "test\ndown\n:4\n");
    assert_eq!(complete(&["preview", "--cluster="]), "test\ndown\n:4\n");
    assert_eq!(complete(&["why", "--user", "r"]), "robot\n:4\n");
    assert_eq!(complete(&["preview", "-f", ""]), ":0\n");
    assert!(complete(&["w"]).starts_with("why\tExplains"));
    // No answer from the cluster.
    assert_eq!(complete(&["why", "--context=down", "we"]), ":4\n");

    // The name by which kubectl finds it.
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl_complete-rollouts");
    std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_kubectl-rollouts")), &link).unwrap();
    let output =
        Command::new(link).args(["why", "ap"]).env("KUBECONFIG", &server.kubeconfig).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "api\n:4\n");
}

#[test]
fn help_has_examples() {
    let server = Content::new().start();
    let (code, text, _) = server.why("--help");
    assert_eq!(code, 0);
    for part in
        ["Examples:\n", "  kubectl rollouts why web -n shop\n", "why statefulset/db", "124", "--as-group"]
    {
        assert!(text.contains(part), "{part:?}: {text}");
    }
}

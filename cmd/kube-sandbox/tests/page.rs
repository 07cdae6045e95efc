//! The page at `/ui`, in headless Chromium: a rollout, a rollout that gets stuck, a Deployment that goes.
//!
//! Needs `chromedriver` and Chromium (Debian: `chromium-driver`); without them it says that it is skipped. With
//! `UI_SCREENSHOT=DIR` the nodes take their time and pictures of the page are put into that folder, which is how
//! `docs/images/ui.png` was made:
//!
//! ```sh
//! UI_SCREENSHOT=docs/images cargo test -p kube-sandbox --test page
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may, in every helper of theirs"
)]

use std::{
    env, fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// What would run if the page took an image for markup.
const MISCHIEF: &str = "x<img/src=x/onerror=document.body.remove()>";

#[test]
fn page_shows_a_rollout_as_it_happens() {
    let Some(driver) = Program::start(Command::new("chromedriver").arg("--port=0"), |line| {
        Some(format!(
            "127.0.0.1:{}",
            line.split(" successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()?
        ))
    }) else {
        println!("skipped: chromedriver is not in the path");
        return;
    };
    let pictures = env::var_os("UI_SCREENSHOT").map(PathBuf::from);
    let ready_delay = if pictures.is_some() { "2s" } else { "200ms" };
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let sandbox = start_sandbox("127.0.0.1:0", ready_delay, &kubeconfig);

    // `/` leads a browser to the page.
    let page = Browser::open(&driver.address, &format!("http://{}/", sandbox.address));
    page.until("location.pathname === '/ui' && $('link').textContent === 'live'");
    page.until("$('empty-words').textContent.includes('There is no Deployment')");

    sandbox.call("POST", DEPLOYMENTS, &deployment("web", "nginx:1.27", 10));
    page.until("$('name').textContent === 'default/web' && $('state').textContent === 'complete'");
    page.until("document.querySelectorAll('#sets .dot.ready').length === 10");

    sandbox.call("PATCH", WEB, &image("nginx:1.28"));
    page.until("$('legend').textContent.includes('revision 2, nginx:1.28')");
    page.until("document.querySelectorAll('#svg path.area').length === 2");
    page.until("$('state').textContent === 'rolling'");
    page.until("$('state').textContent === 'complete' && $('conditions').textContent.includes('NewReplicaSetAvailable')");
    page.until("$('events').textContent.includes('ScalingReplicaSet')");

    sandbox.call("PATCH", WEB, &image("nginx:broken"));
    page.until("document.querySelectorAll('#sets .dot.failed').length === 5");
    page.until("$('sets').textContent.includes('ImagePullBackOff') && $('events').textContent.includes('Failed to pull')");
    // The surge is used up, and no less is available than may be.
    page.until("['most 13', 'avail. 8', 'fewest 8'].every(words => $('svg').textContent.includes(words))");
    if let Some(folder) = &pictures {
        page.picture(&folder.join("ui.png"), 1100, 960, "light");
        page.picture(&folder.join("ui-dark.png"), 1100, 960, "dark");
        page.picture(&folder.join("ui-narrow.png"), 400, 1500, "dark");
    }

    // What an object says is text, whatever it looks like.
    sandbox.call("POST", DEPLOYMENTS, &deployment("odd", MISCHIEF, 1));
    page.until("[...document.querySelectorAll('#list button')].find(one => one.textContent.includes('odd'))?.click() || $('name').textContent === 'default/odd'");
    page.until(
        "$('sets').textContent.includes('<img/src=x') && $('legend').textContent.includes('<img/src=x')",
    );
    page.until("document.querySelector('img') === null");

    // What was seen of it stays until another is chosen.
    sandbox.call("DELETE", "/apis/apps/v1/namespaces/default/deployments/odd", &json!({}));
    page.until("$('name').textContent === 'default/odd' && $('state').textContent === 'deleted'");
    page.until("document.querySelectorAll('#list button').length === 1");

    assert_eq!(page.complaints(), Vec::<String>::new());

    // A server that starts anew, and counts from the beginning, is followed like the one before.
    let address = sandbox.address.clone();
    drop(sandbox);
    page.until("$('link').textContent === 'the server cannot be reached'");
    let sandbox = start_sandbox(&address, ready_delay, &kubeconfig);
    page.until("$('link').textContent === 'live' && $('list').textContent === 'No Deployments'");
    sandbox.call("POST", DEPLOYMENTS, &deployment("next", "nginx:1.27", 2));
    page.until("$('list').textContent.includes('next')");
}

fn start_sandbox(listen: &str, ready_delay: &str, kubeconfig: &Path) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-sandbox"));
    command
        .args([
            "--listen",
            listen,
            "--pod-ready-delay",
            ready_delay,
            "--pod-stop-delay",
            "1s",
            "--nodes",
            "3",
        ])
        .arg("--kubeconfig")
        .arg(kubeconfig);
    let address = |line: &str| Some(line.split("http://").nth(1)?.split([';', '/', ' ']).next()?.to_owned());
    Program::start(&mut command, address).unwrap()
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

fn deployment(name: &str, image: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        },
    }})
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// A program that serves HTTP, and ends with this.
struct Program {
    process: Child,
    /// Host and port.
    address: String,
}

impl Program {
    /// Starts it and waits for the line that tells its address; nothing if it is not installed.
    fn start(command: &mut Command, address: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let mut process = match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{command:?}: {error}"),
        };
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| address(&line)).expect("it tells its address");
        // A full pipe would stop it.
        thread::spawn(move || lines.for_each(drop));
        Some(Self { process, address })
    }

    fn call(&self, method: &str, path: &str, body: &Value) {
        let content_type =
            if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
        let answer = call(&self.address, method, path, content_type, body);
        assert_ne!(answer["status"], "Failure", "{answer}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A window of a browser, through the WebDriver protocol.
struct Browser {
    driver: String,
    session: String,
}

impl Browser {
    fn open(driver: &str, url: &str) -> Self {
        let arguments = [
            "--headless",
            // Chromium refuses to run as root with one; the only page it sees is ours.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = call(driver, "POST", "/session", "application/json", &wanted);
        let session = answer["value"]["sessionId"].as_str();
        let session = session.unwrap_or_else(|| panic!("no session: {answer}")).to_owned();
        let browser = Self { driver: driver.to_owned(), session };
        browser.ask("/timeouts", &json!({"script": 60_000}));
        browser.ask("/url", &json!({"url": url}));
        browser
    }

    fn ask(&self, what: &str, body: &Value) -> Value {
        let path = format!("/session/{}{what}", self.session);
        let answer = call(&self.driver, "POST", &path, "application/json", body);
        assert!(answer["value"]["error"].is_null(), "{what} {body}: {answer}");
        answer["value"].clone()
    }

    /// Waits until `condition` holds in the page.
    fn until(&self, condition: &str) {
        // In the page's own functions, so that its policy need not allow eval.
        let script = format!(
            "const told = arguments[arguments.length - 1], began = Date.now();
             (function look() {{
               if ({condition}) told('');
               else if (Date.now() - began > 30000) told(document.body.innerText);
               else setTimeout(look, 20);
             }})();"
        );
        let shown = self.ask("/execute/async", &json!({"script": script, "args": []}));
        assert_eq!(shown, "", "{condition} does not come to hold; the page shows this");
    }

    /// What the browser had to say against the page: errors, and what its policy forbade.
    fn complaints(&self) -> Vec<String> {
        let log = self.ask("/se/log", &json!({"type": "browser"}));
        log.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Puts a picture of the page into a file.
    fn picture(&self, file: &Path, width: u32, height: u32, scheme: &str) {
        let command = |cmd: &str, params: Value| {
            self.ask("/goog/cdp/execute", &json!({"cmd": cmd, "params": params}));
        };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        command("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        command("Emulation.setEmulatedMedia", scheme);
        // The chart learns of its new size with the next frame.
        self.until("Math.abs($('svg').viewBox.baseVal.width - $('svg').getBoundingClientRect().width) < 1");
        let path = format!("/session/{}/screenshot", self.session);
        let answer = call(&self.driver, "GET", &path, "application/json", &Value::Null);
        let picture = BASE64_STANDARD.decode(answer["value"].as_str().unwrap()).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which would outlive the driver.
        let path = format!("/session/{}", self.session);
        call(&self.driver, "DELETE", &path, "application/json", &Value::Null);
    }
}

/// Sends a request and reads the answer, which is JSON.
fn call(address: &str, method: &str, path: &str, content_type: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    // Not to the end of the connection: the driver leaves it open.
    let mut reader = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
    }
    let mut text = vec![0; length.expect("answers tell their length")];
    reader.read_exact(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

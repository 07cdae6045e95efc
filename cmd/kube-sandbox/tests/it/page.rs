//! The `/ui` page in headless Chromium: a rollout, a stuck rollout, a deleted Deployment.
//!
//! Requires `chromedriver` and Chromium (Debian: `chromium-driver`); the test is skipped without them. If
//! `UI_SCREENSHOT=DIR` is set, pods take longer to become ready, and `ui.png`, `ui-dark.png`, `ui-narrow.png`, `ui-why.png`
//! and `ui-why-dark.png` are written to that directory. The documentation contains the first and the last two:
//!
//! ```sh
//! UI_SCREENSHOT=$PWD/target/ui cargo test -p kube-sandbox --test it page && cp target/ui/ui{,-why,-why-dark}.png docs/images/
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helper functions of tests may panic"
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

/// Image name that would remove the page if it were interpreted as markup.
const MARKUP_IMAGE: &str = "x<img/src=x/onerror=document.body.remove()>";

/// Starts chromedriver. Returns `None` if it is not installed.
fn start_driver() -> Option<Program> {
    let driver = Program::start(Command::new("chromedriver").arg("--port=0"), |line| {
        Some(format!(
            "127.0.0.1:{}",
            line.split(" successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()?
        ))
    });
    if driver.is_none() {
        println!("skipped: chromedriver is not in the path");
    }
    driver
}

#[test]
fn page_explains_and_previews() {
    let Some(driver) = start_driver() else { return };
    let pictures = env::var_os("UI_SCREENSHOT").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let ready_delay = if pictures.is_some() { "2s" } else { "200ms" };
    let sandbox = start_sandbox("127.0.0.1:0", ready_delay, &folder.path().join("kubeconfig"));
    let mut web = deployment("web", "nginx:1.27", 10);
    web["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    sandbox.call("POST", DEPLOYMENTS, &web);
    let page = Browser::open(&driver.address, &format!("http://{}/ui#default/web", sandbox.address));
    page.until("!$('why').hidden && $('why-live').textContent === 'Complete'");

    // Why: the diagnosis of `kubectl rollouts why`.
    sandbox.call("PATCH", WEB, &image("nginx:broken"));
    page.until("$('why-live').textContent === 'Stuck: image pull'");
    page.until("$('why-sentence').textContent.startsWith('Stuck because 5 pods cannot pull their image')");
    page.until("$('why-causes').textContent.includes('image_pull: Image nginx:broken cannot be pulled')");
    page.until("$('why-next').textContent.includes('wait for new pods: 0 of 5 available')");
    page.until("$('why-next').textContent.includes(\"the controller's queue: deployment web\")");
    page.until("$('why-commands').textContent.includes('kubectl -n default rollout undo deployment/web')");
    assert_eq!(page.role_and_name("#why-live").0, "status");
    assert_eq!(page.role_and_name("#why"), ("region".to_owned(), "Why".to_owned()));
    assert_eq!(page.role_and_name("#why-commands"), ("list".to_owned(), "Commands".to_owned()));

    // What if: only with the keyboard, from the first control of the form.
    assert_eq!(page.role_and_name("#if-kind").1, "Change");
    assert_eq!(page.role_and_name("#if-image").1, "Image");
    assert_eq!(page.role_and_name("#if-button"), ("button".to_owned(), "Preview".to_owned()));
    page.until("($('if-kind').focus(), document.activeElement === $('if-kind'))");
    page.keys(TAB);
    page.until("document.activeElement === $('if-image')");
    page.keys("nginx:1.28");
    page.keys(TAB);
    page.until("document.activeElement === $('if-button')");
    page.keys(ENTER);
    page.until(
        "$('if-live').textContent.startsWith('Deployment default/web starts a rollout. Complete after ')",
    );
    page.until("document.querySelector('#if-figure img').naturalWidth > 0");
    let (role, name) = page.role_and_name("#if-figure img");
    assert!(
        name.starts_with("Pods of each ReplicaSet over time. Deployment default/web starts a rollout"),
        "{role} {name}"
    );
    // The focus stays, and continues with the text.
    page.until("document.activeElement === $('if-button')");
    page.keys(TAB);
    page.until("document.activeElement.localName === 'summary'");
    page.keys(ENTER);
    page.until("$('if-details').open && $('if-text').textContent.includes('AVAILABLE')");
    page.keys(TAB);
    page.until("document.activeElement === $('if-text')");
    // Nothing was changed.
    page.until("deployments.objects.get(chosen).spec.template.spec.containers[0].image === 'nginx:broken'");

    // Other changes, and errors.
    page.until("($('if-kind').value = 'replicas', $('if-kind').dispatchEvent(new Event('change')), !$('if-replicas-label').hidden)");
    page.until("($('if-replicas').value = '3', $('if').requestSubmit(), true)");
    page.until("$('if-live').textContent.startsWith('Deployment default/web only scales from 10 to 3')");
    page.until("($('if-kind').value = 'image', $('if-kind').dispatchEvent(new Event('change')), true)");
    page.until("($('if-image').value = ' ', $('if').requestSubmit(), true)");
    page.until("$('if-live').textContent.includes('image') && !document.querySelector('#if-figure img')");

    for (scheme, name) in [("light", "ui-why.png"), ("dark", "ui-why-dark.png")] {
        page.until("($('if-image').value = 'nginx:1.28', $('if').requestSubmit(), true)");
        page.until("document.querySelector('#if-figure img')?.naturalWidth > 0");
        page.show(960, 900, scheme);
        page.until(CONTRAST);
        if let Some(folder) = &pictures {
            page.until("($('if-details').open = false, $('why').scrollIntoView(), true)");
            page.picture(&folder.join(name), 960, 900, scheme);
        }
    }
    let messages = page.console_messages();
    assert!(
        messages.iter().all(|message| message.contains("status of 422")),
        "only the rejected change: {messages:?}"
    );
}

/// `true` if all text in both panels has a contrast of at least 4.5 to its background, as WCAG 2.2 AA requires.
const CONTRAST: &str = include_str!("contrast.js");

/// Keys of the WebDriver protocol.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

#[test]
fn page_shows_rollouts() {
    let Some(driver) = start_driver() else { return };
    let pictures = env::var_os("UI_SCREENSHOT").map(PathBuf::from);
    let ready_delay = if pictures.is_some() { "2s" } else { "200ms" };
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let sandbox = start_sandbox("127.0.0.1:0", ready_delay, &kubeconfig);

    // `/` redirects browsers to the page.
    let page = Browser::open(&driver.address, &format!("http://{}/", sandbox.address));
    page.until("location.pathname === '/ui' && $('link').textContent === 'live'");
    page.until("$('empty-words').textContent.includes('No Deployments')");

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
    // The surge is used up, and the minimum number of pods is available.
    page.until("['max 13', 'avail. 8', 'min 8'].every(words => $('svg').textContent.includes(words))");
    if let Some(folder) = &pictures {
        page.picture(&folder.join("ui.png"), 1100, 960, "light");
        page.picture(&folder.join("ui-dark.png"), 1100, 960, "dark");
        page.picture(&folder.join("ui-narrow.png"), 400, 1500, "dark");
    }

    // Values of objects are never interpreted as markup.
    sandbox.call("POST", DEPLOYMENTS, &deployment("odd", MARKUP_IMAGE, 1));
    page.until("[...document.querySelectorAll('#list button')].find(one => one.textContent.includes('odd'))?.click() || $('name').textContent === 'default/odd'");
    page.until(
        "$('sets').textContent.includes('<img/src=x') && $('legend').textContent.includes('<img/src=x')",
    );
    page.until("document.querySelector('img') === null");

    // A deleted Deployment stays visible until another one is selected.
    sandbox.call("DELETE", "/apis/apps/v1/namespaces/default/deployments/odd", &json!({}));
    page.until("$('name').textContent === 'default/odd' && $('state').textContent === 'deleted'");
    page.until("document.querySelectorAll('#list button').length === 1");

    assert_eq!(page.console_messages(), Vec::<String>::new());

    // The page reconnects to a restarted server, which starts again from the first resource version.
    let address = sandbox.address.clone();
    drop(sandbox);
    page.until("$('link').textContent === 'API server unreachable'");
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

/// Process that serves HTTP. Killed on drop.
struct Program {
    process: Child,
    /// Host and port.
    address: String,
}

impl Program {
    /// Starts the process and waits for the line that contains its address. Returns `None` if it is not installed.
    fn start(command: &mut Command, address: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let mut process = match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{command:?}: {error}"),
        };
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| address(&line)).expect("no address in the output");
        // Drains the output, because a full pipe would block the process.
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

/// Browser window, controlled through the WebDriver protocol.
struct Browser {
    driver: String,
    session: String,
}

impl Browser {
    fn open(driver: &str, url: &str) -> Self {
        let arguments = [
            "--headless",
            // Chromium refuses to run as root with its sandbox.
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
        browser.execute("/timeouts", &json!({"script": 60_000}));
        browser.execute("/url", &json!({"url": url}));
        browser
    }

    fn execute(&self, command: &str, body: &Value) -> Value {
        let path = format!("/session/{}{command}", self.session);
        let answer = call(&self.driver, "POST", &path, "application/json", body);
        assert!(answer["value"]["error"].is_null(), "{command} {body}: {answer}");
        answer["value"].clone()
    }

    /// Waits until `condition` is true in the page.
    fn until(&self, condition: &str) {
        // A script instead of `eval` in the page, which its content security policy forbids.
        let script = format!(
            "const done = arguments[arguments.length - 1], began = Date.now();
             (function look() {{
               if ({condition}) done('');
               else if (Date.now() - began > 30000) done(document.body.innerText);
               else setTimeout(look, 20);
             }})();"
        );
        let shown = self.execute("/execute/async", &json!({"script": script, "args": []}));
        assert_eq!(shown, "", "{condition} did not become true; the page shows this");
    }

    /// Messages of the browser console: errors and violations of the content security policy.
    fn console_messages(&self) -> Vec<String> {
        let log = self.execute("/se/log", &json!({"type": "browser"}));
        log.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Sends keys to the element with the focus.
    fn keys(&self, keys: &str) {
        let pressed = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|action| json!({"type": action, "value": key.to_string()}))
        });
        let pressed: Vec<Value> = pressed.collect();
        self.execute(
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keyboard", "actions": pressed}]}),
        );
    }

    /// Role and name of an element in the accessibility tree.
    fn role_and_name(&self, selector: &str) -> (String, String) {
        let found = self.execute("/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        let get = |property: &str| {
            let path = format!("/session/{}/element/{id}/{property}", self.session);
            let answer = call(&self.driver, "GET", &path, "application/json", &Value::Null);
            answer["value"].as_str().unwrap_or_else(|| panic!("{selector}: {answer}")).to_owned()
        };
        (get("computedrole"), get("computedlabel"))
    }

    /// Sets the size and the colour scheme of the page.
    fn show(&self, width: u32, height: u32, scheme: &str) {
        let command = |cmd: &str, params: Value| {
            self.execute("/goog/cdp/execute", &json!({"cmd": cmd, "params": params}));
        };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        command("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        command("Emulation.setEmulatedMedia", scheme);
    }

    /// Writes a screenshot of the page to `file`.
    fn picture(&self, file: &Path, width: u32, height: u32, scheme: &str) {
        self.show(width, height, scheme);
        // The chart is redrawn with the next frame.
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
        // Ends Chromium, which otherwise outlives the driver.
        let path = format!("/session/{}", self.session);
        call(&self.driver, "DELETE", &path, "application/json", &Value::Null);
    }
}

/// Sends a request and returns the JSON response.
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
    // Not until the end of the stream: the driver keeps the connection open.
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
    let mut text = vec![0; length.expect("no content-length")];
    reader.read_exact(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

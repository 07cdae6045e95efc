//! Effects of the faults: start, end, and the counter that shows that a fault reached the manager.

use std::{fs, path::Path, time::Duration};

use kcm_client::Request;
use kcm_clock::Clock;
use kcm_stories::external::{Program, Signal};
use kcm_testkit::CertificateAuthority;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    catalogue::{Effect, Lasts},
    cgroup::ControlGroup,
    cluster::{MANAGER, not_running, server_identity, server_tls, write},
    dns::DnsServer,
    error::{SuiteError, failed},
    manager::dials_without_answer,
    measure::Tally,
    observer::Observer,
    proxy::{
        http::{Http, HttpProxy},
        tcp::Tcp,
    },
    scene::{NO_DIRECTORY, Scene},
};

/// Time without connections before etcd is compacted, and age of restored data.
const DISCONNECTED: Duration = Duration::from_secs(3);
const BACKUP_AGE: Duration = Duration::from_secs(5);
/// Flags of an API server on which a share of six gives a priority level two of 60 seats.
const FEW_SEATS: [&str; 2] = ["--max-requests-inflight=40", "--max-mutating-requests-inflight=20"];
const SHARES_OF_TWO_SEATS: u64 = 6;

impl Scene<'_> {
    /// Starts the fault. A single event has happened when this returns.
    pub(crate) async fn begin(&mut self) -> Result<(), SuiteError> {
        match self.fault.effect {
            Effect::Tcp(tcp) => self.tcp.set(tcp),
            Effect::Http(http) => self.set_http(http),
            Effect::DeadAddress => self.tcp.set(Tcp::NoDials),
            Effect::Dns => {
                self.set_dns_silent(true);
                self.tcp.close_connections();
            }
            Effect::Certificate => {
                let identity = server_identity(&self.cluster.authority);
                if let Some(http) = &self.http {
                    http.set_tls(server_tls(&identity)?);
                }
                self.tcp.close_connections();
            }
            Effect::Authority => {
                let authority = CertificateAuthority::new("beside-upstream-2");
                if let Some(http) = &self.http {
                    http.set_tls(server_tls(&server_identity(&authority))?);
                }
                write(&self.folder.join("ca.crt"), &authority.pem())?;
                self.tcp.close_connections();
            }
            Effect::ExecPlugin { .. } => write(&self.folder.join("hang"), "")?,
            Effect::Restart => self.restart().await?,
            Effect::EtcdStopped => self.signal_etcd(Signal::Stop)?,
            Effect::Compaction => {
                self.tcp.set(Tcp::NoDials);
                self.cluster.clock.sleep(DISCONNECTED).await;
                self.compact().await?;
                self.restart().await?;
            }
            Effect::Restore => self.restore().await?,
            Effect::WithoutWatchList => {
                self.cluster.restart_with(&["--feature-gates=WatchList=false"]).await?;
            }
            Effect::TwoSeats => {
                self.cluster.restart_with(&FEW_SEATS).await?;
                self.create_priority_level().await?;
            }
            Effect::Admission(admission) => self.begin_admission(admission).await?,
            Effect::Stop => self.signal(Signal::Stop).await,
            Effect::Terminate => self.signal(Signal::Terminate).await,
            Effect::Kill => self.signal(Signal::Kill).await,
            Effect::CpuQuota(percent) => self.limit_cpu(Some(percent))?,
            Effect::Memory(mebibytes) => {
                if let Some(group) = &self.group {
                    group.limit_memory(mebibytes << 20)?;
                }
            }
            // The launch has these effects.
            Effect::Descriptors(_) | Effect::CertificateDirectory | Effect::Client(_) => {}
            Effect::Partition => self.tcp.set(Tcp::Freeze),
        }
        Ok(())
    }

    /// Ends the fault.
    pub(crate) async fn end(&mut self) -> Result<(), SuiteError> {
        match self.fault.effect {
            Effect::Tcp(_) | Effect::DeadAddress | Effect::Compaction | Effect::Partition => {
                self.tcp.set(Tcp::Pass);
            }
            Effect::Http(_) => self.set_http(Http::Pass),
            Effect::Dns => self.set_dns_silent(false),
            Effect::ExecPlugin { .. } => {
                let file = self.folder.join("hang");
                fs::remove_file(&file).map_err(failed(file.display().to_string()))?;
            }
            Effect::EtcdStopped => self.signal_etcd(Signal::Continue)?,
            Effect::WithoutWatchList | Effect::TwoSeats => {
                self.delete_objects().await?;
                self.cluster.restart_with(&[]).await?;
            }
            Effect::Admission(_) => self.delete_objects().await?,
            Effect::Stop => self.signal(Signal::Continue).await,
            Effect::CpuQuota(_) => self.limit_cpu(None)?,
            Effect::Certificate
            | Effect::Authority
            | Effect::Restart
            | Effect::Restore
            | Effect::Terminate
            | Effect::Kill
            | Effect::Memory(_)
            | Effect::Descriptors(_)
            | Effect::CertificateDirectory
            | Effect::Client(_) => {}
        }
        Ok(())
    }

    /// Counts the effects of the fault on the manager that are only visible while it lasts.
    pub(crate) async fn sample(&mut self) {
        let Some(manager) = self.manager.as_ref() else { return };
        let Some(process) = manager.id().await else { return };
        match self.fault.effect {
            Effect::Tcp(Tcp::NoDials) | Effect::DeadAddress => {
                self.events = self.events.max(dials_without_answer(process, self.tcp.address().port()));
            }
            Effect::Descriptors(number) => {
                let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
                let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
                let limit = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
                self.events = self.events.max(u64::from(limit == Some(number)));
            }
            _ => {}
        }
    }

    /// Counter that shows that the fault reached the manager.
    pub(crate) async fn reached(&self, tally: &Tally, observer: &Observer) -> u64 {
        let manager = self.manager.as_ref();
        match self.fault.effect {
            Effect::Tcp(_) | Effect::DeadAddress => self.tcp.affected() + self.events,
            Effect::Certificate | Effect::Authority | Effect::Partition => self.tcp.affected(),
            Effect::Http(_) => self.http.as_ref().map_or(0, HttpProxy::affected),
            Effect::Dns => self.dns.as_ref().map_or(0, DnsServer::unanswered),
            Effect::ExecPlugin { .. } => {
                let calls = fs::read_to_string(self.folder.join("hung")).unwrap_or_default();
                calls.lines().count() as u64
            }
            Effect::Restart | Effect::Restore => self.tcp.lost(),
            Effect::Compaction => self.tcp.affected().min(self.events),
            Effect::EtcdStopped => tally.failed,
            Effect::WithoutWatchList => tally.lists,
            Effect::TwoSeats => self.events,
            Effect::Admission(admission) => self.admission_reached(admission, tally, observer),
            Effect::Stop | Effect::Terminate | Effect::Kill => match manager {
                Some(manager) => manager.record().await.signals,
                None => 0,
            },
            Effect::CpuQuota(_) | Effect::Memory(_) => self.group.as_ref().map_or(0, ControlGroup::affected),
            Effect::Descriptors(_) | Effect::Client(_) => self.events,
            Effect::CertificateDirectory => match manager {
                Some(manager) => manager.logged(NO_DIRECTORY).await,
                None => 0,
            },
        }
    }

    fn set_http(&self, http: Http) {
        if let Some(proxy) = &self.http {
            proxy.set(http);
        }
    }

    fn set_dns_silent(&self, silent: bool) {
        if let Some(dns) = &self.dns {
            dns.set_silent(silent);
        }
    }

    fn limit_cpu(&self, percent: Option<u64>) -> Result<(), SuiteError> {
        self.group.as_ref().map_or(Ok(()), |group| group.limit_cpu(percent))
    }

    async fn signal(&self, signal: Signal) {
        if let Some(manager) = &self.manager {
            manager.signal(signal).await;
        }
    }

    fn signal_etcd(&mut self, signal: Signal) -> Result<(), SuiteError> {
        let etcd: Option<&Program> = self.cluster.plane()?.etcd();
        etcd.ok_or_else(|| not_running("etcd"))?.signal(signal);
        Ok(())
    }

    /// Kills the API server and starts it.
    async fn restart(&mut self) -> Result<(), SuiteError> {
        let plane = self.cluster.plane()?;
        plane.kill_server().await?;
        plane.start_server()?;
        self.cluster.ready().await
    }

    /// Compacts etcd at the current revision.
    async fn compact(&mut self) -> Result<(), SuiteError> {
        let list = self.cluster.api.send(&Request::get("/api/v1/namespaces?limit=1")).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let body = json!({"revision": list["metadata"]["resourceVersion"]}).to_string();
        let address = self.cluster.plane()?.etcd_url().trim_start_matches("http://").to_owned();
        let answer = post(&address, "/v3/kv/compaction", &body).await.map_err(failed("etcd"))?;
        self.events += u64::from(answer.starts_with("HTTP/1.1 200"));
        Ok(())
    }

    /// Copies the data of etcd, and restarts etcd with the copy after [`BACKUP_AGE`].
    async fn restore(&mut self) -> Result<(), SuiteError> {
        let data = self.cluster.plane()?.etcd_folder();
        let backup = self.folder.join("backup");
        self.signal_etcd(Signal::Stop)?;
        copy(&data, &backup)?;
        self.signal_etcd(Signal::Continue)?;
        self.cluster.clock.sleep(BACKUP_AGE).await;
        let plane = self.cluster.plane()?;
        plane.kill_server().await?;
        plane.kill_etcd().await?;
        fs::remove_dir_all(&data).map_err(failed(data.display().to_string()))?;
        copy(&backup, &data)?;
        let plane = self.cluster.plane()?;
        plane.start_etcd()?;
        plane.start_server()?;
        self.cluster.ready().await
    }

    async fn create_priority_level(&mut self) -> Result<(), SuiteError> {
        const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": self.name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": SHARES_OF_TWO_SEATS,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 16, "handSize": 4, "queueLengthLimit": 50,
                }},
            }},
        });
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": self.name},
            "spec": {
                "matchingPrecedence": 50,
                "priorityLevelConfiguration": {"name": self.name},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": MANAGER}}],
                    "resourceRules": [{
                        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                        "clusterScope": true,
                    }],
                }],
            },
        });
        self.create(&format!("{GROUP}/prioritylevelconfigurations"), &level).await?;
        self.create(&format!("{GROUP}/flowschemas"), &schema).await
    }

    /// Number of requests that the priority level of the run has dispatched.
    pub(crate) async fn count_dispatched(&mut self) -> Result<(), SuiteError> {
        if self.fault.effect != Effect::TwoSeats {
            return Ok(());
        }
        let metrics = self.cluster.api.send(&Request::get("/metrics")).await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let level = format!("priority_level=\"{}\"", self.name);
        let own = metrics.lines().filter(|line| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total") && line.contains(&level)
        });
        let count = own.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        self.events = count.sum::<f64>() as u64;
        Ok(())
    }

    /// Creates an object of the fault. It is deleted at the end.
    pub(crate) async fn create(&mut self, path: &str, object: &Value) -> Result<(), SuiteError> {
        self.cluster.create(path, object).await?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.objects.push(format!("{path}/{name}"));
        Ok(())
    }

    async fn delete_objects(&mut self) -> Result<(), SuiteError> {
        for path in std::mem::take(&mut self.objects) {
            self.cluster.delete(&path).await?;
        }
        Ok(())
    }

    /// `true` if the fault begins before the manager.
    pub(crate) fn is_throughout(&self) -> bool {
        self.fault.lasts == Lasts::Throughout
    }
}

/// Sends a POST request with a JSON body. Returns the response.
async fn post(address: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) -> Result<(), SuiteError> {
    let error = |path: &Path| failed(path.display().to_string());
    fs::create_dir_all(to).map_err(error(to))?;
    for entry in fs::read_dir(from).map_err(error(from))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(error(&source))?;
        }
    }
    Ok(())
}

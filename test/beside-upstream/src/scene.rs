//! Surroundings of a manager during a run: proxies, files, webhooks.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    catalogue::{Effect, Fault},
    cgroup::ControlGroup,
    cluster::{Cluster, HOST, MANAGER, server_identity, server_tls, write},
    dns::DnsServer,
    error::{SuiteError, failed},
    manager::{Launch, Manager},
    proxy::{http::HttpProxy, tcp::TcpProxy},
    webhook::Webhook,
    workload::Scale,
};

/// Second address of the name of the API server.
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A directory that root cannot create.
pub(crate) const NO_DIRECTORY: &str = "/proc/beside-upstream";

/// Surroundings of a run.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) fault: &'static Fault,
    scale: Scale,
    /// Namespace of the workload. Also the name of the Lease and of the objects of the fault.
    pub(crate) name: String,
    /// Files of the run.
    pub(crate) folder: PathBuf,
    pub(crate) tcp: TcpProxy,
    /// Proxy of the second address, or of the second manager.
    pub(crate) second: Option<TcpProxy>,
    pub(crate) http: Option<HttpProxy>,
    pub(crate) dns: Option<DnsServer>,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) group: Option<ControlGroup>,
    /// Secure port of the manager.
    pub(crate) secure: Option<SocketAddr>,
    pub(crate) manager: Option<Manager>,
    pub(crate) standby: Option<Manager>,
    /// Counter of effects that are not counted elsewhere.
    pub(crate) events: u64,
    /// Paths of the objects of the fault.
    pub(crate) objects: Vec<String>,
}

impl<'a> Scene<'a> {
    /// Starts the proxies and writes the files.
    pub(crate) async fn new(
        cluster: &'a mut Cluster,
        fault: &'static Fault,
        scale: Scale,
    ) -> Result<Self, SuiteError> {
        let name = format!("beside-{}", cluster.next_run());
        let folder = cluster.folder().join(&name);
        fs::create_dir_all(&folder).map_err(failed(folder.display().to_string()))?;
        write(&folder.join("ca.crt"), &cluster.authority.pem())?;
        let http = if fault.effect.needs_http_proxy() || cluster.is_embedded() {
            let tls = server_tls(&server_identity(&cluster.authority))?;
            Some(HttpProxy::start(cluster.backend()?, tls).await?)
        } else {
            None
        };
        let behind = http.as_ref().map_or_else(|| cluster.address(), |http| Ok(http.address()))?;
        let tcp = TcpProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), behind)?;
        let second = match fault.effect {
            Effect::DeadAddress => {
                let address = SocketAddr::from((SECOND, tcp.address().port()));
                Some(TcpProxy::start(address, behind)?)
            }
            Effect::Partition => Some(TcpProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), behind)?),
            _ => None,
        };
        let dns = match fault.effect {
            Effect::Dns => Some(DnsServer::start().await?),
            _ => None,
        };
        let group = match fault.effect {
            Effect::CpuQuota(_) => Some(ControlGroup::new("cpu", &name)?),
            Effect::Memory(_) => Some(ControlGroup::new("memory", &name)?),
            _ => None,
        };
        let secure = match fault.effect {
            Effect::Client(_) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?))),
            _ => None,
        };
        let (webhook, manager, standby) = (None, None, None);
        let objects = Vec::new();
        Ok(Self {
            cluster,
            fault,
            scale,
            name,
            folder,
            tcp,
            second,
            http,
            dns,
            webhook,
            group,
            secure,
            manager,
            standby,
            events: 0,
            objects,
        })
    }

    /// Starts a manager behind the first proxy, or as the standby behind the second.
    pub(crate) fn start(&self, program: &Path, log: &Path, is_standby: bool) -> Result<Manager, SuiteError> {
        let proxy = self.second.as_ref().filter(|_| is_standby).unwrap_or(&self.tcp);
        let kubeconfig = self.kubeconfig(proxy.address().port(), is_standby)?;
        let kubeconfig = kubeconfig.display();
        let mut flags = vec![
            format!("--kubeconfig={kubeconfig}"),
            "--controllers=deployment-controller,replicaset-controller".to_owned(),
            format!("--kube-api-qps={}", self.scale.qps),
            format!("--kube-api-burst={}", self.scale.qps),
            format!("--leader-elect-resource-name={}", self.name),
            "-v=2".to_owned(),
        ];
        if self.fault.effect == Effect::CertificateDirectory {
            flags.push(format!("--authentication-kubeconfig={kubeconfig}"));
            flags.push(format!("--authorization-kubeconfig={kubeconfig}"));
            flags.push(format!("--secure-port={}", free_port()?));
            flags.push(format!("--cert-dir={NO_DIRECTORY}"));
        } else if let Some(secure) = self.secure {
            let (authority, folder) = (self.folder.join("ca.crt"), self.folder.display());
            let authority = authority.display();
            flags.push(format!("--authentication-kubeconfig={kubeconfig}"));
            flags.push(format!("--authorization-kubeconfig={kubeconfig}"));
            flags.push(format!("--client-ca-file={authority}"));
            flags.push(format!("--requestheader-client-ca-file={authority}"));
            flags.push(format!("--bind-address={}", secure.ip()));
            flags.push(format!("--secure-port={}", secure.port()));
            flags.push(format!("--cert-dir={folder}/certificates"));
        } else {
            flags.push("--secure-port=0".to_owned());
        }
        let mut setup = Vec::new();
        match self.fault.effect {
            Effect::DeadAddress => {
                let hosts = format!("127.0.0.1 localhost\n127.0.0.1 {HOST}\n{SECOND} {HOST}\n");
                setup.push(self.mount("hosts", &hosts)?);
            }
            Effect::Dns => {
                if let Some(dns) = &self.dns {
                    setup.push(self.mount("resolv.conf", &format!("nameserver {}\n", dns.address()))?);
                }
            }
            Effect::Descriptors(number) => setup.push(format!("ulimit -n {number}")),
            _ => {}
        }
        setup.extend(self.group.as_ref().map(ControlGroup::join));
        let own_mounts = matches!(self.fault.effect, Effect::DeadAddress | Effect::Dns);
        let launch = Launch { program: program.to_owned(), flags, setup, own_mounts, log: log.to_owned() };
        Manager::start(launch, self.cluster.clock.clone())
    }

    /// Writes a file in `/etc` of the manager. Returns the command that mounts it.
    fn mount(&self, name: &str, text: &str) -> Result<String, SuiteError> {
        let file = self.folder.join(name);
        write(&file, text)?;
        Ok(format!("mount --bind {} /etc/{name}", file.display()))
    }

    fn kubeconfig(&self, port: u16, is_standby: bool) -> Result<PathBuf, SuiteError> {
        let host = match self.fault.effect {
            Effect::DeadAddress | Effect::Dns => HOST,
            _ => "127.0.0.1",
        };
        let user = match self.fault.effect {
            Effect::ExecPlugin { seconds } => json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": self.exec_plugin(seconds)?,
                "interactiveMode": "Never",
            }}),
            _ => json!({"token": format!("{MANAGER}token")}),
        };
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {
                "server": format!("https://{host}:{port}"),
                "certificate-authority": self.folder.join("ca.crt"),
            }}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        let path = self.folder.join(if is_standby { "standby.kubeconfig" } else { "manager.kubeconfig" });
        write(&path, &kubeconfig.to_string())?;
        Ok(path)
    }

    /// Writes an exec plugin that does not return while the file `hang` exists.
    fn exec_plugin(&self, seconds: i64) -> Result<PathBuf, SuiteError> {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = self.folder.display();
        let script = format!(
            "#!/bin/sh\n\
             [ -e {folder}/hang ] && echo call >> {folder}/hung\n\
             while [ -e {folder}/hang ]; do sleep 0.2; done\n\
             until=$(date -u -d '+{seconds} seconds' +%Y-%m-%dT%H:%M:%SZ)\n\
             echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"{MANAGER}token\",\"expirationTimestamp\":\"'$until'\"}}}}'\n"
        );
        let path = self.folder.join("plugin");
        write(&path, &script)?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, executable).map_err(failed(path.display().to_string()))?;
        Ok(path)
    }
}

fn free_port() -> Result<u16, SuiteError> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("free port"))?;
    Ok(listener.local_addr().map_err(failed("free port"))?.port())
}

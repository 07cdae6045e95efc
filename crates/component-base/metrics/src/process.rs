//! Process metrics (`process_*`) from `/proc`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Counter, Gauge, Registry, Spec, Stability::Unmarked};

/// Help text of `process_start_time_seconds`.
pub(crate) const START_TIME_HELP: &str = "Start time of the process, in seconds since 1970.";

/// Process metrics, updated at each scrape. Linux only, as upstream.
///
/// Upstream counterpart: `collectors.NewProcessCollector`.
#[derive(Debug)]
pub struct ProcessMetrics {
    proc: PathBuf,
    auxiliary: Auxiliary,
    cpu: Arc<Counter>,
    max_fds: Arc<Gauge>,
    open_fds: Arc<Gauge>,
    resident: Arc<Gauge>,
    virtual_: Arc<Gauge>,
    virtual_max: Arc<Gauge>,
    received: Arc<Counter>,
    transmitted: Arc<Counter>,
}

/// Values of the auxiliary vector, `/proc/self/auxv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Auxiliary {
    page_size: u64,
    ticks_per_second: u64,
}

impl ProcessMetrics {
    /// Registers the metrics. Without `/proc`, none are registered.
    pub fn register(registry: &Registry) {
        if let Some(metrics) = Self::new(registry, "/proc") {
            registry.on_scrape(Box::new(move || {
                metrics.refresh();
                true
            }));
        }
    }

    /// Registers the metrics of the `proc` file system. `None` if it cannot be read.
    fn new(registry: &Registry, proc: impl Into<PathBuf>) -> Option<Self> {
        let proc = proc.into();
        let auxiliary = Auxiliary::read(&fs::read(proc.join("self/auxv")).ok()?)?;
        let start = read_start_time(&proc, auxiliary)?;
        let gauge = |name, help| registry.metric::<Gauge, 0>(Spec::upstream(name, Unmarked, [], help)).only();
        let counter =
            |name, help| registry.metric::<Counter, 0>(Spec::upstream(name, Unmarked, [], help)).only();
        gauge("process_start_time_seconds", START_TIME_HELP).set(start);
        let this = Self {
            auxiliary,
            cpu: counter("process_cpu_seconds_total", "User and system CPU time of the process, in seconds."),
            max_fds: gauge("process_max_fds", "Maximum number of open file descriptors."),
            open_fds: gauge("process_open_fds", "Number of open file descriptors."),
            resident: gauge("process_resident_memory_bytes", "Resident memory size, in bytes."),
            virtual_: gauge("process_virtual_memory_bytes", "Virtual memory size, in bytes."),
            virtual_max: gauge("process_virtual_memory_max_bytes", "Maximum virtual memory size, in bytes."),
            received: counter(
                "process_network_receive_bytes_total",
                "Bytes received by the network namespace of the process.",
            ),
            transmitted: counter(
                "process_network_transmit_bytes_total",
                "Bytes sent by the network namespace of the process.",
            ),
            proc,
        };
        this.refresh();
        Some(this)
    }

    /// Reads all values. A value that cannot be read does not change.
    fn refresh(&self) {
        let own = self.proc.join("self");
        let Auxiliary { page_size, ticks_per_second } = self.auxiliary;
        if let Some(stat) = read(own.join("stat")).as_deref().and_then(Stat::parse) {
            self.cpu.set_total(stat.cpu_ticks as f64 / ticks_per_second as f64);
            self.resident.set((stat.resident_pages * page_size) as f64);
            self.virtual_.set(stat.virtual_bytes as f64);
        }
        if let Ok(open) = fs::read_dir(own.join("fd")) {
            self.open_fds.set(open.count() as f64);
        }
        if let Some(limits) = read(own.join("limits")) {
            set(&self.max_fds, limit(&limits, "Max open files"));
            set(&self.virtual_max, limit(&limits, "Max address space"));
        }
        if let Some(network) = read(own.join("net/netstat")) {
            for (counter, name) in [(&self.received, "InOctets"), (&self.transmitted, "OutOctets")] {
                if let Some(octets) = ip_extension(&network, name) {
                    counter.set_total(octets as f64);
                }
            }
        }
    }
}

/// Start time of the process, in seconds since 1970.
pub(crate) fn start_time(proc: impl Into<PathBuf>) -> Option<f64> {
    let proc = proc.into();
    read_start_time(&proc, Auxiliary::read(&fs::read(proc.join("self/auxv")).ok()?)?)
}

fn read_start_time(proc: &Path, auxiliary: Auxiliary) -> Option<f64> {
    let stat = Stat::parse(&read(proc.join("self/stat"))?)?;
    let boot: u64 = read(proc.join("stat"))?
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse().ok())?;
    Some(boot as f64 + stat.start_ticks as f64 / auxiliary.ticks_per_second as f64)
}

fn read(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn set(gauge: &Gauge, value: Option<f64>) {
    if let Some(value) = value {
        gauge.set(value);
    }
}

impl Auxiliary {
    /// Parses pairs of machine words: key and value. Replaces `sysconf`, which requires unsafe code.
    fn read(bytes: &[u8]) -> Option<Self> {
        const PAGE_SIZE: usize = 6;
        const TICKS_PER_SECOND: usize = 17;
        const WORD: usize = size_of::<usize>();
        let words: Vec<usize> = bytes
            .chunks_exact(WORD)
            .filter_map(|word| word.try_into().ok().map(usize::from_ne_bytes))
            .collect();
        let find = |wanted| {
            let mut pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            pairs.find(|(key, value)| *key == wanted && *value > 0).map(|(_, value)| value as u64)
        };
        Some(Self { page_size: find(PAGE_SIZE)?, ticks_per_second: find(TICKS_PER_SECOND)? })
    }
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses. The name may contain parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) numbers the fields from 1. `fields` starts at the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Soft limit called `name`. As in Go, no limit is `u64::MAX`.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse::<u64>().ok().map(|number| number as f64),
    }
}

/// Number in the `IpExt` lines. The first line has the names, the second the numbers.
fn ip_extension(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let index = names.split_ascii_whitespace().position(|found| found == name)?;
    numbers.split_ascii_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricsOptions;

    #[test]
    fn program_name_may_contain_parentheses() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 8 0 12345 1048576 256 \
                    18446744073709551615 1 1 0";
        let expected =
            Stat { cpu_ticks: 300, start_ticks: 12345, virtual_bytes: 1_048_576, resident_pages: 256 };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn reads_soft_limits() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 524288               files\n\
                    Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(text, "Max open files"), Some(1024.0));
        assert_eq!(limit(text, "Max address space"), Some(18_446_744_073_709_551_615.0));
        assert_eq!(limit(text, "Max unknown"), None);
    }

    #[test]
    fn finds_octets_by_name() {
        let text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 70 80\n";
        assert_eq!((ip_extension(text, "InOctets"), ip_extension(text, "OutOctets")), (Some(70), Some(80)));
        assert_eq!(ip_extension("IpExt: InOctets\n", "InOctets"), None);
    }

    #[test]
    fn no_metrics_without_proc() {
        let registry = Registry::new(&MetricsOptions::default());
        assert!(ProcessMetrics::new(&registry, "/nowhere").is_none());
        assert_eq!(registry.definitions(), []);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn reads_this_process() {
        let registry = Registry::new(&MetricsOptions::default());
        let process = ProcessMetrics::new(&registry, "/proc").unwrap();
        assert!(process.open_fds.get() >= 3.0 && process.max_fds.get() >= process.open_fds.get());
        assert!(process.resident.get() > 100_000.0);
        assert!(process.virtual_.get() >= process.resident.get());
        assert!(process.virtual_max.get() >= process.virtual_.get());
        // After 2020.
        assert!(start_time("/proc").unwrap() > 1_577_836_800.0);
    }
}

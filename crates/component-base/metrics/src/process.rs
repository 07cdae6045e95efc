//! `process_*`: what the kernel tells of this process.

use std::{fs, path::PathBuf, sync::Arc};

use crate::{Counter, Gauge, Registry, Spec, Stability::Unmarked};

/// Shows what the kernel tells, which is Linux's only. Elsewhere there are no such metrics, as upstream.
#[derive(Debug)]
pub(crate) struct Process {
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

/// What the kernel tells each program when it starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Auxiliary {
    page_size: u64,
    ticks_per_second: u64,
}

impl Process {
    /// None where `proc`, usually `/proc`, tells nothing of this process. Does not block: these are no files on a disk.
    pub(crate) fn new(registry: &Registry, proc: impl Into<PathBuf>) -> Option<Self> {
        let proc = proc.into();
        let auxiliary = Auxiliary::read(&fs::read(proc.join("self/auxv")).ok()?)?;
        let start = start_time(&proc, auxiliary)?;
        let gauge = |name, help| registry.metric::<Gauge, 0>(Spec::upstream(name, Unmarked, [], help)).only();
        let counter =
            |name, help| registry.metric::<Counter, 0>(Spec::upstream(name, Unmarked, [], help)).only();
        gauge("process_start_time_seconds", "When the process started, in seconds since 1970.").set(start);
        let this = Self {
            auxiliary,
            cpu: counter(
                "process_cpu_seconds_total",
                "Time that processors spent on the process, in seconds.",
            ),
            max_fds: gauge("process_max_fds", "How many file descriptors the process may have open."),
            open_fds: gauge("process_open_fds", "How many file descriptors the process has open."),
            resident: gauge(
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM, in bytes.",
            ),
            virtual_: gauge(
                "process_virtual_memory_bytes",
                "Addresses that the process has in use, in bytes.",
            ),
            virtual_max: gauge(
                "process_virtual_memory_max_bytes",
                "Addresses that the process may have in use, in bytes.",
            ),
            received: counter(
                "process_network_receive_bytes_total",
                "Bytes that came over the network of the process, which may be that of others, too.",
            ),
            transmitted: counter(
                "process_network_transmit_bytes_total",
                "Bytes that went over the network of the process, which may be that of others, too.",
            ),
            proc,
        };
        this.refresh();
        Some(this)
    }

    /// Reads it all anew. What cannot be read stays as it was.
    pub(crate) fn refresh(&self) {
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

/// When the process started, in seconds since 1970.
pub(crate) fn started(proc: impl Into<PathBuf>) -> Option<f64> {
    let proc = proc.into();
    start_time(&proc, Auxiliary::read(&fs::read(proc.join("self/auxv")).ok()?)?)
}

fn start_time(proc: &std::path::Path, auxiliary: Auxiliary) -> Option<f64> {
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
    /// Reads pairs of machine words: what it is, and its value. It is here that a program without `sysconf` finds
    /// them.
    fn read(bytes: &[u8]) -> Option<Self> {
        const PAGE_SIZE: usize = 6;
        const TICKS_PER_SECOND: usize = 17;
        const WORD: usize = size_of::<usize>();
        let words: Vec<usize> = bytes
            .chunks_exact(WORD)
            .filter_map(|word| word.try_into().ok().map(usize::from_ne_bytes))
            .collect();
        let find = |what| {
            let mut pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            pairs.find(|(key, value)| *key == what && *value > 0).map(|(_, value)| value as u64)
        };
        Some(Self { page_size: find(PAGE_SIZE)?, ticks_per_second: find(TICKS_PER_SECOND)? })
    }
}

/// What is read of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, and may hold anything, even a parenthesis.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Counted from the third field, as proc(5) counts from the first.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// The soft limit called `name`. Go shows no limit as the highest number that 64 bits hold.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse::<u64>().ok().map(|number| number as f64),
    }
}

/// A number of the `IpExt` lines: one has the names, the next the numbers.
fn ip_extension(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|found| found == name)?;
    numbers.split_ascii_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricsOptions;

    #[test]
    fn stat_of_a_program_with_an_odd_name_is_read_all_the_same() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 8 0 12345 1048576 256 \
                    18446744073709551615 1 1 0";
        let expected =
            Stat { cpu_ticks: 300, start_ticks: 12345, virtual_bytes: 1_048_576, resident_pages: 256 };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn limits_are_soft_and_may_be_none() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 524288               files\n\
                    Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(text, "Max open files"), Some(1024.0));
        assert_eq!(limit(text, "Max address space"), Some(18_446_744_073_709_551_615.0));
        assert_eq!(limit(text, "Max cake"), None);
    }

    #[test]
    fn octets_are_found_by_the_names_in_the_line_before() {
        let text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 70 80\n";
        assert_eq!((ip_extension(text, "InOctets"), ip_extension(text, "OutOctets")), (Some(70), Some(80)));
        assert_eq!(ip_extension("IpExt: InOctets\n", "InOctets"), None);
    }

    #[test]
    fn process_where_nothing_is_told_has_no_metrics() {
        let registry = Registry::new(&MetricsOptions::default());
        assert!(Process::new(&registry, "/nowhere").is_none());
        assert_eq!(registry.definitions(), []);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_of_this_test_is_told_by_the_kernel() {
        let registry = Registry::new(&MetricsOptions::default());
        let process = Process::new(&registry, "/proc").unwrap();
        assert!(process.open_fds.get() >= 3.0 && process.max_fds.get() >= process.open_fds.get());
        assert!(process.resident.get() > 100_000.0);
        assert!(process.virtual_.get() >= process.resident.get());
        assert!(process.virtual_max.get() >= process.virtual_.get());
        // After 2020.
        assert!(started("/proc").unwrap() > 1_577_836_800.0);
    }
}

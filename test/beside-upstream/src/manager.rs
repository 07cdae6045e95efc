//! Process of a manager, restarted as the kubelet does.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use kcm_stories::external::{Program, Signal};

use tokio::{sync::Mutex, task::JoinSet};

use crate::error::SuiteError;

/// Interval of checks of the process.
const INTERVAL: Duration = Duration::from_millis(100);

/// Delay before the second restart in a row. It doubles, up to [`MAX_BACKOFF`]. The first restart has no delay.
const BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Program to run and its surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// The program.
    pub(crate) program: PathBuf,
    /// Flags.
    pub(crate) flags: Vec<String>,
    /// Shell commands before the program starts in the same process. Empty if there are none.
    pub(crate) setup: Vec<String>,
    /// `true` if the process has its own mounts.
    pub(crate) own_mounts: bool,
    /// Log of all its processes.
    pub(crate) log: PathBuf,
}

/// Exit of a process.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    pub(crate) at: Duration,
    pub(crate) status: String,
}

/// Record of the processes of a manager.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    pub(crate) exits: Vec<Exit>,
    /// Largest resident memory of all processes, in bytes.
    pub(crate) peak_memory: u64,
    /// Signals that were sent.
    pub(crate) signals: u64,
}

/// Manager whose process is restarted when it exits. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Manager {
    processes: Arc<Mutex<Processes>>,
    _task: JoinSet<()>,
}

#[derive(Debug)]
struct Processes {
    launch: Launch,
    running: Option<Program>,
    clock: RealClock,
    /// Time of the next start.
    restart_at: Duration,
    record: Record,
}

impl Manager {
    pub(crate) fn start(launch: Launch, clock: RealClock) -> Result<Self, SuiteError> {
        let mut processes = Processes {
            launch,
            running: None,
            clock: clock.clone(),
            restart_at: Duration::ZERO,
            record: Record::default(),
        };
        processes.spawn()?;
        let processes = Arc::new(Mutex::new(processes));
        let shared = Arc::clone(&processes);
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The program was started before, so it can be started again.
            while shared.lock().await.check().await.is_ok() {
                clock.sleep(INTERVAL).await;
            }
        });
        Ok(Self { processes, _task: task })
    }

    /// Sends a signal to the process, if it runs.
    pub(crate) async fn signal(&self, signal: Signal) {
        let mut processes = self.processes.lock().await;
        if let Some(running) = &processes.running {
            running.signal(signal);
            processes.record.signals += 1;
        }
    }

    /// Process ID, if the process runs.
    pub(crate) async fn id(&self) -> Option<u32> {
        self.processes.lock().await.running.as_ref().and_then(Program::id)
    }

    /// Record so far.
    pub(crate) async fn record(&self) -> Record {
        self.processes.lock().await.record.clone()
    }

    /// Number of lines of the log that contain `text`.
    pub(crate) async fn logged(&self, text: &str) -> u64 {
        let log = fs::read(&self.processes.lock().await.launch.log).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().filter(|line| line.contains(text)).count() as u64
    }

    /// Kills the process.
    pub(crate) async fn kill(self) -> Result<(), SuiteError> {
        let running = self.processes.lock().await.running.take();
        drop(self);
        match running {
            Some(running) => Ok(running.kill(Duration::from_secs(20)).await?),
            None => Ok(()),
        }
    }
}

impl Processes {
    fn spawn(&mut self) -> Result<(), SuiteError> {
        let Launch { program, flags, setup, own_mounts, log } = &self.launch;
        let mut script = setup.clone();
        // The process replaces the shell and keeps its ID.
        script.push("exec \"$0\" \"$@\"".to_owned());
        let mut words = vec!["-c".to_owned(), script.join(" && "), program.display().to_string()];
        words.extend(flags.iter().cloned());
        let shell = if *own_mounts {
            words.splice(0..0, ["--mount".to_owned(), "sh".to_owned()]);
            "unshare"
        } else {
            "sh"
        };
        self.running = Some(Program::run("the manager", shell.as_ref(), &words, log)?);
        Ok(())
    }

    /// Records the memory, and an exit. Restarts the process when it is time.
    async fn check(&mut self) -> Result<(), SuiteError> {
        let now = self.clock.monotonic();
        if let Some(running) = &mut self.running {
            let memory = running.id().and_then(peak_memory).unwrap_or_default();
            self.record.peak_memory = self.record.peak_memory.max(memory);
            if running.check_running().is_err() {
                let status = running.end(Duration::from_secs(1)).await?;
                let delay = match self.record.exits.len() {
                    0 => Duration::ZERO,
                    earlier => BACKOFF.saturating_mul(1 << (earlier - 1).min(5)).min(MAX_BACKOFF),
                };
                self.record.exits.push(Exit { at: now, status: status.to_string() });
                (self.running, self.restart_at) = (None, now + delay);
            }
        }
        if self.running.is_none() && now >= self.restart_at {
            self.spawn()?;
        }
        Ok(())
    }
}

/// Largest resident memory of a process so far, in bytes.
fn peak_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(kilobytes.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Number of sockets of a process's network that wait for the answer to a SYN to `port`.
pub(crate) fn dials_without_answer(process: u32, port: u16) -> u64 {
    const SYN_SENT: &str = "02";
    let waits = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let remote = fields.next().and_then(|remote| remote.rsplit(':').next());
        remote.and_then(|port| u16::from_str_radix(port, 16).ok()) == Some(port)
            && fields.next() == Some(SYN_SENT)
    };
    let count = |file: &str| {
        let table = Path::new("/proc").join(process.to_string()).join("net").join(file);
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().filter(|line| waits(line)).count() as u64
    };
    count("tcp") + count("tcp6")
}

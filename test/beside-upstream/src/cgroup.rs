//! Control groups, version 1 or 2.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

use crate::error::{SuiteError, failed};

/// Mount point of the control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// Period of a CPU quota in microseconds.
const PERIOD: u64 = 100_000;

/// Control group with a limit for the process that joins it. Removed on drop.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: PathBuf,
    is_v2: bool,
}

impl ControlGroup {
    /// Creates a group of a controller: `cpu` or `memory`. Requires root.
    pub(crate) fn new(controller: &str, name: &str) -> Result<Self, SuiteError> {
        let is_v2 = Path::new(ROOT).join("cgroup.controllers").exists();
        let parent = if is_v2 { PathBuf::from(ROOT) } else { Path::new(ROOT).join(controller) };
        let folder = parent.join(format!("beside-upstream-{}-{name}", process::id()));
        fs::create_dir_all(&folder).map_err(failed(folder.display().to_string()))?;
        Ok(Self { folder, is_v2 })
    }

    /// Limits the memory.
    pub(crate) fn limit_memory(&self, bytes: u64) -> Result<(), SuiteError> {
        let name = if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        self.write(name, &bytes.to_string())
    }

    /// Limits the CPU time to a percentage of one processor. `None` removes the limit.
    pub(crate) fn limit_cpu(&self, percent: Option<u64>) -> Result<(), SuiteError> {
        let quota = percent.map(|percent| PERIOD * percent / 100);
        if self.is_v2 {
            let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            return self.write("cpu.max", &format!("{quota} {PERIOD}"));
        }
        self.write("cpu.cfs_period_us", &PERIOD.to_string())?;
        let quota = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
        self.write("cpu.cfs_quota_us", &quota)
    }

    /// Number of times that the limit had effect: throttled periods, or 1 if the group has used memory.
    pub(crate) fn affected(&self) -> u64 {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let throttled = read("cpu.stat");
        let throttled = throttled.lines().find_map(|line| number(line.strip_prefix("nr_throttled ")?));
        let memory = read(if self.is_v2 { "memory.peak" } else { "memory.max_usage_in_bytes" });
        throttled.unwrap_or_else(|| number(&memory).map_or(0, |bytes| u64::from(bytes > 0)))
    }

    /// Shell commands that move the shell into the group.
    pub(crate) fn join(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.folder.display())
    }

    fn write(&self, name: &str, value: &str) -> Result<(), SuiteError> {
        let file = self.folder.join(name);
        let written: io::Result<()> = fs::write(&file, value);
        written.map_err(failed(file.display().to_string()))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Fails while a process is in the group.
        let _ = fs::remove_dir(&self.folder);
    }
}

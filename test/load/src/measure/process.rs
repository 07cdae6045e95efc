//! Process statistics from `/proc`.

use std::{collections::HashMap, fs, time::Duration};

use super::program::{ProgramError, failed};

/// Returns the resident memory of all descendants of a process, in bytes.
pub(crate) fn resident_children(of: u32) -> Result<u64, ProgramError> {
    let mut children: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
    for entry in fs::read_dir("/proc").map_err(failed("/proc"))?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes that have exited in the meantime are skipped.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let Some(parent) = number(&status, "PPid:").and_then(|parent| u32::try_from(parent).ok()) else {
            continue;
        };
        let kilobytes = number(&status, "VmRSS:").unwrap_or_default();
        children.entry(parent).or_default().push((id, kilobytes * 1024));
    }
    let (mut sum, mut pending) = (0, vec![of]);
    while let Some(parent) = pending.pop() {
        for (id, bytes) in children.remove(&parent).unwrap_or_default() {
            sum += bytes;
            pending.push(id);
        }
    }
    Ok(sum)
}

/// Returns the resident memory of a process in bytes: current and maximum.
pub(crate) fn resident(process: u32) -> Result<(u64, u64), ProgramError> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(failed(path))?;
    let bytes = |name| number(&status, name).unwrap_or_default() * 1024;
    Ok((bytes("VmRSS:"), bytes("VmHWM:")))
}

/// Sets the maximum resident memory of a process to the current value.
pub(crate) fn reset_peak(process: u32) -> Result<(), ProgramError> {
    let path = format!("/proc/{process}/clear_refs");
    fs::write(&path, "5").map_err(failed(path))
}

/// Returns the CPU time of the existing threads of a process.
///
/// Read from `schedstat`, in nanoseconds. `/proc/PID/stat` counts ticks of 10 ms, which miss short wakeups.
pub(crate) fn processor_time(process: u32) -> Result<Duration, ProgramError> {
    let path = format!("/proc/{process}/task");
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(&path).map_err(failed(path))?.flatten() {
        // Threads that have exited in the meantime are skipped.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        sum += on_processor(&text).unwrap_or_default();
    }
    Ok(sum)
}

/// First field of `schedstat`: time on a CPU.
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Returns the number after `name` in a `/proc/PID/status` file.
fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_found_by_name() {
        let status = "Name:\tx\nPPid:\t7\nVmRSS:\t    123 kB\n";
        assert_eq!(number(status, "VmRSS:"), Some(123));
        assert_eq!(number(status, "VmHWM:"), None);
    }

    #[test]
    fn cpu_time_is_the_first_field() {
        assert_eq!(on_processor("1234567 89 10\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!(on_processor("invalid"), None);
    }

    #[test]
    fn own_process_has_memory_and_cpu_time() {
        let (now, most) = resident(std::process::id()).unwrap();
        assert!(now > 0 && most >= now);
        assert!(processor_time(std::process::id()).unwrap() > Duration::ZERO);
    }
}

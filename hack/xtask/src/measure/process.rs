//! What the system knows of processes.

use std::{collections::HashMap, fs, time::Duration};

use super::program::{ProgramError, failed};

/// What the kernel counts processor time in, for programs: a hundredth of a second, on every Linux of today.
const TICK: Duration = Duration::from_millis(10);

/// The resident memory of all that a process has started, itself not counted, in bytes.
pub(crate) fn resident_children(of: u32) -> Result<u64, ProgramError> {
    let mut children: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
    for entry in fs::read_dir("/proc").map_err(failed("/proc"))?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has ended meanwhile counts nothing.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let Some(parent) = number(&status, "PPid:").and_then(|parent| u32::try_from(parent).ok()) else {
            continue;
        };
        let kilobytes = number(&status, "VmRSS:").unwrap_or_default();
        children.entry(parent).or_default().push((id, kilobytes * 1024));
    }
    let (mut sum, mut waiting) = (0, vec![of]);
    while let Some(parent) = waiting.pop() {
        for (id, bytes) in children.remove(&parent).unwrap_or_default() {
            sum += bytes;
            waiting.push(id);
        }
    }
    Ok(sum)
}

/// The resident memory of one process in bytes: now, and at most so far.
pub(crate) fn resident(process: u32) -> Result<(u64, u64), ProgramError> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(failed(path))?;
    let bytes = |name| number(&status, name).unwrap_or_default() * 1024;
    Ok((bytes("VmRSS:"), bytes("VmHWM:")))
}

/// The processor time that one process has taken so far.
pub(crate) fn processor_time(process: u32) -> Result<Duration, ProgramError> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(failed(path))?;
    Ok(TICK * ticks(&stat).unwrap_or_default())
}

/// In user and in kernel mode together. The program's name, in brackets, may hold spaces and brackets.
fn ticks(stat: &str) -> Option<u32> {
    const USER_AFTER_NAME: usize = 11;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(USER_AFTER_NAME);
    let user: u32 = fields.next()?.parse().ok()?;
    let kernel: u32 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

/// The number after `name` in a status of /proc.
fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_status_is_found_by_its_name() {
        let status = "Name:\tx\nPPid:\t7\nVmRSS:\t    123 kB\n";
        assert_eq!(number(status, "VmRSS:"), Some(123));
        assert_eq!(number(status, "VmHWM:"), None);
    }

    #[test]
    fn ticks_are_found_behind_a_name_with_brackets() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 1 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let (now, most) = resident(std::process::id()).unwrap();
        assert!(now > 0 && most >= now);
        processor_time(std::process::id()).unwrap();
    }
}

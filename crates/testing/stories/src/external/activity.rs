//! Activity of a process, read from `/proc`.

use std::{fs, path::Path};

use crate::cluster::Activity;

/// Returns the activity of these processes from the scheduler statistics of their threads, or [`Activity::default`] if they
/// cannot be read.
pub fn activity_of(processes: &[u32]) -> Activity {
    let mut turns = 0;
    for process in processes {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.flatten() {
            let text = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            // Format: `pid (name) state …`; the name may contain any character.
            let state = text("stat").rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            if matches!(state, Some('R' | 'D')) {
                return Activity::Busy;
            }
            // Fields: time on a CPU, time spent waiting for one, number of time slices.
            let taken =
                text("schedstat").split_whitespace().nth(2).and_then(|turns| turns.parse::<u64>().ok());
            turns += taken.unwrap_or_default();
        }
    }
    Activity::Idle { turns }
}

/// Returns the processes of a process group, or none if they cannot be read.
pub(super) fn processes(group: u32) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let belongs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Fields after the name: state, parent, process group.
        let of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2));
        of.and_then(|of| of.parse::<u32>().ok()) == Some(group)
    };
    all.flatten().filter_map(|entry| pid(&entry.path())).filter(belongs).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::external::program::Program;

    #[tokio::test]
    async fn running_process_is_busy_and_waiting_process_is_idle() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let busy = Program::shell("a loop", "while :; do :; done", &log).unwrap();
        let idle = Program::shell("a wait", "echo waiting; exec sleep 1000", &log).unwrap();
        while !idle.log_tail().contains("waiting") || idle.activity() == Activity::Busy {
            tokio::task::yield_now().await;
        }
        assert_eq!(busy.activity(), Activity::Busy);
        assert!(matches!(idle.activity(), Activity::Idle { turns } if turns > 0));
        assert_eq!(idle.activity(), idle.activity());
    }
}

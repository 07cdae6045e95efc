//! Whether a program has come to rest, seen from outside.

use std::{fs, path::Path};

use crate::world::Activity;

/// What these processes are at, from what the kernel tells of their threads; [`Activity::default`] where it tells
/// nothing.
pub fn activity_of(processes: &[u32]) -> Activity {
    let mut turns = 0;
    for process in processes {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.flatten() {
            let text = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            // `pid (name) state …`; the name may contain anything.
            let state = text("stat").rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            if matches!(state, Some('R' | 'D')) {
                return Activity::Busy;
            }
            // Time on a processor, time waited for one, and how often it was given one.
            let taken =
                text("schedstat").split_whitespace().nth(2).and_then(|turns| turns.parse::<u64>().ok());
            turns += taken.unwrap_or_default();
        }
    }
    Activity::Idle { turns }
}

/// The processes of a group, where that can be found out.
pub(super) fn processes(group: u32) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let belongs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name: state, parent, group.
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
    async fn program_that_computes_is_busy_and_one_that_waits_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let busy = Program::shell("a loop", "while :; do :; done", &log).unwrap();
        let idle = Program::shell("a wait", "echo waiting; exec sleep 1000", &log).unwrap();
        while !idle.last_words().contains("waiting") || idle.activity() == Activity::Busy {
            tokio::task::yield_now().await;
        }
        assert_eq!(busy.activity(), Activity::Busy);
        assert!(matches!(idle.activity(), Activity::Idle { turns } if turns > 0));
        assert_eq!(idle.activity(), idle.activity());
    }
}

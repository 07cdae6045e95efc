//! Tasks with names.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Tasks that end with this value, or by it being dropped.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// How a task ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned(&'static str),
    Panicked(&'static str),
}

impl Tasks {
    pub(crate) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.names.insert(id, name);
    }

    /// The next to end; `None` when there are none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        let ended = self.running.join_next_with_id().await?;
        let (id, how): (_, fn(_) -> _) = match &ended {
            Ok((id, ())) => (*id, Ended::Returned),
            Err(error) => (error.id(), Ended::Panicked),
        };
        Some(how(self.names.remove(&id).unwrap_or_default()))
    }

    /// Waits for all; answers with those that panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the names of those that have panicked so far.
    pub(crate) async fn all(&mut self) -> Vec<&'static str> {
        let mut panicked = Vec::new();
        while let Some(ended) = self.next().await {
            if let Ended::Panicked(name) = ended {
                panicked.push(name);
            }
        }
        panicked
    }

    /// Those still running, in order of names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.names.values().copied().collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_told_apart_by_name_when_they_end() {
        let mut tasks = Tasks::default();
        tasks.spawn("waits", std::future::pending());
        tasks.spawn("panics", async { panic!("on purpose") });
        assert_eq!(tasks.next().await, Some(Ended::Panicked("panics")));
        tasks.spawn("returns", async {});
        assert_eq!(tasks.names(), ["returns", "waits"]);
        assert_eq!(tasks.next().await, Some(Ended::Returned("returns")));
    }
}

//! Named tasks.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Running tasks. Dropping the value aborts them.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, String>,
}

/// End of a task, with its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned(String),
    Panicked(String),
}

impl Tasks {
    pub(crate) fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.names.insert(id, name.into());
    }

    /// Waits for the next task that ends. `None` if there are no tasks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        let ended = self.running.join_next_with_id().await?;
        let (id, how): (_, fn(_) -> _) = match &ended {
            Ok((id, ())) => (*id, Ended::Returned),
            Err(error) => (error.id(), Ended::Panicked),
        };
        Some(how(self.names.remove(&id).unwrap_or_default()))
    }

    /// Waits for all tasks. Returns the names of those that panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the names collected so far.
    pub(crate) async fn all(&mut self) -> Vec<String> {
        let mut panicked = Vec::new();
        while let Some(ended) = self.next().await {
            if let Ended::Panicked(name) = ended {
                panicked.push(name);
            }
        }
        panicked
    }

    /// Names of the running tasks, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.names.values().cloned().collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn next_returns_the_name_of_the_ended_task() {
        let mut tasks = Tasks::default();
        tasks.spawn("waits", std::future::pending());
        tasks.spawn("panics", async { panic!("on purpose") });
        assert_eq!(tasks.next().await, Some(Ended::Panicked("panics".to_owned())));
        tasks.spawn("returns", async {});
        assert_eq!(tasks.names(), ["returns", "waits"]);
        assert_eq!(tasks.next().await, Some(Ended::Returned("returns".to_owned())));
    }
}

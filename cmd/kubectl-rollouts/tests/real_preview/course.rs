//! Course of a rollout: writes of the controllers, and numbers of pods.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::nodes::is_ready;

/// State after the reaction of the controllers to the events of one time.
#[derive(Debug)]
pub(crate) struct ObservedStep {
    /// Virtual time.
    pub(crate) seconds: u64,
    pub(crate) writes: Vec<Write>,
    pub(crate) counts: Counts,
}

/// Write of a controller, without status and events.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// Name, or the ReplicaSet of a pod.
    pub(crate) name: String,
    /// `spec.replicas` of a ReplicaSet.
    pub(crate) replicas: Option<i64>,
    pub(crate) count: u64,
}

/// Numbers of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pods: u64,
    with_terminating: u64,
    available: u64,
}

impl Counts {
    pub(crate) fn of(pods: &[Value]) -> Self {
        let active = || pods.iter().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none());
        let count = |number: usize| u64::try_from(number).unwrap();
        Self {
            pods: count(active().count()),
            with_terminating: count(pods.len()),
            available: count(active().filter(|pod| is_ready(pod)).count()),
        }
    }
}

/// Writes and peaks, in a form that does not depend on the interleaving of concurrent controllers.
#[derive(Debug)]
pub(crate) struct Course {
    steps: Vec<Step>,
    /// Smallest and largest possible peak. They differ if the controller of ReplicaSets creates and deletes pods
    /// concurrently.
    most_pods: (u64, u64),
    most_with_terminating: u64,
    fewest_available: u64,
}

/// Writes of one time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    seconds: u64,
    /// Writes of the Deployment controller in their order: resource, name, verb of the first write, and the replicas of the
    /// last one.
    scaled: Vec<(String, String, String, Option<i64>)>,
    /// Numbers of created and deleted pods by ReplicaSet.
    pods: BTreeMap<(String, String), u64>,
}

impl Step {
    fn add(&mut self, write: &Write) {
        if write.resource == "pods" {
            *self.pods.entry((write.name.clone(), write.verb.clone())).or_default() += write.count;
            return;
        }
        let known = self.scaled.iter_mut().find(|(resource, name, ..)| {
            (resource.as_str(), name.as_str()) == (write.resource.as_str(), write.name.as_str())
        });
        match known {
            Some((.., replicas)) => *replicas = write.replicas,
            None => {
                let (resource, name, verb) = (write.resource.clone(), write.name.clone(), write.verb.clone());
                self.scaled.push((resource, name, verb, write.replicas));
            }
        }
    }
}

impl Course {
    /// Course of a change that was made. `before` are the pods before the change.
    pub(crate) fn observed(before: &[Value], steps: Vec<ObservedStep>) -> Self {
        let before = Counts::of(before);
        let counts = || [before].into_iter().chain(steps.iter().map(|step| step.counts));
        let creations = |step: &ObservedStep| {
            let creations =
                step.writes.iter().filter(|write| write.resource == "pods" && write.verb == "create");
            creations.map(|write| write.count).sum::<u64>()
        };
        let created_first = counts().zip(&steps).map(|(counts, step)| counts.pods + creations(step));
        let least = counts().map(|counts| counts.pods).max().unwrap();
        let (most_pods, most_with_terminating, fewest_available) = (
            (least, created_first.max().unwrap().max(least)),
            counts().map(|counts| counts.with_terminating).max().unwrap(),
            counts().map(|counts| counts.available).min().unwrap(),
        );
        let steps = steps.into_iter().map(|observed| {
            let mut step = Step { seconds: observed.seconds, ..Step::default() };
            observed.writes.iter().for_each(|write| step.add(write));
            step
        });
        let steps = steps.filter(Step::has_writes).collect();
        Self { steps, most_pods, most_with_terminating, fewest_available }
    }

    /// Course of a preview, with the times rounded to those of `made` if they differ by less than one second.
    pub(crate) fn predicted(preview: &Value, made: &Self) -> Self {
        let outcome = &preview["outcome"];
        let peak = |name: &str| outcome[name]["pods"].as_u64().unwrap();
        let mut steps: Vec<Step> = Vec::new();
        for group in preview["writes"].as_array().unwrap() {
            let seconds = group["seconds"].as_f64().unwrap();
            let is_near = |step: &&Step| (step.seconds as f64 - seconds).abs() < 0.75;
            let near = made.steps.iter().find(is_near).map(|step| step.seconds);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let seconds = near.unwrap_or(seconds.round() as u64);
            if steps.last().is_none_or(|step| step.seconds != seconds) {
                steps.push(Step { seconds, ..Step::default() });
            }
            let text = |field: &str| group[field].as_str().unwrap().to_owned();
            steps.last_mut().unwrap().add(&Write {
                verb: text("verb"),
                resource: text("resource"),
                name: text("name"),
                replicas: group["replicas"].as_i64(),
                count: group["count"].as_u64().unwrap(),
            });
        }
        Self {
            steps,
            most_pods: (peak("mostPods"), peak("mostPods")),
            most_with_terminating: peak("mostPodsWithTerminating"),
            fewest_available: peak("fewestAvailable"),
        }
    }

    /// `true` if this prediction is `made`.
    pub(crate) fn is(&self, made: &Self) -> bool {
        let others = |course: &Self| (course.most_with_terminating, course.fewest_available);
        let (least, most) = made.most_pods;
        self.steps == made.steps && others(self) == others(made) && (least..=most).contains(&self.most_pods.0)
    }

    /// Renames a ReplicaSet.
    pub(crate) fn rename(&mut self, old: &str, new: &str) {
        for step in &mut self.steps {
            for (_, name, ..) in step.scaled.iter_mut().filter(|(_, name, ..)| name == old) {
                new.clone_into(name);
            }
            let pods = std::mem::take(&mut step.pods).into_iter();
            let renamed = pods.map(|((name, verb), count)| {
                ((if name == old { new.to_owned() } else { name }, verb), count)
            });
            step.pods = renamed.collect();
        }
    }
}

impl Step {
    fn has_writes(&self) -> bool {
        !self.scaled.is_empty() || !self.pods.is_empty()
    }
}

//! A run: a manager, the workload and a fault.

use std::{fs, path::Path, time::Duration};

use kcm_clock::Clock;
use serde_json::json;

use crate::{
    catalogue::{Effect, Fault, Lasts},
    cluster::Cluster,
    error::{SuiteError, failed},
    lease,
    measure::{Measurement, Tally, Who},
    observer::Observer,
    scene::Scene,
    workload::{Scale, Workload},
};

/// Time limit of the setup.
pub(crate) const SETUP: Duration = Duration::from_secs(120);
/// Time limit of convergence, from the end of the fault.
pub(crate) const CONVERGENCE: Duration = Duration::from_secs(150);
/// Time after convergence in which further pods would be seen, and the audit log is read.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Program and number of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) fault: &'static Fault,
    pub(crate) who: Who,
    pub(crate) program: &'a Path,
    pub(crate) round: usize,
    pub(crate) scale: Scale,
    /// Log of the manager.
    pub(crate) log: &'a Path,
    /// If `true`, the fault ends as soon as it has reached the manager, and not after its time.
    pub(crate) until_reached: bool,
}

/// Runs a manager through a fault.
pub(crate) async fn run(cluster: &mut Cluster, plan: Plan<'_>) -> Result<Measurement, SuiteError> {
    let _ = fs::remove_file(plan.log);
    let scene = Scene::new(cluster, plan.fault, plan.scale).await?;
    let namespace = scene.name.clone();
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    scene.cluster.create("/api/v1/namespaces", &object).await?;
    let observer = Observer::start(
        scene.cluster.api.clone(),
        &namespace,
        &namespace,
        plan.scale,
        scene.cluster.clock.clone(),
    );
    let mut run = Run { scene, plan, observer, tally: Tally::default() };
    let measured = run.measure().await;
    run.clear().await?;
    measured
}

pub(crate) struct Run<'a> {
    pub(crate) scene: Scene<'a>,
    pub(crate) plan: Plan<'a>,
    pub(crate) observer: Observer,
    tally: Tally,
}

impl Run<'_> {
    async fn measure(&mut self) -> Result<Measurement, SuiteError> {
        let api = self.scene.cluster.api.clone();
        let namespace = self.scene.name.clone();
        let scale = self.plan.scale;
        let workload = Workload { api: &api, namespace: &namespace, scale };
        if self.scene.is_throughout() {
            self.scene.begin().await?;
        }
        self.start_managers().await?;
        self.observer.with(|observed| observed.goals = scale.before());
        workload.set_up().await?;
        let is_set_up = self.until(SETUP, |observed| observed.met_at.is_some()).await;
        if !is_set_up && !self.scene.is_throughout() {
            return Err(self.late("the setup of the workload"));
        }
        self.count();
        self.tally = Tally { lists: self.tally.lists, ..Tally::default() };
        self.observer.with(|observed| {
            observed.below_minimum = 0.0;
            observed.before = observed.pods.len();
            (observed.goals, observed.met_at) = (scale.after(), None);
        });

        if matches!(self.scene.fault.effect, Effect::Client(_)) {
            return self.measure_client(&workload).await;
        }
        let rolled = self.now();
        workload.roll().await?;
        let is_rolling = is_set_up && self.until(SETUP, |observed| observed.updated >= scale.updated).await;
        if !is_rolling && !self.scene.is_throughout() {
            return Err(self.late("the start of the rollout"));
        }
        workload.add().await?;
        let (begin, end) = if self.scene.is_throughout() {
            (rolled, rolled)
        } else {
            let begin = self.now();
            self.scene.begin().await?;
            self.last().await?;
            self.scene.end().await?;
            (begin, self.now())
        };
        let converged = self.until(CONVERGENCE, |observed| observed.met_at.is_some()).await;
        let last = self.observer.with(|observed| observed.met_at).unwrap_or_else(|| end + CONVERGENCE);
        self.scene.cluster.clock.sleep(SETTLED).await;
        self.count();
        self.scene.count_dispatched().await?;
        self.result(begin, end, last, converged).await
    }

    async fn start_managers(&mut self) -> Result<(), SuiteError> {
        let manager = self.scene.start(self.plan.program, self.plan.log, false)?;
        self.scene.manager = Some(manager);
        if self.scene.fault.effect == Effect::Partition {
            if !self.until(SETUP, |observed| !observed.renewals.is_empty()).await {
                return Err(self.late("the first leader"));
            }
            let log = self.plan.log.with_extension("standby.log");
            let _ = fs::remove_file(&log);
            self.scene.standby = Some(self.scene.start(self.plan.program, &log, true)?);
        }
        Ok(())
    }

    /// Waits until the fault ends.
    async fn last(&mut self) -> Result<(), SuiteError> {
        let Lasts::Seconds(seconds) = self.scene.fault.lasts else { return Ok(()) };
        let until = self.now() + Duration::from_secs(seconds);
        loop {
            self.scene.sample().await;
            self.count();
            let reached = self.scene.reached(&self.tally, &self.observer).await > 0;
            if self.now() >= until || self.plan.until_reached && reached {
                return Ok(());
            }
            self.scene.cluster.clock.sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn result(
        &mut self,
        begin: Duration,
        end: Duration,
        last: Duration,
        converged: bool,
    ) -> Result<Measurement, SuiteError> {
        let mut records = Vec::new();
        for manager in [&self.scene.manager, &self.scene.standby].into_iter().flatten() {
            records.push((manager.record().await, manager.id().await.is_some()));
        }
        let mut exits: Vec<_> = records.iter().flat_map(|(record, _)| record.exits.iter().cloned()).collect();
        exits.sort_by_key(|exit| exit.at);
        let times: Vec<_> = exits.iter().map(|exit| exit.at).collect();
        let until = last.max(end);
        let renewals = self.observer.with(|observed| observed.renewals.clone());
        let memory = records.iter().map(|(record, _)| record.peak_memory).max().unwrap_or_default();
        Ok(Measurement {
            fault: self.scene.fault.name.clone(),
            manager: self.plan.who,
            round: self.plan.round,
            reached: self.scene.reached(&self.tally, &self.observer).await,
            without_leader: lease::without_leader(&renewals, &times, begin, until).as_secs_f64(),
            terms: lease::changes(&renewals, begin, until),
            convergence: last.as_secs_f64() - end.as_secs_f64(),
            converged,
            excess: self.observer.with(|observed| observed.pods.len() - observed.before) as i64
                - self.plan.scale.needed() as i64,
            below_minimum: self.observer.with(|observed| observed.below_minimum),
            requests: self.tally.requests,
            memory: memory as f64 / f64::from(1 << 20),
            exits: exits.into_iter().map(|exit| exit.status).collect(),
            lives: records.iter().all(|(_, lives)| *lives),
            under_client: None,
        })
    }

    /// Stops the managers and deletes the objects of the run.
    async fn clear(mut self) -> Result<(), SuiteError> {
        for manager in [self.scene.manager.take(), self.scene.standby.take()].into_iter().flatten() {
            manager.kill().await?;
        }
        if self.scene.is_throughout() {
            self.scene.end().await?;
        }
        self.scene.cluster.clear(&self.scene.name).await?;
        self.scene.cluster.clear(&format!("{}-gone", self.scene.name)).await?;
        let folder = &self.scene.folder;
        fs::remove_dir_all(folder).map_err(failed(folder.display().to_string()))?;
        self.count();
        Ok(())
    }

    /// Reads the log of requests.
    pub(crate) fn count(&mut self) {
        while let Some(entry) = self.scene.cluster.log.try_next() {
            self.tally.add(&entry);
        }
    }

    /// Waits for a condition. Returns `false` after the time limit.
    pub(crate) async fn until(
        &mut self,
        limit: Duration,
        condition: impl Fn(&crate::observer::Observed) -> bool,
    ) -> bool {
        let deadline = self.now() + limit;
        loop {
            if self.observer.with(|observed| condition(observed)) {
                return true;
            }
            if self.now() >= deadline {
                return false;
            }
            self.scene.sample().await;
            self.scene.cluster.clock.sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.scene.cluster.clock.monotonic()
    }

    pub(crate) fn late(&self, what: &str) -> SuiteError {
        let what = format!("{what}; {:?} {}", self.plan.who, self.scene.fault.name);
        SuiteError::Late { what, seconds: SETUP.as_secs() }
    }
}

//! A fake hub, a scripted adapter, a home folder and a runtime between them.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::channel;
use attache_protocol::{AgentId, RunId, RuntimeId, Secret, env::Env};
use attache_runtime::{
    Error, Options, RuntimeNotice, RuntimeService, RuntimeTimings, Shutdown, ShutdownOutcome,
    ledger::{ExecutionLedger, LedgerEntry, LedgerStep},
    profile::{Profile, Profiles},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{adapter::FakeAdapter, hub::FakeHub};

pub(crate) const TOKEN: &str = "rt_planted_runtime_token";
pub(crate) const SECRET: &str = "as_planted_adapter_secret";

pub(crate) struct RuntimeWorld {
    pub(crate) home: tempfile::TempDir,
    pub(crate) hub: FakeHub,
    pub(crate) adapter: FakeAdapter,
    pub(crate) notices: Arc<Mutex<Vec<RuntimeNotice>>>,
    profile: Profile,
}

pub(crate) struct RunningRuntime {
    pub(crate) shutdown: Shutdown,
    task: JoinHandle<Result<ShutdownOutcome, Error>>,
}

pub(crate) fn agent() -> AgentId {
    "agt_00000000000000000000000000000001".parse().unwrap()
}

pub(crate) fn runtime() -> RuntimeId {
    "rtm_00000000000000000000000000000002".parse().unwrap()
}

pub(crate) fn run(number: u128) -> RunId {
    format!("run_{number:032x}").parse().unwrap()
}

pub(crate) fn claim(number: u128, text: &str) -> Value {
    json!({"task_run_id": run(number), "agent_id": agent(), "conversation_id": format!("cnv_{number:032x}"),
        "workspace_id": format!("wsp_{number:032x}"), "task_type": "prompt", "input": {"text": text},
        "instructions": "be brief", "context_fragments": null, "allowed_tools": null, "workspace_root": null,
        "parent_task_run_id": null, "trace_id": null, "epoch": 1, "attempt": 1,
        "lease_expires_at": "2030-01-01T00:00:00.000Z", "deadline": "2030-01-01T00:00:00.000Z"})
}

impl RuntimeWorld {
    pub(crate) async fn new() -> Self {
        let (home, hub, adapter) = (tempfile::tempdir().unwrap(), FakeHub::start().await, FakeAdapter::start().await);
        let token = Secret::new(TOKEN.to_owned());
        let mut profile = Profile::new(agent(), runtime(), token, format!("{}/api/v1", hub.url));
        profile.local_agent_endpoint = Some(adapter.url.clone());
        profile.adapter_secret = Some(Secret::new(SECRET.to_owned()));
        profile.heartbeat_timeout_ms = 800;
        let world = Self { home, hub, adapter, notices: Arc::default(), profile };
        world.keep_profile();
        world
    }

    /// Changes the profile before the runtime starts.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Profile)) -> Self {
        change(&mut self.profile);
        self.keep_profile();
        self
    }

    fn keep_profile(&self) {
        self.profiles().update(|set| set.insert(self.profile.clone())).unwrap();
    }

    pub(crate) fn profiles(&self) -> Profiles {
        Profiles::at(self.home.path(), Env::system())
    }

    pub(crate) fn options(&self) -> Options {
        let notices = self.notices.clone();
        let mut options = Options::new(self.home.path());
        options.pace = RuntimeTimings {
            pull_wait: Duration::from_millis(300),
            heartbeat: Duration::from_millis(200),
            early_heartbeat: Duration::from_millis(200),
            early: Duration::ZERO,
            channel: channel::ChannelTimings {
                ping: Duration::from_millis(500),
                retry: (Duration::from_millis(10), Duration::from_millis(100)),
                unwanted: (Duration::from_millis(50), Duration::from_millis(200)),
            },
        };
        options.observer = Some(Arc::new(move |notice| notices.lock().unwrap().push(notice.clone())));
        options
    }

    pub(crate) fn start(&self) -> RunningRuntime {
        self.start_with(|_| {})
    }

    pub(crate) fn start_with(&self, change: impl FnOnce(&mut Options)) -> RunningRuntime {
        let shutdown = Shutdown::default();
        let mut options = self.options();
        change(&mut options);
        let runtime = RuntimeService::new(options).unwrap();
        RunningRuntime::new(tokio::spawn(runtime.run(shutdown.clone())), shutdown)
    }

    pub(crate) async fn write_ledger(&self, lines: &[LedgerEntry]) {
        let (ledger, _) = ExecutionLedger::open(self.home.path(), agent()).unwrap();
        for line in lines {
            ledger.append(line).await.unwrap();
        }
    }

    /// The steps of the ledger, with their runs.
    pub(crate) fn steps(&self) -> Vec<(LedgerStep, Option<RunId>)> {
        let lines = ExecutionLedger::read(self.home.path(), agent()).unwrap();
        lines.into_iter().map(|line| (line.event, line.task_run_id)).collect()
    }

    /// The content of everything below the home folder, except the profile.
    pub(crate) fn written(&self) -> String {
        let mut text = format!("{:?}", self.notices.lock().unwrap());
        let mut folders = vec![self.home.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name() != Some("runtime.json".as_ref()) {
                    text += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
                }
            }
        }
        text
    }

    pub(crate) fn path(&self, name: &str) -> String {
        Path::new(self.home.path()).join(name).to_str().unwrap().to_owned()
    }
}

impl RunningRuntime {
    pub(crate) const fn new(task: JoinHandle<Result<ShutdownOutcome, Error>>, shutdown: Shutdown) -> Self {
        Self { shutdown, task }
    }

    pub(crate) async fn stop(self) -> Result<ShutdownOutcome, Error> {
        self.shutdown.finish();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Result<ShutdownOutcome, Error> {
        tokio::time::timeout(Duration::from_secs(20), self.task).await.expect("the runtime ends").unwrap()
    }

    /// As if the process were killed.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

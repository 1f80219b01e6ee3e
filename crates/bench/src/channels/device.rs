//! A realistic device: a runtime and an adapter whose agent only records when it starts to work.

use std::{path::Path, sync::Arc, time::Instant};

use attache_adapter::{Adapter, Driver, DriverRun};
use attache_client::HubClient;
use attache_protocol::{
    Json, RunId, Secret,
    env::Env,
    secret::Kind,
    wire::{
        account::AccountRequest,
        adapter::{AdapterPermissionRequest, HostInfo, TaskOutput, TaskReply},
    },
};
use attache_runtime::{
    RuntimeService, Shutdown,
    pair::{self, PairOptions},
    profile::LocalExecutor,
};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{BenchResult, ServerProcess};

pub(crate) const AGENT: &str = "stopwatch";
/// A task that asks for permission before it ends.
pub(crate) const ASK: &str = "ask";

/// What the agent observed, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentObservation {
    Arrived(RunId, Instant),
    Answered(RunId, Instant),
}

#[derive(Debug)]
struct StopwatchDriver(mpsc::UnboundedSender<AgentObservation>);

#[derive(Debug)]
pub(crate) struct BenchDevice {
    pub(crate) noticed: mpsc::UnboundedReceiver<AgentObservation>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

// === impl BenchDevice ===

impl BenchDevice {
    /// Creates the agent, pairs this process with it and starts working.
    pub(crate) async fn start(server: &ServerProcess, owner: &HubClient, home: &Path) -> BenchResult<Self> {
        let env = Env::system();
        let (notice, noticed) = mpsc::unbounded_channel();
        let secret = Kind::AdapterSecret.generate(&env);
        let options = attache_adapter::Options::new(
            Arc::new(StopwatchDriver(notice)),
            secret.clone(),
            home,
            home.join("scratch"),
        );
        let adapter = Adapter::bind(options).await?;
        let endpoint = format!("http://{}", adapter.local_addr());
        let serving = tokio::spawn(async move {
            let _ = adapter.run(CancellationToken::new()).await;
        });

        let request = AccountRequest { name: Some(AGENT.to_owned()), ..AccountRequest::default() };
        owner.create_account(&request).await?;
        let code = Secret::new(owner.create_pairing_code(AGENT).await?.pairing_code);
        let options = PairOptions {
            api_base: server.url.clone(),
            device_name: Some("bench".to_owned()),
            local_executor: LocalExecutor::default(),
            asks: None,
            local_agent_endpoint: Some(endpoint),
            adapter_secret: Some(secret),
            trusted_certificate: None,
            pin: None,
            env,
        };
        pair::redeem(home, options, &code).await?;
        let runtime = RuntimeService::new(attache_runtime::Options::new(home))?;
        let running = tokio::spawn(async move {
            let _ = runtime.run(Shutdown::default()).await;
        });
        Ok(Self { noticed, _tasks: [AbortOnDropHandle::new(serving), AbortOnDropHandle::new(running)] })
    }
}

// === impl StopwatchDriver ===

impl Driver for StopwatchDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "stopwatch".to_owned(), version: None }
    }

    fn run(&self, job: DriverRun) -> futures_util::future::BoxFuture<'static, TaskReply> {
        let arrived = Instant::now();
        let notice = self.0.clone();
        Box::pin(async move {
            let run = job.task.task_run_id;
            let _ = notice.send(AgentObservation::Arrived(run, arrived));
            if job.text().is_ok_and(|text| text == ASK) {
                let asked = AdapterPermissionRequest::new("1", "bench", Json::empty_object());
                job.question_handle.permission(&asked).await;
                let _ = notice.send(AgentObservation::Answered(run, Instant::now()));
            }
            TaskReply::done(&TaskOutput { text: "done".to_owned(), ..TaskOutput::default() })
        })
    }
}

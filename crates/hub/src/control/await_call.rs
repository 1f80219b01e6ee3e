//! Waits for the result of a call or for a run, so that callers don't have to poll.

use std::time::Duration;

use attache_protocol::{
    RunId,
    wire::{
        call::{CallId, CallResult, CallStatus},
        run::Run,
    },
};
use tokio::time::Instant;

use crate::{Handle, Principal, Result, bus::Topic, control::pull::MAX_WAIT, identity::CredentialGuard};

impl Handle {
    /// The result as soon as there is one, or the call's state after `wait` (at most a minute).
    pub async fn await_call(&self, by: &Principal, call: CallId, wait: Duration) -> Result<CallResult> {
        let _slot = self.wait_slot(by, wait)?;
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        let mut run = self.bus().watch(Topic::Run(call.run()));
        let mut guard = CredentialGuard::new(self, by);
        loop {
            let result = self.call_result(by, call).await?;
            let goes_on = matches!(result.status, CallStatus::Started | CallStatus::Running);
            if !goes_on || Instant::now() >= deadline {
                return Ok(result);
            }
            let look_again = deadline.min(Instant::now() + self.options().poll_every);
            tokio::select! {
                () = run.moved() => {}
                () = tokio::time::sleep_until(look_again) => {}
                () = self.drained() => return Ok(result),
                error = guard.broken() => return Err(error),
            }
        }
    }

    /// The run as soon as it has ended or waits for someone. Otherwise its state after `wait`, or when the hub drains.
    pub async fn await_run(&self, by: &Principal, run: RunId, wait: Option<Duration>) -> Result<Run> {
        let deadline = wait.map(|wait| Instant::now() + wait);
        let mut moved = self.bus().watch(Topic::Run(run));
        let mut guard = CredentialGuard::new(self, by);
        loop {
            let found = self.visible_run(by, run).await?;
            let waits = found.state.claim().is_some_and(|claim| claim.waits.waiting().is_some());
            if found.state.status().is_terminal()
                || waits
                || self.is_draining()
                || deadline.is_some_and(|at| at <= Instant::now())
            {
                return self.show_run(found).await;
            }
            let look_again = Instant::now() + self.options().poll_every;
            tokio::select! {
                () = moved.moved() => {}
                () = tokio::time::sleep_until(deadline.map_or(look_again, |at| at.min(look_again))) => {}
                () = self.drained() => {}
                error = guard.broken() => return Err(error),
            }
        }
    }
}

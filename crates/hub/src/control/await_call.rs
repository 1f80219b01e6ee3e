//! Waits for the result of a call or for a run, so that callers don't have to poll.

use std::time::Duration;

use attache_protocol::{
    RunId,
    wire::{
        call::{CallId, CallResult, CallStatus},
        run::Run,
    },
};

use crate::{Handle, Principal, Result, bus::Topic, waiter::Waiter};

impl Handle {
    /// The result as soon as there is one, or the call's state after `wait` (at most a minute).
    pub async fn await_call(&self, by: &Principal, call: CallId, wait: Duration) -> Result<CallResult> {
        let _slot = self.wait_slot(by, wait)?;
        let mut waiter = Waiter::new(self, by, Topic::Run(call.run()), Some(wait.min(Waiter::MAX_WAIT)));
        loop {
            let result = self.call_result(waiter.principal(), call).await?;
            let goes_on = matches!(result.status, CallStatus::Started | CallStatus::Running);
            if !goes_on || !waiter.changed().await? {
                return Ok(result);
            }
        }
    }

    /// The run as soon as it has ended or waits for someone. Otherwise its state after `wait`, or when the hub drains.
    pub async fn await_run(&self, by: &Principal, run: RunId, wait: Option<Duration>) -> Result<Run> {
        let mut waiter = Waiter::new(self, by, Topic::Run(run), wait);
        loop {
            let found = self.visible_run(waiter.principal(), run).await?;
            let waits = found.state.claim().is_some_and(|claim| claim.waits.waiting().is_some());
            if found.state.status().is_terminal() || waits || !waiter.changed().await? {
                return self.show_run(found).await;
            }
        }
    }
}

//! A caller waits for the result of a call, so that nobody has to poll.

use std::time::Duration;

use attache_protocol::wire::call::{CallId, CallResult, CallStatus};
use tokio::time::Instant;

use crate::{Handle, Principal, Result, bus::Topic, control::pull::MAX_WAIT, identity::Guard};

impl Handle {
    /// The result as soon as there is one, or how far the call is after `wait` (at most a minute).
    pub async fn await_call(&self, by: &Principal, call: CallId, wait: Duration) -> Result<CallResult> {
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        let mut run = self.bus().watch(Topic::Run(call.run()));
        let mut guard = Guard::new(self, by);
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
}

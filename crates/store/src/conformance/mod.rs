//! One suite for every engine: random steps go to the model and to the engine, and every answer must be the same.
//!
//! A sequence is made from its seed alone, so a failure replays. Times jump by milliseconds and by days, and now and then
//! the engine is dropped without being closed and opened again; the model knows nothing of that. At the end everything
//! that can be read is compared, and the promises of the log and of the streams are checked.
//!
//! An engine under test implements [`EngineUnderTest`]; [`run_sequences`] does the rest.

mod generate;
mod generator_state;
mod perform;
mod random;
mod run;
mod shrink;
mod step;
mod step_result;
mod verify;

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp};

pub use self::{
    perform::perform,
    run::{ConformanceFailure, run_sequence, run_sequences, run_steps},
    shrink::shrink,
    step::{ListStep, StoreStep},
    step_result::{StepResult, StepValue},
};
use crate::{Result, Store};

/// An engine under test.
#[async_trait]
pub trait EngineUnderTest: Send {
    fn store(&self) -> &dyn Store;

    /// Makes one more tenant. The trait has no way yet, but nothing of one tenant may show in another.
    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()>;

    /// Drops the store as `kill -9` would, without closing it, and opens it again.
    async fn crash_and_reopen(&mut self);

    /// Forgets everything, so that the next sequence finds an empty store. It should be cheap: it happens thousands of
    /// times.
    async fn reset(&mut self);
}

//! The conformance suite for engines: random steps go to the model and to the engine, and every answer must be the
//! same.
//!
//! A sequence is determined by its seed, so failures can be replayed. Times jump by milliseconds and by days, and now
//! and then the engine is dropped without being closed and reopened, which the model doesn't notice. At the end
//! everything readable is compared, and the invariants of the log and the streams are checked.
//!
//! An engine under test implements [`EngineUnderTest`]; [`run_sequences`] does the rest.

mod generate;
mod generator_state;
mod perform;
pub mod postgres_server;
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
    step::{ListToRead, StoreStep},
    step_result::{StepResult, StepValue},
};
use crate::{Result, Store};

/// An engine under test.
#[async_trait]
pub trait EngineUnderTest: Send {
    fn store(&self) -> &dyn Store;

    /// Creates another tenant. The trait has no method for it yet, but tenants must not see each other's data.
    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()>;

    /// Drops the store without closing it, as `kill -9` would, and reopens it.
    async fn crash_and_reopen(&mut self);

    /// What the engine remembers otherwise than it has stored it, if it can tell.
    async fn stale_memory(&mut self) -> Option<String> {
        None
    }

    /// Clears everything, so that the next sequence starts with an empty store. It should be cheap, because it happens
    /// thousands of times.
    async fn reset(&mut self);
}

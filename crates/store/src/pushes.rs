//! The A2A push notification configs of runs.

use attache_protocol::{RunId, TenantId};

use crate::{
    Result, WriteContext,
    record::push::{NewPushConfig, PushConfigRecord},
    store_part::store_part,
};

/// How many configs a run may have.
pub const MAX_PUSH_CONFIGS: usize = 16;

store_part! {
    /// The rules of [`crate::Store`] apply here too.
    ///
    /// With every `task.claimed`, `task.requeued`, `task.waiting`, `task.completed`, `task.failed` and `task.cancelled` of a
    /// run's stream the same transaction makes one delivery per config that the run has then, in order of the configs'
    /// creation and before the delivery to the run's callback ([`attache_protocol::DeliveryId::of_push`], kind `task_updated`,
    /// with the url of that moment). A run that has ended keeps its configs, which nobody uses any more; `retain` removes
    /// those of runs that ended before `log_before`.
    ///
    /// | method | log rows, in the tenant's log only |
    /// |---|---|
    /// | `set_push_config`, `create_run` with `push` (after `task.created`) | `push.configured {"task_run_id","config_id"}` |
    /// | `remove_push_config` | `push.removed {"task_run_id","config_id"}` |
    pub trait PushStore, layer PushStoreLayer, call PushCall {
        /// Replaces a config with the same id, which keeps its position and its time. `TooManyPushConfigs` beyond
        /// [`MAX_PUSH_CONFIGS`].
        async fn set_push_config(
            &self,
            context: WriteContext,
            run: RunId,
            config: NewPushConfig,
        ) -> Result<PushConfigRecord>;

        async fn push_config(&self, tenant: TenantId, run: RunId, id: &str) -> Result<PushConfigRecord>;

        /// In order of creation.
        async fn push_configs(&self, tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>>;

        /// `NotFound` if the run has none with this id.
        async fn remove_push_config(&self, context: WriteContext, run: RunId, id: &str) -> Result<()>;
    }
}

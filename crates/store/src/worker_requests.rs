//! Worker requests to people and engines, and their answers: permissions, input, tool calls.

use std::time::Duration;

use attache_protocol::{
    GrantId, InputId, Json, PermissionId, RunId, TenantId, Timestamp, WorkerRequestId, rules::run::WorkerRef,
};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        worker_request::{
            GrantRecord, InputRecord, NewDecision, NewInput, NewPermission, NewWorkerRequest, PermissionFilter,
            PermissionRecord, WorkerRequestRecord,
        },
    },
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] hold here too; a worker is judged as in `progress`. The rows below are rows of the run's
    /// stream, except `channel.*`, which are of the channel's (the run's own channel, if it was claimed over one), and those
    /// marked with †, which are in the tenant's log only.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `request_permission` | `permission.requested {"permission_request_id","tool","input","cwd","paths","reason","risk"}`, or, for a call to a private agent, only `{"permission_request_id","tool","private"}`; `channel.permission_forwarded {"channel_id","permission_request_id","task_run_id"}`; then, without a grant that answers, `action.required {"kind":"approval","permission_request_id"}` and `task.waiting {"waiting"}` if that changes; with one, the rows of its settling |
    /// | settling a permission | `permission.decided {"permission_request_id","state","approved","source","by","via","from","scope","tool_pattern","until","this_channel_only","comment","grant_id"}`; unless it was cancelled `channel.permission_returned {"channel_id","permission_request_id","task_run_id","approved"}` and `task.waiting {"waiting"}` if that changes |
    /// | `decide_permission` too late | † `permission.late {"permission_request_id","approved","state"}` |
    /// | a permission that expires with `deny_and_halt` | its settling, without `task.waiting`, then `task.failed {"code":"permission_denied"}` |
    /// | `revoke_grant` | † `permission.grant_revoked {"grant_id"}` |
    /// | `ask` for input | `task.input_required {"input_request_id","prompt","parts"}`, `action.required {"kind":"input","input_request_id"}`, `task.waiting {"waiting"}` if that changes |
    /// | `ask` for an authorization | `task.authorization_required {"input_request_id","prompt","parts"}`, `task.waiting {"waiting"}` if that changes |
    /// | `withdraw_ask` | `task.input_withdrawn {"input_request_id"}`, `task.waiting {"waiting"}` if that changes |
    /// | `add_input` | `task.input_received {"input_id","input_request_id","parts"}` with a last member `"message"` if one brought it, `task.waiting {"waiting"}` if that changes |
    /// | an input or authorization request that expires | `task.failed {"code":"timed_out"}` |
    /// | `ask` for a tool, `answer_tool` | none; but the run's chunks gain `task.tool_call {"tool_call_id","tool_name","arguments"}` and `task.tool_call {"tool_call_id","tool_name","result"}` |
    ///
    /// A grant's answer and a time-out's carry the frame of a settled permission like a person's. `channel` of a request is
    /// kept as given. What has expired stays pending, and can still be answered, until a sweep looks at it; a request that
    /// keeps waiting never expires. A stale epoch is logged as in `progress`, with `call` `permission` or `ask`.
    ///
    /// `scope`, `tool_pattern`, `until`, `this_channel_only` and `comment` are the decision's; null without one. When a run
    /// with open questions leaves `running`, its pending permissions are cancelled first, in order of creation (actor
    /// `system`, rows as above), then the row of what happened to the run follows; pending asks are cancelled without a row.
    /// Expiry is part of `sweep`, after the runs' own deadlines: permissions, then asks, each in order of creation.
    pub trait WorkerRequestStore, layer WorkerRequestStoreLayer, call WorkerRequestCall {
        /// The same asker's name for a question of the same claim, or, without a name, the same subject while it is pending,
        /// gives the request back as it is (the oldest of several). Otherwise grants are asked, the oldest first (a denial beats
        /// a grant), and without one that covers it the run waits. The actor is `runtime:<id>`; of a grant's answer `system`.
        /// The claim is renewed.
        async fn request_permission(
            &self,
            by: WorkerRef,
            permission: NewPermission,
            lease: Duration,
            at: Timestamp,
        ) -> Result<PermissionRecord>;

        /// `AlreadyDecided` as `rules::permission::decide` says, with a row of it. A decision for more than once leaves a
        /// grant behind; the pending requests of others that it would cover stay as they are.
        async fn decide_permission(
            &self,
            context: WriteContext,
            permission: PermissionId,
            decision: NewDecision,
        ) -> Result<PermissionRecord>;

        async fn permission(&self, tenant: TenantId, permission: PermissionId) -> Result<PermissionRecord>;

        /// Newest first.
        async fn permissions(
            &self,
            tenant: TenantId,
            filter: PermissionFilter,
            page: Pagination,
        ) -> Result<ListPage<PermissionRecord>>;

        /// How many permission requests wait for a person.
        async fn pending_permissions(&self, tenant: TenantId) -> Result<u64>;

        /// Newest first, including revoked and expired ones.
        async fn grants(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<GrantRecord>>;

        /// Revoking again changes nothing.
        async fn revoke_grant(&self, context: WriteContext, grant: GrantId) -> Result<GrantRecord>;

        /// The same name for a question of the same claim, of either kind, gives the ask back as it is. `NoEngine` for a tool
        /// when no channel follows the run. The claim is renewed; asking for input or an authorization makes the run wait. A tool call that expires
        /// leaves the run as it is.
        async fn create_worker_request(
            &self,
            by: WorkerRef,
            ask: NewWorkerRequest,
            lease: Duration,
            at: Timestamp,
        ) -> Result<WorkerRequestRecord>;

        async fn worker_request(&self, tenant: TenantId, ask: WorkerRequestId) -> Result<WorkerRequestRecord>;

        /// The asker does not need the answer any more, and the run does not wait for it. One that was settled stays as it is.
        /// `NotFound` unless this claim asked it of its caller. The claim is renewed.
        async fn withdraw_worker_request(
            &self,
            by: WorkerRef,
            run: RunId,
            ask: WorkerRequestId,
            lease: Duration,
            at: Timestamp,
        ) -> Result<WorkerRequestRecord>;

        /// The engine's reply. Answering again, or when nobody waits any more, changes nothing. Only the principal of the
        /// channel that follows the run may answer; for others it is `NotFound`.
        async fn answer_tool_call(
            &self,
            context: WriteContext,
            ask: WorkerRequestId,
            reply: Json,
        ) -> Result<WorkerRequestRecord>;

        /// The oldest pending request for input or an authorization of the run.
        async fn open_worker_request(&self, tenant: TenantId, run: RunId) -> Result<Option<WorkerRequestRecord>>;

        /// Answers the pending request for input or an authorization that it names (`NotAsked` if that is not pending), else
        /// the oldest one of the run, or none. The same key again, for the same run and whatever
        /// became of it, gives the first input back. `Refused` with `NotRunning` or `Ended` unless the run is claimed.
        async fn add_input(&self, context: WriteContext, input: NewInput) -> Result<InputRecord>;

        async fn input(&self, run: RunId, input: InputId) -> Result<InputRecord>;
    }
}

//! Trait methods for channels and questions, which delegate to the state.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    ChannelId, GrantId, InputId, Json, PermissionId, RunId, TenantId, Timestamp, WorkerRequestId, rules::run::WorkerRef,
};

use super::MemoryStore;
use crate::{
    ChannelStore, Result, WorkerRequestStore, WriteContext,
    record::{
        ListPage, Pagination,
        channel::{
            ChannelConnection, ChannelEvents, ChannelFilter, ChannelRecord, ChannelResume, ChannelResumption,
            FollowRecord, NewChannel, OutboxFrames,
        },
        worker_request::{
            GrantRecord, InputRecord, NewDecision, NewInput, NewPermission, NewWorkerRequest, PermissionFilter,
            PermissionRecord, WorkerRequestRecord,
        },
    },
};

// === impl MemoryStore ===

#[async_trait]
impl ChannelStore for MemoryStore {
    async fn open_channel(&self, context: WriteContext, channel: NewChannel) -> Result<ChannelRecord> {
        self.write(|state| state.open_channel(&context, channel))
    }

    async fn resume_channel(&self, context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption> {
        self.write(|state| state.resume_channel(&context, resume))
    }

    async fn close_channel(&self, context: WriteContext, channel: ChannelId, reason: &str) -> Result<ChannelRecord> {
        self.write(|state| state.close_channel(&context, channel, reason))
    }

    async fn close_connection(
        &self,
        context: WriteContext,
        connection: ChannelConnection,
        reason: &str,
    ) -> Result<bool> {
        self.write(|state| state.close_connection(&context, connection, reason))
    }

    async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.close_channels(reason, at);
            Ok(())
        })
    }

    async fn mark_channels_seen(
        &self,
        connections: Vec<ChannelConnection>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<()> {
        self.write(|state| {
            state.seen_channels(&connections, lease, at);
            Ok(())
        })
    }

    async fn channel_message(&self, context: WriteContext, channel: ChannelId, message: Json) -> Result<()> {
        self.write(|state| state.channel_message(&context, channel, &message))
    }

    async fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord> {
        self.read(|state| state.channel(tenant, channel))
    }

    async fn channels(
        &self,
        tenant: TenantId,
        filter: ChannelFilter,
        page: Pagination,
    ) -> Result<ListPage<ChannelRecord>> {
        self.read(|state| state.channels(tenant, &filter, &page))
    }

    async fn channel_events(
        &self,
        tenant: TenantId,
        channel: ChannelId,
        after: i64,
        limit: usize,
    ) -> Result<ChannelEvents> {
        self.read(|state| state.channel_events(tenant, channel, after, limit))
    }

    async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames> {
        self.read(|state| state.frames(channel, after, limit))
    }

    async fn acknowledge(&self, connection: ChannelConnection, seq: i64) -> Result<()> {
        self.write(|state| state.acknowledge(connection, seq))
    }

    async fn follows(&self, channel: ChannelId) -> Result<Vec<FollowRecord>> {
        self.read(|state| state.follows(channel))
    }

    async fn follower(&self, run: RunId) -> Result<Option<FollowRecord>> {
        self.read(|state| Ok(state.follower(run)))
    }

    async fn push_events(
        &self,
        connection: ChannelConnection,
        run: RunId,
        upto: i64,
        limit: usize,
    ) -> Result<FollowRecord> {
        self.write(|state| state.push_events(connection, run, upto, limit))
    }
}

#[async_trait]
impl WorkerRequestStore for MemoryStore {
    async fn request_permission(
        &self,
        by: WorkerRef,
        permission: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PermissionRecord> {
        self.write(|state| state.request_permission(by, permission, lease, at))
    }

    async fn decide_permission(
        &self,
        context: WriteContext,
        permission: PermissionId,
        decision: NewDecision,
    ) -> Result<PermissionRecord> {
        self.write(|state| state.decide_permission(&context, permission, decision))
    }

    async fn permission(&self, tenant: TenantId, permission: PermissionId) -> Result<PermissionRecord> {
        self.read(|state| state.permission(tenant, permission))
    }

    async fn permissions(
        &self,
        tenant: TenantId,
        filter: PermissionFilter,
        page: Pagination,
    ) -> Result<ListPage<PermissionRecord>> {
        self.read(|state| state.permissions(tenant, &filter, &page))
    }

    async fn pending_permissions(&self, tenant: TenantId) -> Result<u64> {
        self.read(|state| Ok(state.pending_permissions(tenant)))
    }

    async fn grants(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<GrantRecord>> {
        self.read(|state| state.grants(tenant, &page))
    }

    async fn revoke_grant(&self, context: WriteContext, grant: GrantId) -> Result<GrantRecord> {
        self.write(|state| state.revoke_grant(&context, grant))
    }

    async fn create_worker_request(
        &self,
        by: WorkerRef,
        ask: NewWorkerRequest,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        self.write(|state| state.create_worker_request(by, ask, lease, at))
    }

    async fn withdraw_worker_request(
        &self,
        by: WorkerRef,
        run: RunId,
        ask: WorkerRequestId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        self.write(|state| state.withdraw_worker_request(by, run, ask, lease, at))
    }

    async fn worker_request(&self, tenant: TenantId, ask: WorkerRequestId) -> Result<WorkerRequestRecord> {
        self.read(|state| state.worker_request(tenant, ask))
    }

    async fn open_worker_request(&self, tenant: TenantId, run: RunId) -> Result<Option<WorkerRequestRecord>> {
        self.read(|state| state.open_worker_request(tenant, run))
    }

    async fn answer_tool_call(
        &self,
        context: WriteContext,
        ask: WorkerRequestId,
        reply: Json,
    ) -> Result<WorkerRequestRecord> {
        self.write(|state| state.answer_tool_call(&context, ask, reply))
    }

    async fn add_input(&self, context: WriteContext, input: NewInput) -> Result<InputRecord> {
        self.write(|state| state.add_input(&context, input))
    }

    async fn input(&self, run: RunId, input: InputId) -> Result<InputRecord> {
        self.read(|state| state.input(run, input))
    }
}

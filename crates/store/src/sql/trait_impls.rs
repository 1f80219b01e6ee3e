//! Trait methods for channels and questions, which delegate to the writer and the readers.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    ChannelId, GrantId, InputId, Json, PermissionId, RunId, TenantId, Timestamp, WorkerRequestId, rules::run::WorkerRef,
};

use super::{SqlStore, channels, frames, grants, permissions, worker_requests, writer::UndoMode};
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

// === impl SqlStore ===

#[async_trait]
impl ChannelStore for SqlStore {
    async fn open_channel(&self, context: WriteContext, channel: NewChannel) -> Result<ChannelRecord> {
        self.write(move |transaction| transaction.open_channel(&context, &channel)).await
    }

    async fn resume_channel(&self, context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption> {
        self.write(move |transaction| transaction.resume_channel(&context, &resume)).await
    }

    async fn close_channel(&self, context: WriteContext, channel: ChannelId, reason: &str) -> Result<ChannelRecord> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.close_channel(&context, channel, &reason)).await
    }

    async fn close_connection(
        &self,
        context: WriteContext,
        connection: ChannelConnection,
        reason: &str,
    ) -> Result<bool> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.close_connection(&context, connection, &reason)).await
    }

    async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.close_channels(&reason, at)).await
    }

    async fn mark_channels_seen(
        &self,
        connections: Vec<ChannelConnection>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<()> {
        self.write(move |transaction| transaction.seen_channels(&connections, lease, at)).await
    }

    async fn channel_message(&self, context: WriteContext, channel: ChannelId, message: Json) -> Result<()> {
        self.write(move |transaction| transaction.channel_message(&context, channel, &message)).await
    }

    async fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord> {
        self.read(move |connection| channels::read_channel(connection, tenant, channel)).await
    }

    async fn channels(
        &self,
        tenant: TenantId,
        filter: ChannelFilter,
        page: Pagination,
    ) -> Result<ListPage<ChannelRecord>> {
        self.read(move |connection| channels::channels(connection, tenant, &filter, &page)).await
    }

    async fn channel_events(
        &self,
        tenant: TenantId,
        channel: ChannelId,
        after: i64,
        limit: usize,
    ) -> Result<ChannelEvents> {
        self.read(move |connection| channels::channel_events(connection, tenant, channel, after, limit)).await
    }

    async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames> {
        self.read(move |connection| frames::frames(connection, channel, after, limit)).await
    }

    async fn acknowledge(&self, connection: ChannelConnection, seq: i64) -> Result<()> {
        self.write(move |transaction| transaction.acknowledge(connection, seq)).await
    }

    async fn follows(&self, channel: ChannelId) -> Result<Vec<FollowRecord>> {
        self.read(move |connection| frames::follows(connection, channel)).await
    }

    async fn follower(&self, run: RunId) -> Result<Option<FollowRecord>> {
        self.read(move |connection| frames::follower(connection, run)).await
    }

    async fn push_events(
        &self,
        connection: ChannelConnection,
        run: RunId,
        upto: i64,
        limit: usize,
    ) -> Result<FollowRecord> {
        self.write(move |transaction| transaction.push_events(connection, run, upto, limit)).await
    }
}

#[async_trait]
impl WorkerRequestStore for SqlStore {
    async fn request_permission(
        &self,
        by: WorkerRef,
        permission: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PermissionRecord> {
        self.settle(UndoMode::Savepoint, move |transaction| transaction.request_permission(by, &permission, lease, at))
            .await
    }

    async fn decide_permission(
        &self,
        context: WriteContext,
        permission: PermissionId,
        decision: NewDecision,
    ) -> Result<PermissionRecord> {
        self.settle(UndoMode::Savepoint, move |transaction| {
            transaction.decide_permission(&context, permission, decision)
        })
        .await
    }

    async fn permission(&self, tenant: TenantId, permission: PermissionId) -> Result<PermissionRecord> {
        self.read(move |connection| permissions::read_permission(connection, tenant, permission)).await
    }

    async fn permissions(
        &self,
        tenant: TenantId,
        filter: PermissionFilter,
        page: Pagination,
    ) -> Result<ListPage<PermissionRecord>> {
        self.read(move |connection| permissions::permissions(connection, tenant, &filter, &page)).await
    }

    async fn pending_permissions(&self, tenant: TenantId) -> Result<u64> {
        self.read(move |connection| permissions::pending_permissions(connection, tenant)).await
    }

    async fn grants(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<GrantRecord>> {
        self.read(move |connection| grants::grants(connection, tenant, &page)).await
    }

    async fn revoke_grant(&self, context: WriteContext, grant: GrantId) -> Result<GrantRecord> {
        self.write(move |transaction| transaction.revoke_grant(&context, grant)).await
    }

    async fn create_worker_request(
        &self,
        by: WorkerRef,
        ask: NewWorkerRequest,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        self.settle(UndoMode::Savepoint, move |transaction| transaction.create_worker_request(by, ask, lease, at)).await
    }

    async fn withdraw_worker_request(
        &self,
        by: WorkerRef,
        run: RunId,
        ask: WorkerRequestId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        self.settle(UndoMode::Savepoint, move |transaction| {
            transaction.withdraw_worker_request(by, run, ask, lease, at)
        })
        .await
    }

    async fn worker_request(&self, tenant: TenantId, ask: WorkerRequestId) -> Result<WorkerRequestRecord> {
        self.read(move |connection| worker_requests::read_worker_request(connection, tenant, ask)).await
    }

    async fn open_worker_request(&self, tenant: TenantId, run: RunId) -> Result<Option<WorkerRequestRecord>> {
        self.read(move |connection| worker_requests::read_open_worker_request(connection, tenant, run)).await
    }

    async fn answer_tool_call(
        &self,
        context: WriteContext,
        ask: WorkerRequestId,
        reply: Json,
    ) -> Result<WorkerRequestRecord> {
        self.write(move |transaction| transaction.answer_tool_call(&context, ask, &reply)).await
    }

    async fn add_input(&self, context: WriteContext, input: NewInput) -> Result<InputRecord> {
        self.write(move |transaction| transaction.add_input(&context, input)).await
    }

    async fn input(&self, run: RunId, input: InputId) -> Result<InputRecord> {
        self.read(move |connection| worker_requests::read_input(connection, run, input)).await
    }
}

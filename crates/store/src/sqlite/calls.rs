//! The calls about channels and questions, handed to the writer and the readers.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    AskId, ChannelId, GrantId, InputId, Json, PermissionId, RunId, TenantId, Timestamp, rules::run::Worker,
};

use super::{Sqlite, asks, channels, frames, grants, permissions, writer::Undo};
use crate::{
    Asks, Channels, Context, Result,
    record::{
        Listed, Page,
        ask::{Ask, GrantRecord, Input, NewAsk, NewDecision, NewInput, NewPermission, Permission, PermissionFilter},
        channel::{Channel, ChannelEvents, ChannelFilter, Follow, Frames, NewChannel, Resume, Resumed},
    },
};

// === impl Sqlite ===

#[async_trait]
impl Channels for Sqlite {
    async fn open_channel(&self, context: Context, channel: NewChannel) -> Result<Channel> {
        self.write(move |transaction| transaction.open_channel(&context, &channel)).await
    }

    async fn resume_channel(&self, context: Context, resume: Resume) -> Result<Resumed> {
        self.write(move |transaction| transaction.resume_channel(&context, &resume)).await
    }

    async fn close_channel(&self, context: Context, channel: ChannelId, reason: &str) -> Result<Channel> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.close_channel(&context, channel, &reason)).await
    }

    async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.close_channels(&reason, at)).await
    }

    async fn seen_channels(&self, channels: Vec<ChannelId>, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.seen_channels(&channels, lease, at)).await
    }

    async fn channel_message(&self, context: Context, channel: ChannelId, message: Json) -> Result<()> {
        self.write(move |transaction| transaction.channel_message(&context, channel, &message)).await
    }

    async fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<Channel> {
        self.read(move |connection| channels::read_channel(connection, tenant, channel)).await
    }

    async fn channels(&self, tenant: TenantId, filter: ChannelFilter, page: Page) -> Result<Listed<Channel>> {
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

    async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<Frames> {
        self.read(move |connection| frames::frames(connection, channel, after, limit)).await
    }

    async fn acknowledge(&self, channel: ChannelId, seq: i64) -> Result<()> {
        self.write(move |transaction| transaction.acknowledge(channel, seq)).await
    }

    async fn follows(&self, channel: ChannelId) -> Result<Vec<Follow>> {
        self.read(move |connection| frames::follows(connection, channel)).await
    }

    async fn follower(&self, run: RunId) -> Result<Option<Follow>> {
        self.read(move |connection| frames::follower(connection, run)).await
    }

    async fn push_events(&self, channel: ChannelId, run: RunId, upto: i64, limit: usize) -> Result<Follow> {
        self.write(move |transaction| transaction.push_events(channel, run, upto, limit)).await
    }
}

#[async_trait]
impl Asks for Sqlite {
    async fn request_permission(
        &self,
        by: Worker,
        permission: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Permission> {
        self.settle(Undo::Savepoint, move |transaction| transaction.request_permission(by, &permission, lease, at))
            .await
    }

    async fn decide_permission(
        &self,
        context: Context,
        permission: PermissionId,
        decision: NewDecision,
    ) -> Result<Permission> {
        self.settle(Undo::Savepoint, move |transaction| transaction.decide_permission(&context, permission, decision))
            .await
    }

    async fn permission(&self, tenant: TenantId, permission: PermissionId) -> Result<Permission> {
        self.read(move |connection| permissions::read_permission(connection, tenant, permission)).await
    }

    async fn permissions(&self, tenant: TenantId, filter: PermissionFilter, page: Page) -> Result<Listed<Permission>> {
        self.read(move |connection| permissions::permissions(connection, tenant, &filter, &page)).await
    }

    async fn pending_permissions(&self, tenant: TenantId) -> Result<u64> {
        self.read(move |connection| permissions::pending_permissions(connection, tenant)).await
    }

    async fn grants(&self, tenant: TenantId, page: Page) -> Result<Listed<GrantRecord>> {
        self.read(move |connection| grants::grants(connection, tenant, &page)).await
    }

    async fn revoke_grant(&self, context: Context, grant: GrantId) -> Result<GrantRecord> {
        self.write(move |transaction| transaction.revoke_grant(&context, grant)).await
    }

    async fn ask(&self, by: Worker, ask: NewAsk, lease: Duration, at: Timestamp) -> Result<Ask> {
        self.settle(Undo::Savepoint, move |transaction| transaction.ask(by, ask, lease, at)).await
    }

    async fn withdraw_ask(&self, by: Worker, run: RunId, ask: AskId, lease: Duration, at: Timestamp) -> Result<Ask> {
        self.settle(Undo::Savepoint, move |transaction| transaction.withdraw_ask(by, run, ask, lease, at)).await
    }

    async fn asked(&self, tenant: TenantId, ask: AskId) -> Result<Ask> {
        self.read(move |connection| asks::read_ask(connection, tenant, ask)).await
    }

    async fn open_ask(&self, tenant: TenantId, run: RunId) -> Result<Option<Ask>> {
        self.read(move |connection| asks::read_open_ask(connection, tenant, run)).await
    }

    async fn answer_tool(&self, context: Context, ask: AskId, reply: Json) -> Result<Ask> {
        self.write(move |transaction| transaction.answer_tool(&context, ask, &reply)).await
    }

    async fn add_input(&self, context: Context, input: NewInput) -> Result<Input> {
        self.write(move |transaction| transaction.add_input(&context, input)).await
    }

    async fn input(&self, run: RunId, input: InputId) -> Result<Input> {
        self.read(move |connection| asks::read_input(connection, run, input)).await
    }
}

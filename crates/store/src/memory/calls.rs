//! The calls about channels and questions, handed to the state.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    AskId, ChannelId, GrantId, InputId, Json, PermissionId, RunId, TenantId, Timestamp, rules::run::Worker,
};

use super::Memory;
use crate::{
    Asks, Channels, Context, Result,
    record::{
        Listed, Page,
        ask::{Ask, GrantRecord, Input, NewAsk, NewDecision, NewInput, NewPermission, Permission, PermissionFilter},
        channel::{Channel, ChannelEvents, ChannelFilter, Follow, Frames, NewChannel, Resume, Resumed},
    },
};

// === impl Memory ===

#[async_trait]
impl Channels for Memory {
    async fn open_channel(&self, context: Context, channel: NewChannel) -> Result<Channel> {
        self.write(|state| state.open_channel(&context, channel))
    }

    async fn resume_channel(&self, context: Context, resume: Resume) -> Result<Resumed> {
        self.write(|state| state.resume_channel(&context, resume))
    }

    async fn close_channel(&self, context: Context, channel: ChannelId, reason: &str) -> Result<Channel> {
        self.write(|state| state.close_channel(&context, channel, reason))
    }

    async fn close_channels(&self, reason: &str, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.close_channels(reason, at);
            Ok(())
        })
    }

    async fn seen_channels(&self, channels: Vec<ChannelId>, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.seen_channels(&channels, lease, at);
            Ok(())
        })
    }

    async fn channel_message(&self, context: Context, channel: ChannelId, message: Json) -> Result<()> {
        self.write(|state| state.channel_message(&context, channel, &message))
    }

    async fn channel(&self, tenant: TenantId, channel: ChannelId) -> Result<Channel> {
        self.read(|state| state.channel(tenant, channel))
    }

    async fn channels(&self, tenant: TenantId, filter: ChannelFilter, page: Page) -> Result<Listed<Channel>> {
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

    async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<Frames> {
        self.read(|state| state.frames(channel, after, limit))
    }

    async fn acknowledge(&self, channel: ChannelId, seq: i64) -> Result<()> {
        self.write(|state| state.acknowledge(channel, seq))
    }

    async fn follows(&self, channel: ChannelId) -> Result<Vec<Follow>> {
        self.read(|state| state.follows(channel))
    }

    async fn follower(&self, run: RunId) -> Result<Option<Follow>> {
        self.read(|state| Ok(state.follower(run)))
    }

    async fn push_events(&self, channel: ChannelId, run: RunId, upto: i64, limit: usize) -> Result<Follow> {
        self.write(|state| state.push_events(channel, run, upto, limit))
    }
}

#[async_trait]
impl Asks for Memory {
    async fn request_permission(
        &self,
        by: Worker,
        permission: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Permission> {
        self.write(|state| state.request_permission(by, permission, lease, at))
    }

    async fn decide_permission(
        &self,
        context: Context,
        permission: PermissionId,
        decision: NewDecision,
    ) -> Result<Permission> {
        self.write(|state| state.decide_permission(&context, permission, decision))
    }

    async fn permission(&self, tenant: TenantId, permission: PermissionId) -> Result<Permission> {
        self.read(|state| state.permission(tenant, permission))
    }

    async fn permissions(&self, tenant: TenantId, filter: PermissionFilter, page: Page) -> Result<Listed<Permission>> {
        self.read(|state| state.permissions(tenant, &filter, &page))
    }

    async fn pending_permissions(&self, tenant: TenantId) -> Result<u64> {
        self.read(|state| Ok(state.pending_permissions(tenant)))
    }

    async fn grants(&self, tenant: TenantId, page: Page) -> Result<Listed<GrantRecord>> {
        self.read(|state| state.grants(tenant, &page))
    }

    async fn revoke_grant(&self, context: Context, grant: GrantId) -> Result<GrantRecord> {
        self.write(|state| state.revoke_grant(&context, grant))
    }

    async fn ask(&self, by: Worker, ask: NewAsk, lease: Duration, at: Timestamp) -> Result<Ask> {
        self.write(|state| state.ask(by, ask, lease, at))
    }

    async fn withdraw_ask(&self, by: Worker, run: RunId, ask: AskId, lease: Duration, at: Timestamp) -> Result<Ask> {
        self.write(|state| state.withdraw_ask(by, run, ask, lease, at))
    }

    async fn asked(&self, tenant: TenantId, ask: AskId) -> Result<Ask> {
        self.read(|state| state.asked(tenant, ask))
    }

    async fn open_ask(&self, tenant: TenantId, run: RunId) -> Result<Option<Ask>> {
        self.read(|state| state.open_ask(tenant, run))
    }

    async fn answer_tool(&self, context: Context, ask: AskId, reply: Json) -> Result<Ask> {
        self.write(|state| state.answer_tool(&context, ask, reply))
    }

    async fn add_input(&self, context: Context, input: NewInput) -> Result<Input> {
        self.write(|state| state.add_input(&context, input))
    }

    async fn input(&self, run: RunId, input: InputId) -> Result<Input> {
        self.read(|state| state.input(run, input))
    }
}

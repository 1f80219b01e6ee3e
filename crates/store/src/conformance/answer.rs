//! What a step was answered with, so that two answers can be compared.

use attache_protocol::{AgentId, TenantId};

use crate::{
    Error,
    record::{
        Account, Artifact, Beat, Claimed, Conversation, Created, Credential, Key, Live, LogPage, Message,
        PairingRequest, RunEvents, RunRecord, Runtime, Swept,
        ask::{Ask, GrantRecord, Input, Permission},
        channel::{Channel, ChannelEvents, Follow, Frames, Resumed},
        delivery::Delivery,
        people::{AccessRules, User},
        spending::{Quota, Usage},
    },
};

pub type Answer = Result<Value, Error>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Nothing,
    Status(attache_protocol::rules::run::Status),
    Tenant(TenantId),
    Account(Box<Account>),
    PairingRequest(PairingRequest),
    PairingCode(TenantId, AgentId),
    Runtime(Box<Runtime>),
    Beat(Beat),
    Credential(Option<Credential>),
    Key(Key),
    Created(Box<Created>),
    Claimed(Option<Box<Claimed>>),
    Run(Box<RunRecord>),
    Live(Live),
    Swept(Swept),
    RunEvents(RunEvents),
    Log(LogPage),
    Conversation(Conversation),
    Message(Message),
    Artifact(Box<Artifact>),
    Channel(Box<Channel>),
    Resumed(Box<Resumed>),
    ChannelEvents(ChannelEvents),
    Frames(Frames),
    Follows(Vec<Follow>),
    Follower(Option<Follow>),
    Permission(Box<Permission>),
    Count(u64),
    Grant(Box<GrantRecord>),
    Ask(Box<Ask>),
    Input(Input),
    User(User),
    AccessRules(Option<AccessRules>),
    Quotas(Vec<Quota>),
    Usage(Vec<Usage>),
    Delivery(Box<Delivery>),
    DueDeliveries(Vec<Delivery>),
    /// The pages of a list.
    Accounts(Vec<Vec<Account>>),
    Runtimes(Vec<Vec<Runtime>>),
    Keys(Vec<Vec<Key>>),
    Runs(Vec<Vec<RunRecord>>),
    Conversations(Vec<Vec<Conversation>>),
    Messages(Vec<Vec<Message>>),
    Artifacts(Vec<Vec<Artifact>>),
    Channels(Vec<Vec<Channel>>),
    Permissions(Vec<Vec<Permission>>),
    Grants(Vec<Vec<GrantRecord>>),
    Users(Vec<Vec<User>>),
    Deliveries(Vec<Vec<Delivery>>),
}

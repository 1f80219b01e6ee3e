//! Removes runs, conversations, artifacts, keys and grants, with all related data.

use std::collections::BTreeMap;

use attache_protocol::{
    ArtifactId, ConversationId, GrantId, KeyId, MessageId, RunId, TenantId, Timestamp, WorkspaceId,
    rules::{permission::GrantReach, retention::is_key_over},
};

use super::state::ModelState;
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    error::InUseReason,
    record::{
        ArtifactRecord, Class, ConversationRecord, RetentionLimits, RetentionResult, RunRecord, SpokenBy,
        retention::ITEMS_PER_TRANSACTION,
    },
};

/// Something that is old enough to be removed.
#[derive(Debug, Clone, Copy)]
enum ExpiredItem {
    Run(RunId),
    Message(MessageId),
    Conversation(ConversationId),
    Artifact(ArtifactId),
    Key(KeyId),
    Grant(GrantId),
}

// === impl ModelState ===

impl ModelState {
    pub(super) fn remove_old(&mut self, class: Class, retention: &RetentionLimits, retained: &mut RetentionResult) {
        let mut old = self.old(class, retention);
        retained.more |= old.len() > retention.max_rows;
        old.truncate(retention.max_rows);
        for part in old.chunks(ITEMS_PER_TRANSACTION) {
            let mut counts: BTreeMap<TenantId, u64> = BTreeMap::new();
            for (tenant, item) in part {
                *counts.entry(*tenant).or_default() += 1;
                match item {
                    ExpiredItem::Run(run) => self.remove_run(*run, &mut retained.blobs),
                    ExpiredItem::Message(message) => self.messages.remove(message),
                    ExpiredItem::Conversation(conversation) => {
                        self.remove_conversation(*conversation, &mut retained.blobs);
                    }
                    ExpiredItem::Artifact(artifact) => self.remove_artifact(*artifact, &mut retained.blobs),
                    ExpiredItem::Key(key) => self.keys.remove(key),
                    ExpiredItem::Grant(grant) => self.grants.remove(grant),
                }
            }
            for (tenant, count) in counts {
                self.append(tenant, retention.at, WriteContext::SYSTEM, entry::removal::by_age(class, count));
            }
        }
    }

    /// In order of creation.
    fn old(&self, class: Class, retention: &RetentionLimits) -> Vec<(TenantId, ExpiredItem)> {
        let before = retention.before(class);
        let is_old = |at: Option<Timestamp>| at.is_some_and(|at| at < before);
        match class {
            Class::Runs => {
                let records = self.runs.iter().map(|run| &run.record);
                let is_free = |run: &RunRecord| {
                    self.keeps_run(run, self.goes_with(run), retention.at).is_none() && !self.has_key(run)
                };
                let old = records.filter(|run| is_old(run.ended_at) && is_free(run));
                old.map(|run| (run.tenant, ExpiredItem::Run(run.id))).collect()
            }
            Class::Messages => {
                let messages = self.messages.values().filter(|(_, message)| is_old(Some(message.created_at)));
                messages.map(|(of, message)| (self.tenant_of(*of), ExpiredItem::Message(message.id))).collect()
            }
            Class::Conversations => {
                let old = self.conversations.values().filter(|(_, conversation)| {
                    is_old(Some(conversation.created_at)) && !self.is_used(conversation.id, before)
                });
                old.map(|(tenant, conversation)| (*tenant, ExpiredItem::Conversation(conversation.id))).collect()
            }
            Class::Artifacts => {
                let artifacts = self.artifacts.values();
                let old =
                    artifacts.filter(|(_, artifact)| is_old(Some(artifact.created_at)) && self.is_loose(artifact));
                old.map(|(tenant, artifact)| (*tenant, ExpiredItem::Artifact(artifact.id))).collect()
            }
            Class::Keys => {
                let keys = self.keys.values();
                let old = keys.filter(|stored| is_old(stored.key.revoked_at) || is_old(stored.key.expires_at));
                old.map(|stored| (stored.tenant, ExpiredItem::Key(stored.key.id))).collect()
            }
            Class::Grants => {
                let grants = self.grants.values();
                let old = grants.filter(|(_, record)| is_old(record.revoked_at) || is_old(record.grant.until));
                old.map(|(tenant, record)| (*tenant, ExpiredItem::Grant(record.grant.id))).collect()
            }
        }
    }

    fn tenant_of(&self, conversation: ConversationId) -> TenantId {
        match self.conversations.get(&conversation) {
            Some((tenant, _)) => *tenant,
            None => self.runs[self.places[&RunId::from_uuid(conversation.uuid())]].record.tenant,
        }
    }

    /// Whether the run's idempotency key is remembered.
    fn has_key(&self, run: &RunRecord) -> bool {
        let place = self.places[&run.id];
        self.idempotency.values().any(|of| *of == place) && !is_key_over(run.created_at, self.clock)
    }

    /// The run's own conversation, unless it has other runs.
    fn goes_with(&self, run: &RunRecord) -> Option<ConversationId> {
        let own = run.id.own_conversation();
        let is_shared = self.runs.iter().any(|other| other.record.id != run.id && other.record.conversation == own);
        (!is_shared).then_some(own)
    }

    /// Why the run can't be removed together with this conversation.
    fn keeps_run(&self, run: &RunRecord, with: Option<ConversationId>, at: Timestamp) -> Option<InUseReason> {
        if !run.state.status().is_terminal() {
            return Some(InUseReason::Live);
        }
        let is_live_child =
            |child: &RunRecord| child.spec.parent == Some(run.id) && !child.state.status().is_terminal();
        if self.runs.iter().any(|child| is_live_child(&child.record)) {
            return Some(InUseReason::LiveChild);
        }
        let stands = self.grants.values().any(|(_, record)| {
            let goes_further = match record.grant.reach {
                GrantReach::Run(_) => false,
                GrantReach::Conversation { conversation, .. } => Some(conversation) != with,
                GrantReach::Agent(_) => true,
            };
            goes_further
                && record.revoked_at.is_none()
                && record.grant.until.is_none_or(|until| until > at)
                && self.permissions.get(&record.permission).is_some_and(|(_, made_by)| made_by.run == run.id)
        });
        stands.then_some(InUseReason::Grant)
    }

    fn is_used(&self, conversation: ConversationId, since: Timestamp) -> bool {
        let workspace = conversation.workspace();
        self.runs.iter().any(|run| run.record.conversation == conversation)
            || self.messages.values().any(|(of, message)| *of == conversation && message.created_at >= since)
            || self.artifacts.values().any(|(_, known)| known.workspace == workspace && known.created_at >= since)
    }

    /// Whether no run or worker depends on the artifact.
    fn is_loose(&self, artifact: &ArtifactRecord) -> bool {
        let conversation = artifact.workspace.conversation();
        let owner = RunId::from_uuid(conversation.uuid());
        let is_live = |run: &RunRecord| run.conversation == conversation && !run.state.status().is_terminal();
        artifact.produced_by.is_none()
            && !self.places.contains_key(&owner)
            && !self.runs.iter().any(|run| is_live(&run.record))
    }

    pub(super) fn delete_run(&mut self, context: &WriteContext, run: RunId) -> Result<RetentionResult> {
        let place = self.place(context.tenant, run)?;
        let record = &self.runs[place].record;
        if let Some(used) = self.keeps_run(record, self.goes_with(record), context.at) {
            return Err(Error::InUse(used));
        }
        let mut retained = RetentionResult::default();
        self.delete(context, run, &mut retained.blobs);
        Ok(retained.sorted())
    }

    pub(super) fn delete_conversation(
        &mut self,
        context: &WriteContext,
        id: ConversationId,
    ) -> Result<RetentionResult> {
        self.conversation(context.tenant, id)?;
        let own = RunId::from_uuid(id.uuid());
        let records = || self.runs.iter().map(|run| &run.record).filter(|run| run.conversation == id);
        if let Some(used) = records().find_map(|run| self.keeps_run(run, Some(id), context.at)) {
            return Err(Error::InUse(used));
        }
        // The run that owns the conversation goes last.
        let mut runs: Vec<RunId> = records().map(|run| run.id).filter(|run| *run != own).collect();
        runs.extend(records().map(|run| run.id).find(|run| *run == own));
        let mut retained = RetentionResult { more: runs.len() > ITEMS_PER_TRANSACTION, blobs: Vec::new() };
        for run in runs.into_iter().take(ITEMS_PER_TRANSACTION) {
            self.delete(context, run, &mut retained.blobs);
        }
        if !retained.more {
            self.remove_conversation(id, &mut retained.blobs);
            self.append(context.tenant, context.at, &context.actor, entry::removal::conversation_deleted(id));
        }
        Ok(retained.sorted())
    }

    /// Removes a run on request, even while its key is still remembered.
    fn delete(&mut self, context: &WriteContext, run: RunId, blobs: &mut Vec<[u8; 32]>) {
        let place = self.places[&run];
        let record = &self.runs[place].record;
        let (agent, created_at) = (record.agent, record.created_at);
        let key = self.idempotency.iter().find(|(_, of)| **of == place).map(|(key, _)| *key);
        self.deleted_keys.extend(key.map(|key| (key, created_at)));
        self.remove_run(run, blobs);
        self.append(context.tenant, context.at, &context.actor, entry::removal::task_deleted(run, agent));
        self.woken.push(WakeHint::Run(run));
    }

    fn remove_run(&mut self, id: RunId, blobs: &mut Vec<[u8; 32]>) {
        let place = self.places.remove(&id).expect("it was just found");
        let mut run = self.runs.remove(place).expect("it was just found");
        self.idempotency.retain(|_, of| *of != place);
        for child in self.runs.places() {
            let record = &mut self.runs[child].record;
            record.spec.parent = record.spec.parent.filter(|parent| *parent != id);
        }
        for artifact in self.artifacts_with(|artifact| artifact.produced_by == Some(id)) {
            self.remove_artifact(artifact, blobs);
        }
        let own = id.own_conversation();
        if run.record.conversation == own {
            if self.runs.iter().any(|other| other.record.conversation == own) {
                let (user, created_at) = (run.record.user, run.record.created_at);
                let agents = BTreeMap::new();
                let spoken_by = SpokenBy::default();
                let conversation =
                    ConversationRecord { id: own, title: None, metadata: None, user, agents, spoken_by, created_at };
                self.conversations.insert(own, (run.record.tenant, conversation));
            } else {
                self.remove_conversation(own, blobs);
            }
        }
        self.follows.remove(&id);
        self.pushes.remove(&id);
        self.peer_tasks.remove(&id);
        self.worktree_decisions.retain(|decision| decision.run != id);
        self.deliveries.retain(|_, delivery| delivery.run != id);
        self.permissions.retain(|(_, permission)| permission.run != id);
        self.asks.retain(|(_, ask)| ask.run != id);
        self.inputs.retain(|given| given.input.run != id);
        self.grants.retain(|(_, record)| record.grant.reach != GrantReach::Run(id));
        run.chunks.clear();
        self.removed_runs.push(run);
    }

    /// With all related data. It need not have been created explicitly. If it was, it may get its id again, and agents
    /// remember it by that: who spoke in it isn't forgotten.
    fn remove_conversation(&mut self, id: ConversationId, blobs: &mut Vec<[u8; 32]>) {
        let workspace: WorkspaceId = id.workspace();
        for artifact in self.artifacts_with(|artifact| artifact.workspace == workspace) {
            self.remove_artifact(artifact, blobs);
        }
        self.messages.retain(|(of, _)| *of != id);
        let is_of =
            |reach: GrantReach| matches!(reach, GrantReach::Conversation { conversation, .. } if conversation == id);
        self.grants.retain(|(_, record)| !is_of(record.grant.reach));
        self.conversation_agents.remove(&id);
        if self.conversations.get(&id).is_none_or(|(_, conversation)| conversation.user.is_none()) {
            self.conversations_of_others.remove(&id);
        }
        self.conversations.remove(&id);
    }

    fn artifacts_with(&self, wanted: impl Fn(&ArtifactRecord) -> bool) -> Vec<ArtifactId> {
        let found = self.artifacts.values().filter(|(_, artifact)| wanted(artifact));
        found.map(|(_, artifact)| artifact.id).collect()
    }

    fn remove_artifact(&mut self, id: ArtifactId, blobs: &mut Vec<[u8; 32]>) {
        blobs.extend(self.artifacts.get(&id).map(|(_, artifact)| artifact.blake3));
        self.artifacts.remove(&id);
    }

    pub(super) fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Vec<[u8; 32]> {
        let is_used = |blob: &[u8; 32]| self.artifacts.values().any(|(_, artifact)| artifact.blake3 == *blob);
        blobs.into_iter().filter(|blob| !is_used(blob)).collect()
    }
}

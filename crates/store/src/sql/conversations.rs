//! Writes on conversations, messages and artifacts.

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{AgentId, ArtifactId, ConversationId, Json, TenantId, Timestamp};
use rusqlite::params;

use super::{
    packed_state::StoredRunSpec,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WriteContext, entry,
    record::{
        ArtifactRecord, ConversationRecord, MessageRecord, NewArtifact, NewConversation, NewMessage, SpokenBy, join,
    },
};

pub(super) const ARTIFACT: &str = "uid, workspace, name, media_type, size, blake3, created, \
     (select e.run from artifact_edges e where e.artifact = artifacts.id and e.kind = 0 order by e.no desc limit 1) \
     from artifacts";

const PRODUCED: i64 = 0;

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<ConversationRecord> {
        read_conversation(self.connection, tenant, conversation)
    }

    pub(super) fn create_conversation(
        &mut self,
        context: &WriteContext,
        new: &NewConversation,
    ) -> Result<ConversationRecord> {
        self.connection.execute(
            "insert into conversations (id, tenant, title, metadata, created, user) values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                new.title,
                new.metadata.as_ref().map(Json::get),
                context.at.millis(),
                context.user.map(|user| IdBytes(user.uuid())),
            ],
        )?;
        if let Some(agent) = new.agent {
            self.join_conversation(new.id, agent, context.at)?;
        }
        self.log(context.tenant, context.stamp(), &entry::conversation_created(new.id), None)?;
        self.conversation(context.tenant, new.id)
    }

    /// Records that the agent has had a run in the conversation.
    pub(super) fn join_conversation(&self, conversation: ConversationId, agent: AgentId, at: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into conversation_agents (conversation, agent, joined) values (?1, ?2, ?3)
                 on conflict (conversation, agent) do update
                    set joined = case when excluded.joined < conversation_agents.joined then excluded.joined
                        else conversation_agents.joined end",
            )?
            .execute(params![IdBytes(conversation.uuid()), IdBytes(agent.uuid()), at.millis()])?;
        Ok(())
    }

    /// Records that others than its user have spoken in the conversation. It stays when their runs are deleted.
    pub(super) fn note_others(&self, conversation: ConversationId) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into conversations_of_others (conversation) values (?1) on conflict (conversation) do nothing",
            )?
            .execute([IdBytes(conversation.uuid())])?;
        Ok(())
    }

    pub(super) fn add_message(&mut self, context: &WriteContext, new: &NewMessage) -> Result<MessageRecord> {
        self.conversation(context.tenant, new.conversation)?;
        self.connection
            .prepare_cached(
                "insert into messages (uid, tenant, conversation, role, author, text, metadata, created)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                IdBytes(new.conversation.uuid()),
                rows::message_role_number(new.role),
                context.actor.to_string(),
                new.text,
                new.metadata.as_ref().map(Json::get),
                context.at.millis(),
            ])?;
        self.log(context.tenant, context.stamp(), &entry::message_added(new.conversation, new.id), None)?;
        Ok(MessageRecord {
            id: new.id,
            role: new.role,
            author: context.actor.clone(),
            text: new.text.clone(),
            metadata: new.metadata.clone(),
            created_at: context.at,
        })
    }

    pub(super) fn add_artifact(&mut self, context: &WriteContext, new: &NewArtifact) -> Result<ArtifactRecord> {
        self.conversation(context.tenant, new.workspace.conversation())?;
        self.connection
            .prepare_cached(
                "insert into artifacts (uid, tenant, workspace, name, media_type, size, blake3, created)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                IdBytes(new.workspace.uuid()),
                new.name,
                new.media_type,
                i64::try_from(new.size).unwrap_or(i64::MAX),
                new.blake3,
                context.at.millis(),
            ])?;
        let artifact = ArtifactRecord {
            id: new.id,
            workspace: new.workspace,
            name: new.name.clone(),
            media_type: new.media_type.clone(),
            size: new.size,
            blake3: new.blake3,
            produced_by: None,
            created_at: context.at,
        };
        self.log(context.tenant, context.stamp(), &entry::artifact_changed(&artifact), None)?;
        Ok(artifact)
    }

    /// Records that a run produced these artifacts, all in its own workspace.
    pub(super) fn link_artifacts(&self, run: &RunState, artifacts: &[ArtifactId]) -> Result<()> {
        if artifacts.is_empty() {
            return Ok(());
        }
        let conversation: Option<[u8; 16]> = self
            .connection
            .prepare_cached("select conversation from task_runs where id = ?1")?
            .query_row([run.row], |row| row.get(0))?;
        let workspace = conversation.unwrap_or_else(|| run.id.uuid().into_bytes());
        for artifact in artifacts {
            let row: i64 = self
                .connection
                .prepare_cached("select id from artifacts where uid = ?1 and tenant = ?2 and workspace = ?3")?
                .query_row(params![IdBytes(artifact.uuid()), IdBytes(run.tenant.uuid()), workspace], |row| row.get(0))
                .optional()?
                .ok_or_else(|| Error::ForeignArtifact(artifact.to_string()))?;
            self.connection
                .prepare_cached("insert into artifact_edges (artifact, kind, run) values (?1, ?2, ?3)")?
                .execute(params![row, PRODUCED, IdBytes(run.id.uuid())])?;
        }
        Ok(())
    }
}

/// The agents of a conversation, each as 32 hexadecimal digits and when it joined.
macro_rules! conversation_agents {
    ($id:literal) => {
        concat!(
            "(select string_agg(hex(m.agent) || m.joined, ' ') from conversation_agents m where m.conversation = ",
            $id,
            ")"
        )
    };
}

/// Whether others have spoken in a conversation. For the first run of one of its own, the run itself tells.
macro_rules! spoken_by_others {
    ($id:literal) => {
        concat!("exists (select 1 from conversations_of_others o where o.conversation = ", $id, ")")
    };
}

pub(super) const CONVERSATION: &str = concat!(
    "id, title, metadata, created, user, ",
    conversation_agents!("conversations.id"),
    ", ",
    spoken_by_others!("conversations.id"),
    " from conversations"
);

/// A conversation created explicitly, or a run's own.
pub(super) fn read_conversation(
    connection: &Connection,
    tenant: TenantId,
    conversation: ConversationId,
) -> Result<ConversationRecord> {
    let key = || [IdBytes(conversation.uuid()), IdBytes(tenant.uuid())];
    let made = connection
        .prepare_cached(&format!("select {CONVERSATION} where id = ?1 and tenant = ?2"))?
        .query_row(key(), rows::conversation)
        .optional()?;
    if let Some(made) = made {
        return Ok(made);
    }
    connection
        .prepare_cached(concat!(
            "select r.created, r.user, r.agent, ",
            conversation_agents!("r.uid"),
            ", ",
            spoken_by_others!("r.uid"),
            ", r.request from task_runs r where r.uid = ?1 and r.tenant = ?2 and r.conversation is null"
        ))?
        .query_row(key(), |row| {
            let (mut agents, created_at) = (rows::agents(row, 3)?, rows::time(row, 0)?);
            let user = rows::maybe_user(row, 1)?;
            let is_in_person = user.is_some() && row.get::<StoredRunSpec<'_>>(5).is_ok_and(|spec| spec.in_person);
            join(&mut agents, rows::agent_id(row.get(2)?), created_at);
            Ok(ConversationRecord {
                id: conversation,
                title: None,
                metadata: None,
                user,
                agents,
                spoken_by: if is_in_person { rows::spoken_by(row, 4)? } else { SpokenBy::Others },
                created_at,
            })
        })
        .optional()?
        .ok_or(Error::NotFound)
}

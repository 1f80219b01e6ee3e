//! Who requested a run, as the owner of a device would name them in an allow-list.

use attache_protocol::{
    Actor, AgentId, RunId, UserId,
    wire::{awcp, run::ClaimedRun},
};
use attache_store::record::{AgentRef, ClaimedRunRecord, RunRecord, SpokenBy, user::UserRef};

use super::conversation::is_instructed_in_person;
use crate::{Error, Handle, Principal, Result, error::about, identity::Permit, render};

impl Handle {
    /// The claim as its runtime receives it. A delegator is shown by name, because the device's owner decides by name
    /// whose folders to accept.
    pub(crate) async fn show_claim(&self, claimed: ClaimedRunRecord) -> Result<Option<ClaimedRun>> {
        let run = &claimed.run;
        let caller = match (run.spec.task_type.as_str(), &run.caller, run.user) {
            (awcp::TASK_TYPE, Actor::Agent(id), _) => {
                let agent = self.store().account(run.tenant, AgentRef::Id(*id)).await.map_err(about("agent"))?;
                Some(format!("agent:{}", agent.name))
            }
            (awcp::TASK_TYPE, _, Some(user)) => {
                let user = self.store().user(run.tenant, UserRef::Id(user)).await.map_err(about("user"))?;
                Some(format!("user:{}", user.name))
            }
            _ => None,
        };
        let (mcp, for_owner) = (self.tools_for(run)?, self.is_by_owner(run, claimed.instructing_owner).await);
        Ok(render::claimed(claimed).map(|shown| match caller {
            Some(caller) => ClaimedRun { caller, mcp, for_owner, ..shown },
            None => ClaimedRun { mcp, for_owner, ..shown },
        }))
    }

    /// Whether the agent's owner created the run in person: with a credential of their own, not through an agent, another
    /// run, a token, or a key that someone else issued; and whether they paired the device, which an agent that is given
    /// to someone else keeps. If that can't be told any more, they didn't. `owner` is set only if nothing that the agent is
    /// told with every task, or that is approved in advance, is somebody else's.
    async fn is_by_owner(&self, run: &RunRecord, owner: Option<UserId>) -> bool {
        let Some(owner) = owner else { return false };
        let (Actor::Key(key), Some(runtime)) = (&run.caller, run.runtime) else { return false };
        if !run.spec.in_person || run.spec.parent.is_some() || run.user != Some(owner) {
            return false;
        }
        if !self.is_own_key(*key, owner).await.unwrap_or(false) {
            return false;
        }
        let device = self.store().runtime(run.tenant, runtime).await;
        device.is_ok_and(|device| device.paired_by == Some(owner)) && self.speaks_alone(run, owner).await
    }

    /// Whether a run is by its agent's owner in person, and not in a folder that somebody lends.
    pub(super) async fn is_own_work(&self, by: &Principal, run: RunId) -> Result<bool> {
        let run = self.store().run(by.tenant, run).await.map_err(about("run"))?;
        let agent = self.store().account(run.tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?;
        Ok(run.spec.task_type != awcp::TASK_TYPE && self.is_by_owner(&run, agent.instructing_owner()).await)
    }

    /// What an agent's owner started in person may be outside the device's walls, with all they may do there. So only
    /// they say anything to it, and approve its steps in advance, also once the agent was given to somebody else. `None` for
    /// other runs.
    pub(super) async fn only_speaker(&self, run: &RunRecord) -> Result<Option<UserId>> {
        let Some(person) = run.user.filter(|_| run.spec.in_person && run.spec.parent.is_none()) else {
            return Ok(None);
        };
        let agent = self.store().account(run.tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?;
        if agent.owner == Some(person) {
            return Ok(Some(person));
        }
        let Some(runtime) = run.runtime else { return Ok(None) };
        let device = self.store().runtime(run.tenant, runtime).await.map_err(about("runtime"))?;
        Ok(device.paired_by.filter(|paired_by| *paired_by == person))
    }

    /// The run, if the caller may tell its agent something: every answer, input and comment.
    pub(crate) async fn find_listener(&self, permit: &Permit<'_>, run: RunId) -> Result<RunRecord> {
        let run = self.find_run(permit, run).await?;
        self.check_listener(permit.by(), &run).await?;
        Ok(run)
    }

    /// The same for a run that was found.
    pub(super) async fn check_listener(&self, by: &Principal, run: &RunRecord) -> Result<()> {
        if by.role().is_some() {
            let agent = self.store().account(by.tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?;
            self.check_caller(by, &agent).await?;
        }
        self.check_speaker(by, run).await
    }

    /// Refuses what others want to say to a run of which only its owner may.
    async fn check_speaker(&self, by: &Principal, run: &RunRecord) -> Result<()> {
        match self.only_speaker(run).await? {
            Some(person) if !by.is_in_person_as(person) => Err(not_its_speaker(by, person)),
            _ => Ok(()),
        }
    }

    /// The same for the comment of a standing denial, which later runs of the agent hear if its maker may speak to them.
    pub(crate) async fn check_later_speaker(&self, by: &Principal, agent: AgentId) -> Result<()> {
        if by.is_in_person() || by.user.is_none() {
            return Ok(());
        }
        let agent = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        match agent.owner {
            Some(owner) if by.user == Some(owner) => Err(not_its_speaker(by, owner)),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether everything in the run's conversation, which its agent may remember, was said by this person, and the
    /// instructions in it are theirs.
    async fn speaks_alone(&self, run: &RunRecord, person: UserId) -> bool {
        let conversation = self.store().conversation(run.tenant, run.conversation).await;
        conversation.is_ok_and(|conversation| {
            let is_alone = conversation.user == Some(person) && conversation.spoken_by == SpokenBy::User;
            is_alone && is_instructed_in_person(&conversation)
        })
    }
}

fn not_its_speaker(by: &Principal, person: UserId) -> Error {
    if by.user == Some(person) {
        let message =
            "The person who started this run may work with all of their rights here, and this credential has fewer.";
        return Error::forbidden(message).hint(
            "Sign in, or use a key of yours with your own role and without scopes: a token, or a key that somebody else made, \
             isn't enough. You can approve, deny or cancel without a comment.",
        );
    }
    Error::forbidden("Only the person who started this run can send its agent input or a comment.").hint(
        "It may work with all of their rights on their device. You can approve, deny or cancel without a comment.",
    )
}

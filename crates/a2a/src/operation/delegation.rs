//! Messages that delegate a folder: AWCP's INVITE becomes a run of its own type, for runtimes that support it.

use std::time::Duration;

use attache_a2a_wire::Message;
use attache_protocol::wire::awcp::{AwcpInvite, AwcpMessage, AwcpParseError, EXTENSION};

use crate::{
    agent_request::AgentRequest,
    error::{Error, Result},
};

/// Extra time for mounting and reporting, besides the lease itself.
const LEASE_SLACK: Duration = Duration::from_secs(5 * 60);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl AgentRequest {
    /// The invitation in a message about delegating a folder. `None` if the message is about anything else.
    pub(super) fn invitation(&self, message: &Message) -> Result<Option<AwcpInvite>> {
        let is_named = |uris: &[String]| uris.iter().any(|uri| uri == EXTENSION);
        if !is_named(&self.wanted) && !is_named(&message.extensions) {
            return Ok(None);
        }
        let said = match AwcpMessage::among(&message.parts) {
            Err(AwcpParseError::NoAwcp) => return Ok(None),
            said => said,
        };
        if !self.face.declared.iter().any(|uri| uri == EXTENSION) {
            let problem = format!(
                "names {EXTENSION}, which this agent does not speak now: its card has to list it. Its owner lets it work in \
                 folders of others with `attache runtime start --collaborator`"
            );
            return Err(Error::invalid("message.extensions", problem));
        }
        match said {
            Ok(AwcpMessage::Invite(invite)) => Ok(Some(invite)),
            Ok(other) => {
                let problem = format!(
                    "carry {} without a task: send it with the `taskId` of its delegation, which begins with INVITE",
                    other.kind()
                );
                Err(Error::invalid("message.parts", problem))
            }
            Err(unreadable) => Err(Error::invalid("message.parts", format!("cannot be read as AWCP: {unreadable}"))),
        }
    }
}

/// The maximum duration of the run in milliseconds: that of the lease, plus some slack.
pub(super) fn timeout_ms(invite: &AwcpInvite) -> u64 {
    let time = Duration::from_secs(invite.lease.ttl_seconds).saturating_add(LEASE_SLACK).min(MONTH);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! An agent registers by name and gets its own key, with which it calls others and works over a channel.

use std::net::IpAddr;

use attache_protocol::{
    AgentId, Code, Json, Secret,
    pairing::PairingCode,
    secret::Kind,
    wire::{account::AccountRequest, channel::RegisterAgent},
};
use attache_store::record::{AccountRecord, AgentRef, NewRuntime, PairingProof, RuntimeKind};

use crate::{Error, Handle, Principal, Result, check, identity::Action};

const MAX_PART: usize = 16 * 1024;

/// A registered agent. The key is shown only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRegistration {
    pub api_key: Secret<String>,
    /// The name as requested.
    pub agent_id: String,
    pub account_id: AgentId,
}

impl Handle {
    /// With a pairing code, registers the code's agent. Without one, `by` must be a person, and the agent is created if
    /// the name is free. Registering again issues a new key and revokes the previous one.
    pub async fn register_agent(
        &self,
        by: Option<&Principal>,
        request: RegisterAgent,
        address: IpAddr,
    ) -> Result<AgentRegistration> {
        check_request(&request)?;
        let labels = labels(&request)?;
        if let Some(token) = &request.pairing_token {
            if request.url.is_some() {
                return Err(Error::invalid(
                    "url",
                    "registers an outside agent, which requires a person's key instead of a pairing code",
                ));
            }
            return self.register_by_code(token, request.agent_id.as_deref(), labels, address).await;
        }
        let Some(by) = by else {
            return Err(Error::unauthenticated("Registering an agent requires a person's key or a `pairing_token`."));
        };
        by.may_all(Action::RegisterAgent)?;
        by.may_see_and_call()?;
        let name = request.agent_id.ok_or_else(|| Error::invalid("agent_id", "is missing"))?;
        if let Some(url) = request.url {
            self.check_forwarding(by).await?;
            return self.register_peer(by, name, url).await;
        }
        self.check_endless(by).await?;
        let agent = self.agent_named(by, &name).await?;
        let proof = PairingProof::Owner { tenant: by.tenant, agent };
        let (api_key, agent) = self.bind(by, address, proof, labels).await?;
        Ok(AgentRegistration { api_key, agent_id: name, account_id: agent })
    }

    async fn register_by_code(
        &self,
        token: &str,
        name: Option<&str>,
        labels: Json,
        address: IpAddr,
    ) -> Result<AgentRegistration> {
        let slot = self.pairing().by_address.reserve(address)?;
        let Some(code) = PairingCode::parse(token) else {
            return Err(Error::invalid("pairing_token", "is not a pairing code; codes look like K7QM-2XHD"));
        };
        let code = self.hash_code(&code);
        let found = self.store().pairing(PairingProof::Code(code), self.now()).await;
        let (maker, account) = self.check_pairing(self.redeemed(slot, found)?).await?;
        maker.may_see_and_call()?;
        // Checked before the code is used, so that a mistake does not cost the code or the current key.
        if name.is_some_and(|name| name != account.name && name != account.id.to_string()) {
            return Err(Error::invalid("agent_id", "does not match the pairing code's agent"));
        }
        let (api_key, agent) = self.bind(&maker, address, PairingProof::Code(code), labels).await?;
        Ok(AgentRegistration { api_key, agent_id: name.unwrap_or(&account.name).to_owned(), account_id: agent })
    }

    /// Makes a new key the agent's only key.
    async fn bind(
        &self,
        by: &Principal,
        address: IpAddr,
        proof: PairingProof,
        labels: Json,
    ) -> Result<(Secret<String>, AgentId)> {
        let api_key = Kind::ApiKey.generate(self.env());
        let new = NewRuntime {
            kind: RuntimeKind::AgentKey,
            id: self.env().runtime_id(),
            token: api_key.hash(),
            proof,
            paired_by: by.own_user(),
            device_name: None,
            labels,
        };
        let attached = self.store().attach_runtime(new, self.now()).await;
        let runtime = attached.map_err(|error| self.failed_redemption(address, error))?;
        self.credentials().forget_agent(runtime.agent);
        Ok((api_key, runtime.agent))
    }

    /// The agent with this id or name, created if the name is free.
    pub(crate) async fn agent_named(&self, by: &Principal, name: &str) -> Result<AgentId> {
        let agent = check::agent_ref("agent_id", name)?;
        let is_name = matches!(agent, AgentRef::Name(_));
        match self.store().account(by.tenant, agent.clone()).await {
            Ok(account) => {
                let agent = own_name(by, &account)?;
                // Registering replaces the agent's device, so it needs the rights that putting the agent to work needs.
                self.check_caller(by, &account).await?;
                return Ok(agent);
            }
            Err(attache_store::Error::NotFound) if is_name => {}
            Err(error) => return Err(Error::from_store("agent", error)),
        }
        let request = AccountRequest { name: Some(name.to_owned()), ..AccountRequest::default() };
        match self.create_account(by, request).await {
            Ok(account) => Ok(account.agent_id),
            // Someone else registered it at the same moment.
            Err(error) if error.code == Code::NameTaken => match self.store().account(by.tenant, agent).await {
                Ok(account) => own_name(by, &account),
                // An archived agent had it.
                Err(attache_store::Error::NotFound) => Err(error),
                Err(failed) => Err(Error::from_store("agent", failed)),
            },
            Err(error) => Err(error),
        }
    }
}

/// Only the owner can register an existing agent again.
fn own_name(by: &Principal, account: &AccountRecord) -> Result<AgentId> {
    if by.owns(account.owner) {
        return Ok(account.id);
    }
    Err(Error::new(Code::NameTaken, "This name belongs to someone else's agent.")
        .hint("Choose another name, or ask an admin to transfer the agent to you."))
}

fn check_request(request: &RegisterAgent) -> Result<()> {
    if let Some(name) = &request.agent_id {
        check::agent_ref("agent_id", name)?;
    }
    if let Some(capabilities) = &request.capabilities {
        check::array("capabilities", capabilities, MAX_PART)?;
        let entries: Vec<Json> = capabilities.parse().unwrap_or_default();
        // Entries of other types are kept but not searched.
        for word in entries.iter().filter_map(|entry| entry.parse::<String>().ok()) {
            check::line("capabilities", &word, 1..=64)?;
        }
    }
    if let Some(device) = &request.device_info {
        check::object("device_info", device, MAX_PART)?;
    }
    if let Some(url) = &request.url {
        check::line("url", url, 1..=2048)?;
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(Error::invalid("url", "must be an http or https URL"));
        }
    }
    Ok(())
}

/// The agent's description of itself, kept as sent.
fn labels(request: &RegisterAgent) -> Result<Json> {
    let members = [("capabilities", &request.capabilities), ("device_info", &request.device_info)];
    let members: Vec<String> = members
        .into_iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!(r#""{name}":{}"#, value.get())))
        .collect();
    Json::from_text(format!("{{{}}}", members.join(","))).map_err(|error| Error::internal(&error))
}

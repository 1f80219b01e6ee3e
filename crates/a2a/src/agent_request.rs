//! The context of every request, whatever its binding: caller, agent, version and extensions.

use std::sync::Arc;

use attache_a2a_wire::Fault;
use attache_hub::{
    Handle, Principal, PrincipalKind,
    control::{AgentEndpoint, CallHeaders},
    surface,
};
use axum::http::{HeaderMap, request::Parts};

use crate::{
    ServerContext,
    card::AgentCards,
    error::{Error, Result},
    view::{EVENTS, TaskReader},
};

/// A protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum A2aVersion {
    V10,
    V03,
}

/// A caller's request to one agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentRequest {
    pub(crate) hub: Handle,
    pub(crate) face: AgentEndpoint,
    pub(crate) version: A2aVersion,
    /// The extensions the caller asked for.
    pub(crate) wanted: Vec<String>,
    /// Those of them that the agent supports.
    pub(crate) activated: Vec<String>,
    traceparent: Option<String>,
    pub(crate) origin: Arc<str>,
    pub(crate) cards: AgentCards,
}

// === impl A2aVersion ===

impl A2aVersion {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V03 => "0.3",
        }
    }

    /// The version in the header or query. Absent means 0.3.
    pub(crate) fn of(parts: &Parts) -> Result<Self> {
        let header = parts.headers.get("a2a-version").and_then(|value| value.to_str().ok());
        let said = header.map(str::to_owned).or_else(|| query(parts.uri.query().unwrap_or_default(), "A2A-Version"));
        Self::named(said.as_deref().unwrap_or_default())
    }

    fn named(said: &str) -> Result<Self> {
        let mut numbers = said.trim().split('.');
        match (numbers.next().unwrap_or_default(), numbers.next()) {
            ("", None) | ("0", Some("3")) => Ok(Self::V03),
            ("1", Some("0")) => Ok(Self::V10),
            _ => Err(Error::fault(
                Fault::VersionNotSupported,
                "This version of A2A isn't supported. Send `A2A-Version: 1.0` or `0.3`.",
            )
            .with("requested", said)
            .with("supported", "1.0, 0.3")),
        }
    }

    /// Rejects a request whose declared version doesn't match its form.
    pub(crate) fn must_be(self, wanted: Self) -> Result<()> {
        if self == wanted {
            return Ok(());
        }
        let message = format!(
            "This request has the form of version {}. Send `A2A-Version: {}`.",
            wanted.as_str(),
            wanted.as_str()
        );
        Err(Error::fault(Fault::VersionNotSupported, message)
            .with("requested", self.as_str())
            .with("supported", "1.0, 0.3"))
    }
}

fn query(query: &str, name: &str) -> Option<String> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v.to_owned())
}

// === impl AgentRequest ===

impl AgentRequest {
    /// Who reads the tasks that it returns.
    pub(crate) fn reader(&self) -> TaskReader {
        let is_anonymous = matches!(self.by().who, PrincipalKind::Anonymous { .. });
        TaskReader { origin: self.origin.clone(), is_anonymous }
    }

    /// Resolves the caller and the agent: the one in the path, or the hub's default agent.
    pub(crate) async fn new(
        site: &ServerContext,
        parts: &Parts,
        agent: Option<&str>,
        version: A2aVersion,
    ) -> Result<Self> {
        let by = surface::caller(parts, &site.hub).await?;
        Self::of(site, by, &parts.headers, agent, version).await
    }

    pub(crate) async fn of(
        site: &ServerContext,
        by: Option<Principal>,
        headers: &HeaderMap,
        agent: Option<&str>,
        version: A2aVersion,
    ) -> Result<Self> {
        let hub = &site.hub;
        let face = hub.agent_endpoint(by, agent.filter(|name| !name.is_empty())).await?;
        let wanted = extensions(headers);
        let required = face.switches.extensions.iter().filter(|extension| extension.required);
        if let Some(missing) = required.into_iter().find(|extension| !wanted.contains(&extension.uri)) {
            let message = format!("This agent requires an extension. Send `A2A-Extensions: {}`.", missing.uri);
            return Err(Error::fault(Fault::ExtensionSupportRequired, message).with("extension", &missing.uri));
        }
        let has = |uri: &&String| {
            let by_owner = face.switches.extensions.iter().any(|known| known.uri == **uri);
            *uri == EVENTS || by_owner || face.declared.contains(*uri)
        };
        let activated = wanted.iter().filter(has).cloned().collect();
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (origin, cards) = (hub.origin().into(), site.cards.clone());
        Ok(Self { hub: hub.clone(), face, version, wanted, activated, traceparent, origin, cards })
    }

    pub(crate) fn by(&self) -> &Principal {
        &self.face.by
    }

    /// The same, for a request that also names an agent as its `tenant`. It must be this one.
    pub(crate) fn tenant(&self, tenant: Option<&str>) -> Result<()> {
        match tenant.filter(|tenant| !tenant.is_empty()) {
            Some(tenant) if *tenant != *self.face.name && tenant != self.face.agent.to_string() => {
                Err(Error::invalid("tenant", "names a different agent than the path"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn call_headers(&self) -> CallHeaders {
        CallHeaders { traceparent: self.traceparent.clone(), ..CallHeaders::default() }
    }
}

/// Accepts both header names. 0.3 uses the second.
fn extensions(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all("a2a-extensions").iter().chain(headers.get_all("x-a2a-extensions"));
    let mut found: Vec<String> = Vec::new();
    for uri in all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')) {
        let uri = uri.trim();
        if !uri.is_empty() && !found.iter().any(|known| known == uri) {
            found.push(uri.to_owned());
        }
    }
    found
}

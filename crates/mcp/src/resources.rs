//! MCP resources for content that is too long for a result: the diff and the log of a delegation.

use attache_protocol::{DelegationId, wire::delegation::Delegation};
use rmcp::{
    ErrorData,
    model::{ContentBlock, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};

use crate::DelegationBackend;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceKind {
    Diff,
    Log,
}

const BASE: &str = "attache://delegations/";
/// Longer content is truncated. `attache delegations diff` shows all of it.
const MAX_RESOURCE: usize = 1 << 20;

// === impl ResourceKind ===

impl ResourceKind {
    const ALL: [Self; 2] = [Self::Diff, Self::Log];

    const fn name(self) -> &'static str {
        match self {
            Self::Diff => "diff",
            Self::Log => "log",
        }
    }

    const fn mime_type(self) -> &'static str {
        match self {
            Self::Diff => "text/x-diff",
            Self::Log => "text/plain",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Diff => "The delegation's changes to the folder, as a unified diff",
            Self::Log => "The log of the delegation",
        }
    }
}

pub(crate) fn diff_uri(id: DelegationId) -> String {
    uri(id, ResourceKind::Diff)
}

fn uri(id: DelegationId, kind: ResourceKind) -> String {
    format!("{BASE}{id}/{}", kind.name())
}

/// Links to the resources of a delegation that has ended.
pub(crate) fn links(delegation: &Delegation) -> Vec<ContentBlock> {
    let link = |kind: ResourceKind| {
        let id = delegation.delegation_id;
        let resource = Resource::new(uri(id, kind), format!("{} of {id}", kind.name()));
        ContentBlock::resource_link(resource.with_description(kind.description()).with_mime_type(kind.mime_type()))
    };
    ResourceKind::ALL.map(link).into()
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |kind: ResourceKind| {
        ResourceTemplate::new(format!("{BASE}{{delegation_id}}/{}", kind.name()), format!("delegation-{}", kind.name()))
            .with_description(kind.description())
            .with_mime_type(kind.mime_type())
    };
    ResourceKind::ALL.map(template).into()
}

pub(crate) async fn read(delegations: &dyn DelegationBackend, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || ErrorData::resource_not_found(format!("No such resource: {uri}"), None);
    let (id, name) = uri.strip_prefix(BASE).and_then(|rest| rest.split_once('/')).ok_or_else(unknown)?;
    let id: DelegationId = id.parse().map_err(|_| unknown())?;
    let kind = ResourceKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)?;
    let text = match kind {
        ResourceKind::Diff => delegations.diff(id).await,
        ResourceKind::Log => delegations.log(id).await,
    };
    let mut text = text.map_err(|trouble| ErrorData::resource_not_found(trouble.to_string(), None))?;
    if text.len() > MAX_RESOURCE {
        text.truncate(text.floor_char_boundary(MAX_RESOURCE));
        text.push_str(&format!("\n… (truncated; `attache delegations {} {id}` shows all of it)\n", kind.name()));
    }
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(kind.mime_type())]))
}

//! The MCP tools: names, descriptions, schemas and annotations. One file per tool.

pub(crate) mod call;
pub(crate) mod delegate;
pub(crate) mod delegate_cancel;
pub(crate) mod delegate_output;
pub(crate) mod list_agents;
pub(crate) mod remote_agent;
pub(crate) mod remote_cancel;

use std::{fmt, time::Duration};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{ToolError, delegation_result::DelegationToolOutput, schema};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    Delegate,
    DelegateOutput,
    DelegateCancel,
    RemoteAgent,
    RemoteCancel,
    ListAgents,
}

/// Which tools the server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolSet {
    /// Only the agent tools.
    Agents,
    /// The agent tools and the delegation tools.
    Folders,
}

/// A duration in seconds, as models send it: any number above zero.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Seconds(pub(crate) Duration);

// === impl ToolKind ===

impl ToolKind {
    pub(crate) const DELEGATION_TOOLS: [Self; 3] = [Self::Delegate, Self::DelegateOutput, Self::DelegateCancel];
    pub(crate) const AGENT_TOOLS: [Self; 3] = [Self::RemoteAgent, Self::RemoteCancel, Self::ListAgents];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Delegate => "delegate",
            Self::DelegateOutput => "delegate_output",
            Self::DelegateCancel => "delegate_cancel",
            Self::RemoteAgent => "remote_agent",
            Self::RemoteCancel => "remote_cancel",
            Self::ListAgents => "list_agents",
        }
    }

    pub(crate) fn tool(self, offer: ToolSet) -> Tool {
        let (title, description) = match self {
            Self::Delegate => ("Delegate work in a folder", delegate::DESCRIPTION),
            Self::DelegateOutput => ("Get the result of a delegation", delegate_output::DESCRIPTION),
            Self::DelegateCancel => ("Cancel a delegation", delegate_cancel::DESCRIPTION),
            Self::RemoteAgent => ("Call a remote agent", remote_agent::DESCRIPTION),
            Self::RemoteCancel => ("Cancel a remote agent call", remote_cancel::DESCRIPTION),
            Self::ListAgents => ("List agents", list_agents::description(offer)),
        };
        let (input, output) = match self {
            Self::Delegate => {
                (schema::input::<delegate::DelegateArguments>(), schema::output::<DelegationToolOutput>())
            }
            Self::DelegateOutput => {
                (schema::input::<delegate_output::DelegateOutputArguments>(), schema::output::<DelegationToolOutput>())
            }
            Self::DelegateCancel => {
                (schema::input::<delegate_cancel::DelegateCancelArguments>(), schema::output::<DelegationToolOutput>())
            }
            Self::RemoteAgent => {
                (schema::input::<remote_agent::RemoteAgentArguments>(), schema::output::<call::CallToolOutput>())
            }
            Self::RemoteCancel => {
                (schema::input::<remote_cancel::RemoteCancelArguments>(), schema::output::<call::CallToolOutput>())
            }
            Self::ListAgents => {
                (schema::input::<list_agents::ListAgentsArguments>(), schema::output::<list_agents::ListAgentsOutput>())
            }
        };
        Tool::new(self.name(), description, input)
            .with_title(title)
            .with_raw_output_schema(output)
            .with_annotations(self.annotations())
    }

    /// Hints for clients that ask the user before they run a tool.
    fn annotations(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            // The agent can change and delete files unless the access mode is `ro`.
            Self::Delegate => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
            Self::DelegateOutput => hints.read_only(true).open_world(false),
            Self::DelegateCancel => hints.read_only(false).destructive(true).idempotent(true).open_world(true),
            // The agent can do anything: its effects are unknown here.
            Self::RemoteAgent => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
            Self::RemoteCancel => hints.read_only(false).destructive(true).idempotent(true).open_world(true),
            Self::ListAgents => hints.read_only(true).open_world(false),
        }
    }
}

/// Parses the arguments of a tool.
pub(crate) fn read<T: DeserializeOwned>(kind: ToolKind, arguments: Option<JsonObject>) -> Result<T, ToolError> {
    // Some clients send null for omitted arguments.
    let arguments = arguments.unwrap_or_default().into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let name = kind.name();
        ToolError::invalid(
            format!("invalid arguments for {name}: {error}"),
            format!("Call {name} again with arguments that match its input schema{}.", kind.wants()),
        )
    })
}

impl ToolKind {
    const fn wants(self) -> &'static str {
        match self {
            Self::Delegate => ": description, prompt, peer_url and workspace_dir",
            Self::DelegateOutput => ": delegation_id",
            Self::DelegateCancel => ": delegation_id, or all: true",
            Self::RemoteAgent => ": agent_url and task, or call_id",
            Self::RemoteCancel => ": call_id",
            Self::ListAgents => ", which has none",
        }
    }
}

// === impl Seconds ===

impl TryFrom<f64> for Seconds {
    type Error = InvalidSeconds;

    fn try_from(seconds: f64) -> Result<Self, InvalidSeconds> {
        // More than a year is almost certainly a mistake.
        let most = Duration::from_secs(366 * 24 * 3600);
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() && time <= most => Ok(Self(time)),
            Ok(_) | Err(_) => Err(InvalidSeconds(seconds)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct InvalidSeconds(f64);

impl fmt::Display for InvalidSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a valid number of seconds: use a number above 0", self.0)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "exclusiveMinimum": 0 })
    }
}

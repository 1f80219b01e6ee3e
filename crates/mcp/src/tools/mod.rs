//! The tools: what each is called, takes and answers. One file each.

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

/// Which tools there are beside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolSet {
    /// Those for agents alone.
    Agents,
    /// Those for folders too.
    Folders,
}

/// A length of time as models give it: any number above zero.
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
            Self::DelegateOutput => ("Result of a delegation", delegate_output::DESCRIPTION),
            Self::DelegateCancel => ("Cancel a delegation", delegate_cancel::DESCRIPTION),
            Self::RemoteAgent => ("Ask a remote agent", remote_agent::DESCRIPTION),
            Self::RemoteCancel => ("Stop a remote agent", remote_cancel::DESCRIPTION),
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

    /// Hints for whoever asks a person before a tool is used.
    fn annotations(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            // The remote may write and delete in the folder unless it is lent `ro`.
            Self::Delegate => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
            Self::DelegateOutput => hints.read_only(true).open_world(false),
            Self::DelegateCancel => hints.read_only(false).destructive(true).idempotent(true).open_world(true),
            // What the agent does is not known here.
            Self::RemoteAgent => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
            Self::RemoteCancel => hints.read_only(false).destructive(true).idempotent(true).open_world(true),
            Self::ListAgents => hints.read_only(true).open_world(false),
        }
    }
}

/// The arguments as the tool wants them.
pub(crate) fn read<T: DeserializeOwned>(kind: ToolKind, arguments: Option<JsonObject>) -> Result<T, ToolError> {
    // A client that sends null means that it says nothing.
    let arguments = arguments.unwrap_or_default().into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let name = kind.name();
        ToolError::invalid(
            format!("the arguments of {name} cannot be used: {error}"),
            format!("Call it again with what its input schema asks for{}.", kind.wants()),
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
            Self::ListAgents => ", which is nothing",
        }
    }
}

// === impl Seconds ===

impl TryFrom<f64> for Seconds {
    type Error = InvalidSeconds;

    fn try_from(seconds: f64) -> Result<Self, InvalidSeconds> {
        // Longer than a year is a mistake, not a wish.
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
        write!(f, "{} is no number of seconds above 0", self.0)
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

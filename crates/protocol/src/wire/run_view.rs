//! The views of the list of runs that a person keeps under a name.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text_enum;

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum RunViewStatus {
        Pending = "pending",
        Running = "running",
        /// For an approval or for input.
        Waiting = "waiting",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

text_enum! {
    /// How old a run may be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum RunViewPeriod {
        Day = "1d",
        Week = "7d",
        Month = "30d",
    }
}

/// Which runs a view shows. Every given member must match; at least one must be given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunViewFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RunViewStatus>,
    /// Runs of this agent, by name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Runs created by this person or agent, by name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Runs created within this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<RunViewPeriod>,
    /// Runs that cost at least this many dollars, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cost_usd: Option<String>,
    /// Runs whose task, id, agent's name or caller contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    pub name: String,
    pub filter: RunViewFilter,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunViewList {
    pub run_views: Vec<RunView>,
}

// === impl RunViewPeriod ===

impl RunViewPeriod {
    pub const fn length(self) -> Duration {
        const DAY: u64 = 24 * 60 * 60;
        Duration::from_secs(match self {
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
        })
    }
}

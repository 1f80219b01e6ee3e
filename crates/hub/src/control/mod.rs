//! The hub's actions, one file per action or small family.
//!
//! Each is a method of [`crate::Handle`] that takes the caller and wire types and returns wire types. Authorization and
//! validation live here, so that every surface behaves the same.

mod a2a_options;
mod access;
mod account;
mod agent_endpoint;
mod approval;
mod artifact;
mod artifact_exclusion;
mod audit;
mod await_call;
mod call;
mod card;
mod channel;
mod claim;
mod conversation;
mod create_run;
mod delegation;
mod delete;
mod delivery;
mod finish;
mod guest;
mod heartbeat;
mod host_session;
mod input;
mod key;
mod message;
mod named_conversation;
mod names;
mod notification;
mod pairing;
mod peer;
mod pending_question;
mod permission;
mod progress;
mod pull;
mod push;
mod queued_rights;
mod quota;
mod register;
mod rename_guard;
mod route;
mod run;
mod run_mode;
mod run_origin;
mod run_worktree;
mod runtime;
mod saved_view;
mod session;
mod task;
mod token;
mod tools;
mod usage;
mod usage_limit;
mod user;

pub(crate) use approval::REMOTE_AGENT;
pub(crate) use call::{about_call, call_in_path};
pub(crate) use guest::Guests;
pub(crate) use progress::worker_error;

pub use crate::check::PageRequest;
pub use agent_endpoint::AgentEndpoint;
pub use artifact::ArtifactUpload;
pub use attache_protocol::wire::run::RunQuery;
pub use channel::ChannelQuery;
pub use create_run::{CallHeaders, CreatedRun};
pub use delivery::DeliveryQuery;
pub use peer::{OutsideAgent, OutsideAgentWatch};
pub use pending_question::UnansweredQuestion;
pub use permission::{DecisionOrigin, PermissionQuery};
pub use pull::PullAnswer;
pub use push::{PushSubscription, PushVersion};
pub use register::AgentRegistration;
pub use task::{OwnTask, OwnTaskPage, RunTaskState, TaskQuery};
pub use usage::{RecordQuery, UsageQuery};

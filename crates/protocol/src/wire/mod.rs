//! Wire types: one module per dialect or resource, with serde types only.
//!
//! Requests from people and programs reject unknown members. Requests from runtimes ignore them, so that older and
//! newer runtimes keep working.

pub mod a2a_options;
pub mod access;
pub mod account;
pub mod adapter;
pub mod artifact;
pub mod audit;
pub mod awcp;
pub mod base64;
pub mod call;
pub mod channel;
pub mod conversation;
pub mod delegation;
pub mod delivery;
pub mod envelope;
pub mod event;
pub mod host_session;
pub mod input_request;
pub mod key;
pub mod names;
pub mod notification;
pub mod output;
pub mod pairing;
pub mod part;
pub mod permission;
pub mod questionnaire;
pub mod run;
pub mod run_view;
pub mod runtime;
pub mod session;
pub mod system;
pub mod token;
pub mod tunnel;
pub mod usage;
pub mod user;
pub mod worktree;

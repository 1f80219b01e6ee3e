//! A2A 0.3 over HTTP+JSON. Its bodies are not the JSON of 0.3's JSON-RPC but that of its `.proto`: `content` instead of
//! `parts`, enums by their full names, no `kind`, and what is empty or false is not written.
//!
//! What it cannot say is left out: references to other tasks, and the file name and media type of text and data.

mod part;
mod push;
mod request;
mod task;

pub use part::{File, Part};
pub use push::{CreatePushConfig, GivenConfig, PushConfigList, TaskPushConfig};
pub use request::{Configuration, SendMessage};
pub use task::{
    Artifact, ArtifactUpdate, Message, SendMessageResponse, State, Status, StatusUpdate, StreamResponse, Task,
};

/// False is not written.
fn is_false(truth: &Option<bool>) -> bool {
    !truth.unwrap_or_default()
}

#[cfg(test)]
mod tests;

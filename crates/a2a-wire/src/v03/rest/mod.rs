//! A2A 0.3 over HTTP+JSON. Its bodies follow the `.proto`, not 0.3's JSON-RPC: `content` instead of `parts`, full enum
//! names, no `kind`, and empty or false members are omitted.
//!
//! References to other tasks, and the file name and media type of text and data, can't be represented and are omitted.

mod part;
mod push;
mod request;
mod task;

pub use part::{RestFileV03, RestPartV03};
pub use push::{RestCreatePushConfigBodyV03, RestNewPushConfigV03, RestPushConfigListV03, RestTaskPushConfigV03};
pub use request::{RestSendConfigurationV03, RestSendMessageV03};
pub use task::{
    RestArtifactUpdateV03, RestArtifactV03, RestMessageV03, RestSendMessageResponseV03, RestStatusUpdateV03,
    RestStreamResponseV03, RestTaskStateV03, RestTaskStatusV03, RestTaskV03,
};

/// False is omitted.
fn is_false(truth: &Option<bool>) -> bool {
    !truth.unwrap_or_default()
}

#[cfg(test)]
mod tests;

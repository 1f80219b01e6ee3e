//! Files that a person hands over with a task: in the request while they are small, as artifacts when not, as `ask --file` does.

use std::io;

use attache_hub::control::ArtifactUpload;
use attache_protocol::{
    ConversationId,
    wire::{a2a::Part, conversation::CreateConversationRequest},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;

use crate::{
    ConsoleState,
    form::PostedFiles,
    multipart::PartHead,
    problem::{PageError, PageResult},
    view::escape_stripper::plain,
};

/// What goes with a task.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    pub(crate) parts: Vec<Part>,
    /// In whose workspace the artifacts are, if there are any.
    pub(crate) conversation: Option<ConversationId>,
}

/// Files up to this size in all travel in the input of the run, which has at most 1 MiB.
const MAX_INLINE: usize = 700 * 1024;
/// How many pieces of a file wait for the disk.
const QUEUE: usize = 8;

/// Takes the files of the form.
pub(crate) async fn take(console: &ConsoleState, posted: &mut PostedFiles, title: &str) -> PageResult<Attached> {
    let (mut attached, mut inline) = (Attached::default(), 0);
    while let Some(head) = posted.next_file().await? {
        let name = plain(head.filename.as_deref().unwrap_or_default()).replace(['/', '\\'], "_");
        let kind = head.media_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
        let mut bytes = Vec::new();
        let mut is_long = false;
        while let Some(chunk) = posted.chunk().await? {
            bytes.extend_from_slice(&chunk);
            is_long = inline + bytes.len() > MAX_INLINE;
            if is_long {
                break;
            }
        }
        if !is_long {
            inline += bytes.len();
            attached.parts.push(Part::file(&bytes, name, kind));
            continue;
        }
        let conversation = match attached.conversation {
            Some(conversation) => conversation,
            None => {
                let title = Some(title.chars().take(80).collect());
                let request = CreateConversationRequest { title, metadata: None };
                console.hub.create_conversation(&posted.session.principal, request).await?.conversation_id
            }
        };
        attached.conversation = Some(conversation);
        let head = PartHead { filename: Some(name), media_type: Some(kind), ..head };
        attached.parts.push(upload(console, posted, conversation, head, bytes.into()).await?);
    }
    Ok(attached)
}

/// Streams the rest of a file, behind what was read of it, into the conversation's workspace.
async fn upload(
    console: &ConsoleState,
    posted: &mut PostedFiles,
    conversation: ConversationId,
    head: PartHead,
    begun: Bytes,
) -> PageResult<Part> {
    let by = posted.session.principal.clone();
    let (name, kind) = (head.filename.unwrap_or_default(), head.media_type.unwrap_or_default());
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(QUEUE);
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    let bytes = Body::from_stream(pieces).into_data_stream();
    let about = ArtifactUpload { name: name.clone(), media_type: Some(kind.clone()) };
    let stored = console.hub.upload_artifact(&by, conversation.workspace(), about, bytes);
    let read = async move {
        let mut next = Some(begun);
        while let Some(piece) = next {
            // Whoever stores it has given up, and says why.
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
            next = match posted.chunk().await {
                Ok(next) => next,
                Err(_) => {
                    let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                    return;
                }
            };
        }
    };
    let (stored, ()) = tokio::join!(stored, read);
    let artifact = stored.map_err(PageError::from)?;
    Ok(Part::artifact(artifact.artifact_id, name, kind))
}

//! Files attached to a task: small ones inline in the request, large ones as artifacts, as with `ask --file`.

use std::io;

use attache_hub::control::ArtifactUpload;
use attache_protocol::{
    ConversationId,
    wire::{conversation::CreateConversationRequest, part::Part},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;

use crate::{
    form::PostedFiles,
    multipart::PartHeaders,
    problem::{PageError, PageResult},
    view::escape_stripper::plain,
};

/// The files of a task.
#[derive(Debug, Default)]
pub(crate) struct TaskAttachments {
    pub(crate) parts: Vec<Part>,
    /// The conversation of the run, whose workspace has the artifacts. One is made for them if there is none.
    pub(crate) conversation: Option<ConversationId>,
}

/// Files up to this total size are sent inline in the run's input, which is limited to 1 MiB.
const MAX_INLINE: usize = 700 * 1024;
/// How many chunks are buffered while writing to disk.
const QUEUE: usize = 8;

/// Reads the files of the form. The conversation is set as soon as there is one.
pub(crate) async fn take(posted: &mut PostedFiles, agent: &str, attached: &mut TaskAttachments) -> PageResult<()> {
    let mut inline = 0;
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
                let agent_type = Some(agent.to_owned());
                let request = CreateConversationRequest { agent_type, ..CreateConversationRequest::default() };
                posted.session.hub.create_conversation(&posted.session.principal, request).await?.conversation_id
            }
        };
        attached.conversation = Some(conversation);
        let head = PartHeaders { filename: Some(name), media_type: Some(kind), ..head };
        attached.parts.push(upload(posted, conversation, head, bytes.into()).await?);
    }
    Ok(())
}

/// Streams a file into the conversation's workspace: first the bytes already read, then the rest.
async fn upload(
    posted: &mut PostedFiles,
    conversation: ConversationId,
    head: PartHeaders,
    begun: Bytes,
) -> PageResult<Part> {
    let (hub, by) = (posted.session.hub.clone(), posted.session.principal.clone());
    let (name, kind) = (head.filename.unwrap_or_default(), head.media_type.unwrap_or_default());
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(QUEUE);
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    let bytes = Body::from_stream(pieces).into_data_stream();
    let about = ArtifactUpload { name: name.clone(), media_type: Some(kind.clone()) };
    let stored = hub.upload_artifact(&by, conversation.workspace(), about, bytes);
    let read = async move {
        let mut next = Some(begun);
        while let Some(piece) = next {
            // The storing task has failed and reports why.
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

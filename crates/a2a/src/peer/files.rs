//! Stores files of an outside agent as artifacts of the run: its links need its key, which our callers don't have, and
//! output too large for a result becomes an artifact.

use std::{io, time::Duration};

use attache_a2a_wire::{Artifact, Part, PartContent};
use attache_client::{Backoff, a2a::PeerClient, egress::StreamedReply};
use attache_hub::in_process::{AgentOutput, InProcessRun};
use attache_protocol::{
    ArtifactId, Json,
    wire::{adapter::FullOutput, base64},
};
use axum::body::{Body, BodyDataStream};
use serde::Deserialize;

use crate::view::EVENTS;

/// The longest text kept in a result. The full text goes into an artifact.
const MAX_TEXT: usize = 1 << 20;
/// Larger files aren't kept inline in the result either.
const MAX_INLINE: usize = 512 << 10;
const MAX_NAME: usize = 200;
const TRIES: u32 = 3;

/// Metadata under [`EVENTS`] of an artifact that is a run's complete output.
#[derive(Deserialize)]
struct OutputMetadata {
    full_output: Option<FullOutputSize>,
}

#[derive(Clone, Copy, Deserialize)]
struct FullOutputSize {
    bytes: u64,
}

/// The output, with the agent's files stored as artifacts of the run.
pub(super) async fn keep(
    peer: &PeerClient,
    work: &InProcessRun,
    made: &[Artifact],
    mut output: AgentOutput,
) -> AgentOutput {
    for artifact in made {
        for part in &artifact.parts {
            let PartContent::Url(url) = &part.content else { continue };
            if !peer.serves(url) {
                continue;
            }
            let full_output_size = full_output_size(artifact);
            match download(peer, work, url, &name(artifact, part)).await {
                Ok((id, bytes)) => {
                    let artifact_index = Some(output.artifact_refs.len());
                    output.artifact_refs.push(id);
                    leave_out(&mut output, |known| known == part);
                    if full_output_size.is_some() {
                        output.full_output = Some(FullOutput { bytes, artifact_index, lost: None });
                    }
                }
                Err(why) => {
                    tracing::info!(run.id = %work.claim().task_run_id, why, "couldn't fetch a file of an outside agent");
                    if let Some(FullOutputSize { bytes }) = full_output_size {
                        let lost =
                            Some(format!("The full output is at the outside agent and couldn't be fetched: {why}"));
                        output.full_output = Some(FullOutput { bytes, artifact_index: None, lost });
                    }
                }
            }
        }
    }
    if output.full_output.is_none() {
        keep_inline(work, made, &mut output).await;
    }
    output
}

/// Bytes too large for a result, with their name and media type.
type Inline = (Vec<u8>, String, Option<String>);

/// A text that is too long for a result, or binary content that is the entire answer.
fn inline(made: &[Artifact], text: &str) -> Option<Inline> {
    if text.len() > MAX_TEXT {
        return Some((text.into(), "output.txt".to_owned(), Some("text/plain; charset=utf-8".to_owned())));
    }
    let mut raw = Vec::new();
    for artifact in made {
        raw.extend(artifact.parts.iter().filter_map(|part| match &part.content {
            PartContent::Raw(bytes) => Some((artifact, part, bytes)),
            PartContent::Text(_) | PartContent::Url(_) | PartContent::Data(_) => None,
        }));
    }
    match *raw {
        [(artifact, part, bytes)] if text.is_empty() => {
            Some((base64::decode(bytes)?, name(artifact, part), media_type(part.media_type.as_deref())))
        }
        _ => None,
    }
}

async fn keep_inline(work: &InProcessRun, made: &[Artifact], output: &mut AgentOutput) {
    let Some((bytes, name, media_type)) = inline(made, &output.text) else { return };
    let length = bytes.len() as u64;
    let kept = work.keep(&name, media_type, Body::from(bytes).into_data_stream()).await;
    output.full_output = Some(match kept {
        Ok((id, bytes)) => {
            let artifact_index = Some(output.artifact_refs.len());
            output.artifact_refs.push(id);
            FullOutput { bytes, artifact_index, lost: None }
        }
        Err(error) => FullOutput { bytes: length, artifact_index: None, lost: Some(error.message.to_string()) },
    });
    if output.text.len() > MAX_TEXT {
        output.text.truncate(output.text.floor_char_boundary(MAX_TEXT));
        leave_out(output, |part| matches!(part.content, PartContent::Text(_)));
    }
    leave_out(output, |part| matches!(&part.content, PartContent::Raw(text) if text.len() > MAX_INLINE));
}

fn leave_out(output: &mut AgentOutput, is_kept: impl Fn(&Part) -> bool) {
    output.artifacts.iter_mut().for_each(|artifact| artifact.parts.retain(|part| !is_kept(part)));
    output.artifacts.retain(|artifact| !artifact.parts.is_empty());
}

fn full_output_size(artifact: &Artifact) -> Option<FullOutputSize> {
    let metadata: std::collections::BTreeMap<String, Json> = artifact.metadata.as_ref()?.parse().ok()?;
    metadata.get(EVENTS)?.parse::<OutputMetadata>().ok()?.full_output
}

/// Downloads the file, with retries where useful. Errors are sentences.
async fn download(peer: &PeerClient, work: &InProcessRun, url: &str, name: &str) -> Result<(ArtifactId, u64), String> {
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    let mut tries = 1;
    loop {
        match peer.download(url).await {
            Ok(opened) => {
                let kind = opened.headers.get("content-type").and_then(|kind| kind.to_str().ok());
                let kind = media_type(kind);
                return work.keep(name, kind, body(opened)).await.map_err(|error| error.message.to_string());
            }
            Err(error) if error.is_passing() && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(backoff.next(work.hub().env())).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn body(opened: StreamedReply) -> BodyDataStream {
    let pieces = futures_util::stream::try_unfold(opened, |mut opened| async move {
        let piece = opened.next().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(piece.map(|piece| (piece, opened)))
    });
    Body::from_stream(pieces).into_data_stream()
}

fn media_type(said: Option<&str>) -> Option<String> {
    let is_plain = |kind: &&str| kind.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    said.filter(|kind| (1..=MAX_NAME).contains(&kind.len())).filter(is_plain).map(str::to_owned)
}

/// A plain file name.
fn name(artifact: &Artifact, part: &Part) -> String {
    let said = part.filename.as_deref().or(artifact.name.as_deref()).unwrap_or("output");
    let plain: String = said.chars().filter(|one| !one.is_control() && !matches!(one, '/' | '\\')).collect();
    let plain = plain[..plain.floor_char_boundary(MAX_NAME)].trim();
    if matches!(plain, "" | "." | "..") { "output".to_owned() } else { plain.to_owned() }
}

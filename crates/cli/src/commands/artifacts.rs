//! `attache artifacts`: lists, downloads and uploads the files of a conversation's workspace.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use attache_client::{ArtifactSource, HubClient};
use attache_protocol::ArtifactId;
use clap::Subcommand;
use tokio::fs::File;

use super::page::{Listing, PageArgs};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        output::{TextCell, time},
    },
};

/// List, download and upload artifacts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache artifacts list run_…             artifacts in a run's workspace; wsp_… and cnv_… also work
  attache artifacts list last              those of the newest run
  attache artifacts get art_… -o report.pdf
  attache artifacts put cnv_… report.pdf --media-type application/pdf")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    command: ArtifactsCommand,
}

#[derive(Debug, Subcommand)]
enum ArtifactsCommand {
    /// List the artifacts of a workspace
    List {
        /// Workspace, conversation or run: its id (wsp_…, cnv_…, run_…), a unique part of it, or `last` for the newest run
        #[arg(value_parser = IdArg::of_workspace)]
        place: IdArg,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Download an artifact
    Get {
        artifact: ArtifactId,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Upload a file as an artifact
    Put {
        /// Workspace, conversation or run: its id (wsp_…, cnv_…, run_…), a unique part of it, or `last` for the newest run
        #[arg(value_parser = IdArg::of_workspace)]
        place: IdArg,
        file: PathBuf,
        /// Artifact name [default: the file name]
        #[arg(long)]
        name: Option<String>,
        #[arg(long, value_name = "TYPE")]
        media_type: Option<String>,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command {
        ArtifactsCommand::List { place, page } => list(&context, &hub, &place, &page).await,
        ArtifactsCommand::Get { artifact, output } => get(&context, &hub, artifact, output.as_deref()).await,
        ArtifactsCommand::Put { place, file, name, media_type } => {
            put(&context, &hub, &place, &file, name.as_deref(), media_type.as_deref()).await
        }
    }
}

async fn list(context: &CommandContext, hub: &HubClient, place: &IdArg, page: &PageArgs) -> Result<(), CommandFailure> {
    let list = hub.artifacts(place.workspace(hub).await?, &page.page()).await?;
    let next_cursor = list.next_cursor.as_deref();
    let when_empty = "No artifacts.";
    Listing { answer: &list, items: &list.artifacts, next_cursor, when_empty }.print(
        context,
        &[
            ("ID", &|artifact| TextCell::plain(artifact.artifact_id.to_string())),
            ("SIZE", &|artifact| TextCell::plain(time::size(artifact.size))),
            ("TYPE", &|artifact| TextCell::plain(&artifact.media_type)),
            ("CREATED", &|artifact| TextCell::plain(time::relative(artifact.created_at, context.now()))),
            ("NAME", &|artifact| TextCell::strong(&artifact.name)),
        ],
    )
}

async fn get(
    context: &CommandContext,
    hub: &HubClient,
    artifact: ArtifactId,
    to: Option<&Path>,
) -> Result<(), CommandFailure> {
    let mut download = hub.artifact(artifact).await?;
    let Some(path) = to else {
        let mut out = io::stdout().lock();
        while let Some(part) = download.chunk().await? {
            out.write_all(&part)?;
        }
        return Ok(out.flush()?);
    };
    // Write to a temporary file first: a failed download leaves no partial file under the requested name.
    // Nobody can know its name, and put a link there.
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.part", context.env.uuid().simple()));
    let draft = PathBuf::from(draft);
    let failed = |error: io::Error| CommandFailure::file("write", path, &error);
    let received = async {
        let mut file = File::create_new(&draft).await.map_err(failed)?;
        let mut size = 0;
        while let Some(part) = download.chunk().await? {
            tokio::io::AsyncWriteExt::write_all(&mut file, &part).await.map_err(failed)?;
            size += part.len() as u64;
        }
        file.sync_all().await.map_err(failed)?;
        tokio::fs::rename(&draft, path).await.map_err(failed)?;
        Ok(size)
    }
    .await;
    match received {
        Ok(size) => {
            context.output.say(format_args!("Wrote {} to {}.", time::size(size), path.display()));
            Ok(())
        }
        Err(failure) => {
            let _ = tokio::fs::remove_file(&draft).await;
            Err(failure)
        }
    }
}

async fn put(
    context: &CommandContext,
    hub: &HubClient,
    place: &IdArg,
    path: &Path,
    name: Option<&str>,
    media_type: Option<&str>,
) -> Result<(), CommandFailure> {
    let failed = |error: io::Error| CommandFailure::file("read", path, &error);
    let file = File::open(path).await.map_err(failed)?;
    let metadata = file.metadata().await.map_err(failed)?;
    if !metadata.is_file() {
        return Err(CommandFailure::usage(format!("{} is not a file", path.display())).hint("Pass a single file."));
    }
    let own = path.file_name().and_then(|name| name.to_str());
    let name = name.or(own).ok_or_else(|| {
        CommandFailure::usage("the file name isn't valid UTF-8").hint("Set the artifact's name with --name.")
    })?;
    let upload = ArtifactSource::File { file, size: metadata.len() };
    let artifact = hub.put_artifact(place.workspace(hub).await?, name, media_type, upload).await?;
    if context.output.is_json() {
        return context.output.json(&artifact);
    }
    context.output.line(artifact.artifact_id)?;
    context.output.say(format_args!("Stored {} as {}.", time::size(artifact.size), artifact.name));
    Ok(())
}

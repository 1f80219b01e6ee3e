//! `attache mcp install` and `uninstall`: add or remove our entry in the configuration of MCP clients.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    clients::{McpClient, backup},
    server_entry::McpServerEntry,
};
use crate::{
    env::{
        context::{CommandContext, HubArgs},
        home,
    },
    ui::{failure::CommandFailure, output::TextStyle},
};

/// Add this server to the configuration of MCP clients
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache mcp install --for claude,codex,gemini,vscode,cursor
  attache mcp install --for claude --print

The rest of each file stays unchanged, including comments. The original is saved next to it with the suffix .before-attache.
Running the command again changes nothing. A file that can't be parsed is skipped; the other files are still written, and the
command exits with 1.")]
pub(super) struct Args {
    #[command(flatten)]
    common: UninstallArgs,
    /// How long a tool call waits before it returns `running`, for clients with an unusual tool timeout
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: Option<u64>,
}

/// Remove this server from the configuration of MCP clients
#[derive(Debug, clap::Args)]
pub(super) struct UninstallArgs {
    /// MCP clients, separated by commas
    #[arg(long = "for", value_name = "CLIENTS", value_delimiter = ',', required = true)]
    clients: Vec<McpClient>,
    /// Print the changes without writing them
    #[arg(long)]
    print: bool,
}

/// The result for one file.
#[derive(Serialize)]
struct ClientFileChange {
    client: &'static str,
    file: PathBuf,
    changed: bool,
    /// Only with `--print`.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Why the file was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn install(context: &CommandContext, args: &Args, hub: &HubArgs) -> Result<(), CommandFailure> {
    let program = std::env::current_exe()
        .map_err(|error| CommandFailure::failed(format!("can't determine the path of this program: {error}")))?;
    let mut arguments = vec!["mcp".to_owned()];
    if let Some(wait) = args.wait {
        arguments.extend(["--wait".to_owned(), wait.to_string()]);
    }
    let key_file = hub.key_file.as_ref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    let named = [
        ("--hub", hub.hub.clone()),
        ("--key-file", key_file.map(|file| file.to_string_lossy().into_owned())),
        ("--pin", hub.pin.map(|pin| pin.to_string())),
    ];
    for (name, value) in named {
        arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    }
    let entry = McpServerEntry {
        command: program.to_string_lossy().into_owned(),
        args: arguments,
        env: context.config.unusual_homes(),
    };
    change(context, &args.common, Some(&entry))
}

pub(super) fn uninstall(context: &CommandContext, args: &UninstallArgs) -> Result<(), CommandFailure> {
    change(context, args, None)
}

fn change(
    context: &CommandContext,
    args: &UninstallArgs,
    entry: Option<&McpServerEntry>,
) -> Result<(), CommandFailure> {
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for client in &args.clients {
        match change_one(context, args, entry, *client) {
            Ok(done) => all.push(done),
            Err(failure) => {
                all.push(ClientFileChange::failed(context, *client, &failure));
                failures.push(failure);
            }
        }
    }
    if context.output.is_json() {
        context.output.json(&all)?;
    } else if all.len() > failures.len() || all.len() > 1 {
        show(context, &all)?;
    }
    let is_partial = failures.len() < all.len();
    if entry.is_some() && !args.print && is_partial && !context.output.is_json() {
        context.output.say_styled(
            TextStyle::Dim,
            "Restart the client. To choose the folders and agents it can use: attache delegations allow --help",
        );
    }
    let count = failures.len();
    match failures.pop() {
        None => Ok(()),
        Some(failure) if all.len() == 1 => Err(failure),
        Some(CommandFailure { hint, .. }) => {
            let files = if count == 1 { "1 file was".to_owned() } else { format!("{count} files were") };
            Err(CommandFailure::failed(format!("{files} skipped")).hint(hint))
        }
    }
}

/// Changes one client's file, independently of the others.
fn change_one(
    context: &CommandContext,
    args: &UninstallArgs,
    entry: Option<&McpServerEntry>,
    client: McpClient,
) -> Result<ClientFileChange, CommandFailure> {
    let file = client.file(&context.config).ok_or_else(|| {
        CommandFailure::usage("can't find MCP clients without a home folder").hint("Set HOME to your home folder.")
    })?;
    let before = read(&file)?;
    let after = client.edit(before.as_deref().unwrap_or_default(), entry).map_err(|why| {
        CommandFailure::failed(format!("skipped {}: {why}", file.display()))
            .hint(format!("To see the entry to add: attache mcp install --for {} --print", name(client)))
    });
    let after = match (after, args.print, entry) {
        // With --print, show the entry in an otherwise empty file even if this file can't be parsed.
        (Err(_), true, Some(_)) => client.edit("", entry).map_err(CommandFailure::failed)?,
        (after, _, _) => after?,
    };
    let changed = before.as_deref().unwrap_or_default() != after;
    if changed && !args.print {
        write(&file, before.as_deref(), &after)?;
    }
    Ok(ClientFileChange { client: client.title(), file, changed, content: args.print.then_some(after), error: None })
}

fn show(context: &CommandContext, all: &[ClientFileChange]) -> Result<(), CommandFailure> {
    for done in all {
        let file = done.file.display();
        match (&done.error, &done.content, done.changed) {
            (Some(error), _, _) => context.output.say_styled(TextStyle::Bad, format_args!("{}: {error}", done.client)),
            (None, Some(content), _) => {
                context.output.say_styled(TextStyle::Dim, format_args!("{file}:"));
                context.output.line(content.trim_end())?;
            }
            (None, None, true) => context.output.say(format_args!("{}: wrote {file}", done.client)),
            (None, None, false) => context.output.say(format_args!("{}: {file} is up to date", done.client)),
        }
    }
    Ok(())
}

// === impl ClientFileChange ===

impl ClientFileChange {
    fn failed(context: &CommandContext, client: McpClient, failure: &CommandFailure) -> Self {
        let file = client.file(&context.config).unwrap_or_default();
        let error = Some(failure.message.clone());
        Self { client: client.title(), file, changed: false, content: None, error }
    }
}

fn name(client: McpClient) -> String {
    use clap::ValueEnum as _;
    client.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn read(file: &Path) -> Result<Option<String>, CommandFailure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandFailure::file("read", file, &error)),
    }
}

/// Writes atomically. If the file is a symlink, writes its target.
fn write(file: &Path, before: Option<&str>, after: &str) -> Result<(), CommandFailure> {
    let file = &fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let failed = |error: io::Error| CommandFailure::file("write", file, &error);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode() & 0o777).ok();
    // Back up only the person's original file, not a version that we wrote.
    if let Some(before) = before.filter(|_| !backup(file).exists()) {
        home::write_private(&backup(file), before.as_bytes()).map_err(failed)?;
    }
    home::write_private(file, after.as_bytes()).map_err(failed)?;
    if let Some(mode) = mode {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(())
}

//! `attache complete`: candidates for the next word of a command line, for the scripts of `attache completions`. Prints
//! names from the hub and values of options. Answers quickly or prints nothing, and never fails.

use std::{ffi::OsString, time::Duration};

use attache_client::{HubClient, PageQuery};
use clap::{Arg, ArgAction, Command};

use crate::{
    env::{
        context::{CommandContext, HubArgs},
        contexts::Contexts,
    },
    ui::{failure::CommandFailure, output::clean},
};

/// Print candidates for the next word (for completion scripts)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words after `attache`; the last one may be incomplete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A completion that takes longer is useless.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(800);
const PAGE: PageQuery = PageQuery { limit: Some(200), cursor: None };

/// A kind of name that the hub or the local contexts can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agent,
    User,
    Device,
    Key,
    Conversation,
    Context,
}

/// What the word at the cursor completes to.
#[derive(Debug, PartialEq, Eq)]
enum CompletionSource {
    Words(Vec<String>),
    Names(Kind),
    /// Left to the generated completion script.
    Elsewhere,
}

pub(super) async fn run(context: CommandContext, args: Args, root: Command) -> Result<(), CommandFailure> {
    let words: Vec<String> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some((last, before)) = words.split_last() else { return Ok(()) };
    let found = match slot(root, before) {
        CompletionSource::Words(words) => words,
        CompletionSource::Names(kind) => {
            let hub = hub_args(before);
            let names = names(&context, &hub, kind);
            tokio::time::timeout(COMPLETION_TIMEOUT, names).await.ok().and_then(Result::ok).unwrap_or_default()
        }
        CompletionSource::Elsewhere => Vec::new(),
    };
    for name in found.iter().filter(|name| name.starts_with(last)) {
        context.output.line(clean::line(name))?;
    }
    Ok(())
}

/// Walks the words as the parser would and returns the argument that comes next.
fn slot(mut root: Command, before: &[String]) -> CompletionSource {
    root.build();
    let (mut command, mut path, mut place) = (&root, String::new(), 0);
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) {
            let option = option(command, flag.trim_start_matches('-'));
            match option.filter(|option| takes_value(option) && !word.contains('=')) {
                // The word at the cursor is its value.
                Some(option) if words.len() == 0 => return of_argument(option, &path),
                Some(_) => {
                    words.next();
                }
                None => {}
            }
        } else if let Some(found) = command.find_subcommand(word) {
            (command, place) = (found, 0);
            path = found.get_name().to_owned();
        } else {
            place += 1;
        }
    }
    let positional = command.get_positionals().nth(place).or_else(|| {
        // The last positional argument may be repeatable.
        command.get_positionals().last().filter(|last| matches!(last.get_action(), ArgAction::Append))
    });
    positional.map_or(CompletionSource::Elsewhere, |argument| of_argument(argument, parent(before, &path)))
}

/// The command before the last one: in `agents show`, it tells what kind of name `show` takes.
fn parent<'a>(before: &'a [String], path: &'a str) -> &'a str {
    let at = before.iter().position(|word| word == path).unwrap_or(0);
    before[..at].iter().rev().find(|word| !word.starts_with('-')).map_or(path, String::as_str)
}

fn option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a Arg> {
    let name = name.split('=').next().unwrap_or(name);
    command.get_arguments().find(|argument| {
        argument.get_long() == Some(name) || argument.get_short().is_some_and(|short| name == short.to_string())
    })
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn of_argument(argument: &Arg, of: &str) -> CompletionSource {
    // Value names of the form `one|another` list the values.
    let shown = argument.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    if let Some(words) = shown.filter(|shown| shown.contains('|')) {
        return CompletionSource::Words(
            words.split('|').filter(|word| *word == word.to_lowercase()).map(str::to_owned).collect(),
        );
    }
    match (argument.get_id().as_str(), of) {
        ("agent" | "default_agent", _) => CompletionSource::Names(Kind::Agent),
        ("user" | "owner", _) => CompletionSource::Names(Kind::User),
        ("runtime", "runtimes") => CompletionSource::Names(Kind::Device),
        ("key", "keys") => CompletionSource::Names(Kind::Key),
        ("conversation", _) => CompletionSource::Names(Kind::Conversation),
        ("context", _) | ("name", "context") => CompletionSource::Names(Kind::Context),
        _ => CompletionSource::Elsewhere,
    }
}

/// Reads the hub options typed so far.
fn hub_args(words: &[String]) -> HubArgs {
    let given = |name: &str| {
        let flag = format!("--{name}");
        words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1].clone())
    };
    HubArgs {
        hub: given("hub"),
        context: given("context"),
        key_file: given("key-file").map(Into::into),
        pin: given("pin").and_then(|pin| pin.parse().ok()),
    }
}

async fn names(context: &CommandContext, args: &HubArgs, kind: Kind) -> Result<Vec<String>, CommandFailure> {
    if kind == Kind::Context {
        let Some(home) = &context.config.home else { return Ok(Vec::new()) };
        return Ok(Contexts::load(home)?.contexts.into_keys().collect());
    }
    let hub: HubClient = context.hub(args)?;
    Ok(match kind {
        Kind::Agent => hub.accounts(&PAGE).await?.agent_accounts.into_iter().map(|agent| agent.name).collect(),
        Kind::User => hub.users(&PAGE).await?.users.into_iter().map(|user| user.name).collect(),
        Kind::Device => {
            let devices = hub.runtimes(&PAGE).await?.agent_runtimes.into_iter();
            devices.filter(|device| device.ended_at.is_none()).filter_map(|device| device.device_name).collect()
        }
        Kind::Key => {
            let keys = hub.keys(&PAGE).await?.api_keys.into_iter();
            keys.filter(|key| key.revoked_at.is_none()).map(|key| key.name).collect()
        }
        Kind::Conversation => {
            hub.conversations(&PAGE).await?.conversations.into_iter().filter_map(|one| one.title).collect()
        }
        Kind::Context => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{super::Cli, *};

    #[test]
    fn the_next_argument_is_found() {
        let slot = |line: &str| slot(Cli::command(), &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        for line in
            ["ask", "agents show", "agents remove", "runs --agent", "ask --timeout 5", "--json ask", "agents code"]
        {
            assert_eq!(slot(line), CompletionSource::Names(Kind::Agent), "{line}");
        }
        assert_eq!(
            slot("keys add ci --role"),
            CompletionSource::Words(["viewer", "operator", "admin", "owner"].map(Into::into).into())
        );
        assert_eq!(slot("keys add ci --user"), CompletionSource::Names(Kind::User));
        assert_eq!(slot("keys revoke"), CompletionSource::Names(Kind::Key));
        assert_eq!(slot("runtimes revoke"), CompletionSource::Names(Kind::Device));
        assert_eq!(slot("conversations show"), CompletionSource::Names(Kind::Conversation));
        assert_eq!(slot("runs --context"), CompletionSource::Names(Kind::Context));
        assert_eq!(slot("context use"), CompletionSource::Names(Kind::Context));
        for line in ["ask local", "runs show", "", "nonsense"] {
            assert_eq!(slot(line), CompletionSource::Elsewhere, "{line}");
        }
    }
}

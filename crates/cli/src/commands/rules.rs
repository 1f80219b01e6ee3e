//! `attache rules`: shows, edits and tests the access rules of agents.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use attache_client::HubClient;
use attache_protocol::wire::access::{AccessReason, AccessRules, CheckAccess, SetAccessRules};
use clap::Subcommand;

use crate::{
    env::context::{CommandContext, HubArgs},
    text::{people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextStyle, time},
    },
};

/// Show, edit and test access rules
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache rules                                        show the current rules
  attache rules show > permissions.yaml                edit it, then:
  attache rules set permissions.yaml
  attache rules check user123-laptop agents/knowledge  test access and show the deciding rule

See docs/access.md for the rule syntax.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    command: Option<RulesCommand>,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Show the current rules (default)
    Show,
    /// Replace the rules with those in a file; `-` reads standard input
    Set {
        file: PathBuf,
        /// Fail unless the current rules have this version
        #[arg(long, value_name = "N")]
        version: Option<i64>,
    },
    /// Check whether an agent can access something, and which rule decides
    Check {
        /// Agent that requests access (name or id)
        agent: String,
        /// agents/NAME, agents/NAME/memory/PATH, conversations/USER/ID or resources/SPACE/ARTIFACT
        object: String,
    },
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(RulesCommand::Show) {
        RulesCommand::Show => show(&context, &hub).await,
        RulesCommand::Set { file, version } => set(&context, &hub, &file, version).await,
        RulesCommand::Check { agent, object } => check(&context, &hub, agent, object).await,
    }
}

async fn show(context: &CommandContext, hub: &HubClient) -> Result<(), CommandFailure> {
    let output = &context.output;
    let rules = hub.access_rules().await?;
    if output.is_json() {
        return output.json(&rules);
    }
    if rules.version == 0 {
        output.say(people::no_rules());
        output.say(people::no_rules_do());
        return Ok(());
    }
    output.line(rules.text.trim_end())?;
    describe(context, &rules);
    Ok(())
}

/// Prints version and source on standard error, so that standard output holds only the rules.
fn describe(context: &CommandContext, rules: &AccessRules) {
    let output = &context.output;
    let by = rules.changed_by.as_deref().unwrap_or(people::unknown());
    let when = time::relative_or(rules.changed_at, context.now(), terms::never());
    output.say_styled(TextStyle::Dim, people::rules_version(rules.version, when, by));
    if let Some(file) = &rules.file {
        output.say_styled(TextStyle::Dim, people::rules_file(file));
    }
    if let Some(problem) = &rules.problem {
        output.say_styled(TextStyle::Bad, people::rules_problem(problem));
    }
}

async fn set(
    context: &CommandContext,
    hub: &HubClient,
    file: &Path,
    version: Option<i64>,
) -> Result<(), CommandFailure> {
    let text = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        false => std::fs::read_to_string(file).map_err(|error| CommandFailure::file("read", file, &error))?,
    };
    let rules = hub.set_access_rules(&SetAccessRules { text, version }).await?;
    if context.output.is_json() {
        return context.output.json(&rules);
    }
    context.output.say(people::rules_set(rules.version));
    Ok(())
}

async fn check(context: &CommandContext, hub: &HubClient, agent: String, object: String) -> Result<(), CommandFailure> {
    let output = &context.output;
    let decision = hub.check_access(&CheckAccess { agent, object }).await?;
    if output.is_json() {
        return output.json(&decision);
    }
    let why = match (decision.because, &decision.rule) {
        (AccessReason::Rule, Some(rule)) => people::because_rule(rule),
        (AccessReason::Rule, None) => people::because_a_rule().to_owned(),
        (AccessReason::Own, _) => people::because_own().to_owned(),
        (AccessReason::Default, _) => people::because_default().to_owned(),
        (AccessReason::NoSuchName, _) => people::because_no_such().to_owned(),
    };
    let word = match decision.allowed {
        true => output.paint(TextStyle::Good, people::word_allowed()),
        false => output.paint(TextStyle::Bad, people::word_denied()),
    };
    output.line(word + &people::decided(decision.agent, decision.object, why))
}

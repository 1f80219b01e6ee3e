//! The groups in which `attache --help` lists the commands.

use crate::text::help;

/// The heading in the language of the help, and the commands below it.
type CommandGroup = (fn() -> &'static str, &'static [&'static str]);

/// Every visible command is in exactly one group (checked by a test).
const GROUPS: &[CommandGroup] = &[
    (help::group_start, &["up", "login", "context", "doctor", "completions"]),
    (help::group_agents, &["agents", "runtime", "runtimes", "adapter", "sandbox", "channels", "mcp"]),
    (help::group_work, &["ask", "watch", "runs", "approvals", "conversations", "artifacts", "worktrees"]),
    (help::group_folders, &["delegate", "delegations", "daemon"]),
    (help::group_people, &["users", "keys", "tokens", "sessions", "rules", "quotas", "usage"]),
    (
        help::group_operate,
        &["hub", "service", "update", "audit", "deliveries", "notifications", "backup", "migrate", "bench"],
    ),
];

/// The command line with its grouped help.
pub(super) fn grouped(command: clap::Command) -> clap::Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        listing(&command)
    );
    command.help_template(template)
}

/// One line per command, under the heading of its group.
fn listing(command: &clap::Command) -> String {
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{}\n", help::heading(heading()));
        for name in *names {
            let about = command.find_subcommand(name).and_then(|found| found.get_about()).map(ToString::to_string);
            text += &format!("  {name:width$}  {}\n", about.unwrap_or_default());
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{super::Cli, GROUPS};

    #[test]
    fn every_visible_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let mut visible: Vec<&str> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(clap::Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }
}

//! `attache completions`: prints completion scripts for shells.

use clap_complete::Shell;

use crate::{env::context::CommandContext, ui::failure::CommandFailure};

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache completions bash > ~/.local/share/bash-completion/completions/attache
  attache completions zsh > \"${fpath[1]}/_attache\"
  attache completions fish > ~/.config/fish/completions/attache.fish")]
pub(crate) struct Args {
    shell: Shell,
}

pub(super) fn run(context: &CommandContext, args: &Args, mut command: clap::Command) -> Result<(), CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "attache", &mut script);
    context.output.line(String::from_utf8_lossy(&script).trim_end())?;
    match args.shell {
        Shell::Bash => context.output.line(BASH),
        Shell::Zsh => context.output.line(ZSH),
        Shell::Fish => context.output.line(FISH),
        _ => Ok(()),
    }
}

/// Tries names from the hub first and falls back to the generated completions.
const BASH: &str = r#"
_attache_names() {
    local name
    COMPREPLY=()
    while IFS= read -r name; do
        COMPREPLY+=("$(printf '%q' "$name")")
    done < <(attache complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -gt 0 ]] || _attache "$@"
}
complete -F _attache_names -o bashdefault -o default attache"#;

const ZSH: &str = r#"
_attache_names() {
    local -a names
    names=("${(@f)$(attache complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${names[1]}" ]]; then compadd -a names; else _attache "$@"; fi
}
compdef _attache_names attache"#;

const FISH: &str = r#"
complete -c attache -a '(attache complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'"#;

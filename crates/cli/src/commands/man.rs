//! `attache man`: writes the manual pages of every command, for packages.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use clap_mangen::Man;
use serde::Serialize;

use crate::{env::context::CommandContext, ui::failure::CommandFailure};

/// Write the manual pages of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Folder for the pages; it is created if needed
    folder: PathBuf,
}

#[derive(Debug, Serialize)]
struct ManSummary {
    pages: usize,
}

pub(super) fn run(context: &CommandContext, args: &Args, mut command: clap::Command) -> Result<(), CommandFailure> {
    let failed = |error| CommandFailure::file("write the pages into", &args.folder, &error);
    fs::create_dir_all(&args.folder).map_err(failed)?;
    command = command.disable_help_subcommand(true);
    command.build();
    let pages = write_pages(&command, &args.folder).map_err(failed)?;
    if context.output.is_json() {
        return context.output.json(&ManSummary { pages });
    }
    context.output.say(format_args!("Wrote {pages} pages."));
    Ok(())
}

/// The page of a command and of all that are below it.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<usize> {
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages += write_pages(below, folder)?;
    }
    let man = Man::new(command.clone()).source(concat!("attache ", env!("CARGO_PKG_VERSION"))).manual("Attaché");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        page.extend(notes(&text.to_string()).into_bytes());
    }
    fs::write(folder.join(man.get_filename()), page)?;
    Ok(pages)
}

/// Examples and remarks, line by line as in the help.
fn notes(text: &str) -> String {
    let mut roff = String::from(".SH NOTES\n.nf\n");
    for line in text.lines() {
        // A dot or a quote at the start of a line would be a request.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let start = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _ = writeln!(roff, "{start}{line}");
    }
    roff + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_notes_are_not_requests() {
        let text = "Examples:\n  attache up --cwd a\\b\n.SH\n'x'";
        let expected = ".SH NOTES\n.nf\nExamples:\n  attache up \\-\\-cwd a\\eb\n\\&.SH\n\\&'x'\n.fi\n";
        assert_eq!(notes(text), expected);
    }
}

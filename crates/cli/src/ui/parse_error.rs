//! Prints help and usage errors: as clap does in English, and in the catalogue's words in Chinese.

use std::{
    error::Error as _,
    io::{self, Write as _},
};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::output::{ColorChoice, OutputFormat, TerminalOutput, TextStyle};
use crate::text::{help, is_chinese, parser, terms};

/// Prints help or the version to standard output, and an error to standard error.
pub(crate) fn print(error: &clap::Error, color: ColorChoice) -> io::Result<()> {
    if !is_chinese() {
        return error.print();
    }
    let output = TerminalOutput::new(OutputFormat::Text, color);
    if !error.use_stderr() {
        let rendered = error.render();
        let text = if output.in_color() { rendered.ansi().to_string() } else { rendered.to_string() };
        return io::stdout().lock().write_all(help::framed(&text).as_bytes());
    }
    let text = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => help::framed(&error.render().to_string()),
        _ => message(error, output.talk_in_color()),
    };
    io::stderr().lock().write_all(text.as_bytes())
}

/// What is wrong, what may have been meant, the usage, and where to find more.
fn message(error: &clap::Error, color: bool) -> String {
    let mut text = parser::labelled(TextStyle::Bad.paint(terms::error(), color), problem(error));
    let tips = tips(error);
    if !tips.is_empty() {
        text.push('\n');
    }
    for tip in tips {
        text += &format!("\n  {}", parser::labelled(TextStyle::Good.paint(parser::tip(), color), tip));
    }
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        text += &format!("\n\n{}", help::framed(usage.to_string().trim_end()));
    }
    format!("{text}\n\n{}\n", parser::more_help())
}

fn problem(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (argument, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    match (error.kind(), argument, value) {
        (ErrorKind::UnknownArgument, Some(argument), _) => parser::unknown_argument(argument),
        (ErrorKind::InvalidSubcommand, ..) => {
            parser::unknown_command(text(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        (ErrorKind::MissingSubcommand, ..) => {
            parser::no_command(text(ContextKind::InvalidSubcommand).unwrap_or("attache"))
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let missing = strings(error, ContextKind::InvalidArg);
            missing.iter().fold(parser::missing_arguments().to_owned(), |text, one| format!("{text}\n  {one}"))
        }
        (ErrorKind::InvalidValue, Some(argument), Some(value)) => {
            let wrong =
                if value.is_empty() { parser::no_value(argument) } else { parser::wrong_value(value, argument) };
            let possible = strings(error, ContextKind::ValidValue);
            if possible.is_empty() {
                return wrong;
            }
            format!("{wrong}\n  {}", parser::possible_values(possible.join(", ")))
        }
        (ErrorKind::ValueValidation, Some(argument), Some(value)) => match error.source() {
            Some(reason) => parser::wrong_value_because(value, argument, reason),
            None => parser::wrong_value(value, argument),
        },
        (ErrorKind::TooManyValues, Some(argument), Some(value)) => parser::extra_value(value, argument),
        (ErrorKind::ArgumentConflict, Some(argument), _) => {
            let others = strings(error, ContextKind::PriorArg);
            if others.iter().all(|other| other == argument) {
                return parser::used_twice(argument);
            }
            let others: Vec<_> = others.iter().map(|other| format!("'{other}'")).collect();
            parser::conflict(argument, others.join(", "))
        }
        // The parser's own words, without their label and what follows them.
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.split("\n\n").next().unwrap_or_default();
            first.trim_start_matches("error: ").trim_end().to_owned()
        }
    }
}

/// What the person may have meant.
fn tips(error: &clap::Error) -> Vec<String> {
    let mut tips = Vec::new();
    let commands = strings(error, ContextKind::SuggestedSubcommand);
    match commands.as_slice() {
        [] => {}
        [one] => tips.push(parser::similar_command(one)),
        several => {
            let quoted: Vec<_> = several.iter().map(|command| format!("'{command}'")).collect();
            tips.push(parser::similar_commands(quoted.join(", ")));
        }
    }
    tips.extend(strings(error, ContextKind::SuggestedArg).iter().map(parser::similar_argument));
    tips.extend(strings(error, ContextKind::SuggestedValue).iter().map(parser::similar_value));
    if let Some(ContextValue::StyledStrs(more)) = error.get(ContextKind::Suggested) {
        tips.extend(more.iter().map(|tip| suggestion(&tip.to_string())));
    }
    tips
}

/// A tip that the parser gives in words, or those words if it is another one.
fn suggestion(words: &str) -> String {
    let quoted = |start: &str, end: &str| words.strip_prefix(start)?.split_once(end).map(|(text, _)| text);
    if let Some(argument) = quoted("to pass '", "' as a value, use '-- ") {
        return parser::to_pass_value(argument);
    }
    match quoted("'", "' exists").and_then(|both| both.rsplit_once(' ')) {
        Some((command, argument)) => parser::option_of(command, argument),
        None => words.to_owned(),
    }
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(several)) => several.clone(),
        _ => Vec::new(),
    }
}

//! The words by which a prompt says what a stub model or a fake host shall do, wherever in the prompt they stand.
//!
//! A word begins after a space, a line break or one of `"'>([`. What may hold spaces (the text of `WRITE`, `RUN`, `SAY`,
//! `THINK`) reaches to the end of the line; `CALL` reaches to the end of its JSON.
//!
//! | Word | What it asks for |
//! |---|---|
//! | `WRITE:<path>[=<text>]` | write a file; `PLAN-FILE` is where Claude Code wants its plan |
//! | `RUN:<command>` | run a shell command |
//! | `CALL:<tool> [{json}]` | call the tool of that name |
//! | `SLEEP:<seconds>` | wait before going on; fractions are fine |
//! | `FAIL:<status>[x<times>]` | the model answers with that status, always or so many times |
//! | `REFUSE` | the model refuses |
//! | `LOOP` | call a harmless tool for ever |
//! | `SAY:<text>` | say the text |
//! | `TOKENS:<n>` | so many output tokens are reported |
//!
//! A fake host also knows `CRASH`, `EXIT:<status>`, `GARBAGE`, `HANG`, `CHILD`, `ASK:<tool>`, `THINK:<text>`, `COST:<usd>`,
//! `RETRY:<attempt>/<of>`, `ENV:<name>`, `SYSTEM`, `DENIED`, `PLAN` and `ARGS`; see [`crate::fake_host`].

use std::time::Duration;

use serde_json::Value;

/// What a file holds if the script does not say.
pub const TEXT: &str = "hello from stub";

#[derive(Debug, Clone, PartialEq)]
pub enum ScriptCommand {
    /// Text without the line break that ends the file.
    Write {
        path: String,
        text: String,
    },
    Run(String),
    Call {
        tool: String,
        input: Value,
    },
    Sleep(Duration),
    /// No number of times: always.
    Fail {
        status: u16,
        times: Option<u32>,
    },
    Refuse,
    Loop,
    Say(String),
    Tokens(u64),
    Crash,
    Exit(i32),
    Garbage,
    Hang,
    Child,
    Ask(String),
    Think(String),
    Cost(f64),
    Retry {
        attempt: u32,
        of: u32,
    },
    Env(String),
    System,
    Denied,
    Plan,
    Args,
}

/// The words of a prompt, in order.
pub fn parse(prompt: &str) -> Vec<ScriptCommand> {
    let mut words = Vec::new();
    let mut rest = prompt;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let may_begin = before.is_none_or(|c: char| c.is_whitespace() || "\"'>([".contains(c));
        let quote = before.filter(|c| "\"'".contains(*c));
        let taken = if may_begin { command(rest, quote) } else { None };
        let length = match taken {
            Some((word, length)) => {
                words.push(word);
                length
            }
            None => first.len_utf8(),
        };
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    words
}

/// The word at the very beginning, and how long it is. A quote before it ends it, if it stands at the end of the line: hosts
/// put what a person asks for in quotes.
fn command(text: &str, quote: Option<char>) -> Option<(ScriptCommand, usize)> {
    let name = &text[..text.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(text.len())];
    let after = &text[name.len()..];
    let bare = match name {
        "REFUSE" => Some(ScriptCommand::Refuse),
        "LOOP" => Some(ScriptCommand::Loop),
        "CRASH" => Some(ScriptCommand::Crash),
        "GARBAGE" => Some(ScriptCommand::Garbage),
        "HANG" => Some(ScriptCommand::Hang),
        "CHILD" => Some(ScriptCommand::Child),
        "SYSTEM" => Some(ScriptCommand::System),
        "DENIED" => Some(ScriptCommand::Denied),
        "PLAN" => Some(ScriptCommand::Plan),
        "ARGS" => Some(ScriptCommand::Args),
        _ => None,
    };
    if let Some(bare) = bare {
        let ends = after.chars().next().is_none_or(|c| !c.is_alphanumeric() && !"_:-'".contains(c));
        return ends.then_some((bare, name.len()));
    }
    let argument = after.strip_prefix(':')?;
    let line = argument.lines().next().unwrap_or_default();
    let line = quote.and_then(|quote| line.trim_end().strip_suffix(quote)).unwrap_or(line);
    let short = line.split(|c: char| c.is_whitespace() || "\"'<)]".contains(c)).next().unwrap_or_default();
    let (word, length) = match name {
        "WRITE" => {
            let path = short.split('=').next().unwrap_or_default();
            let text = line[path.len()..].strip_prefix('=');
            let length = path.len() + text.map_or(0, |text| 1 + text.len());
            (ScriptCommand::Write { path: path.to_owned(), text: text.unwrap_or(TEXT).to_owned() }, length)
        }
        "RUN" => (ScriptCommand::Run(line.trim().to_owned()), line.len()),
        "SAY" => (ScriptCommand::Say(line.trim().to_owned()), line.len()),
        "THINK" => (ScriptCommand::Think(line.trim().to_owned()), line.len()),
        "CALL" => {
            let (input, length) = json_after(argument, short.len());
            (ScriptCommand::Call { tool: short.to_owned(), input }, length)
        }
        "SLEEP" => (ScriptCommand::Sleep(Duration::try_from_secs_f64(number(short)?).ok()?), short.len()),
        "FAIL" => {
            let (status, times) = short.split_once('x').map_or((short, None), |(status, times)| (status, Some(times)));
            let times = times.map(|times| times.parse().ok());
            let times = if let Some(times) = times { Some(times?) } else { None };
            (ScriptCommand::Fail { status: status.parse().ok()?, times }, short.len())
        }
        "TOKENS" => (ScriptCommand::Tokens(short.parse().ok()?), short.len()),
        "EXIT" => (ScriptCommand::Exit(short.parse().ok()?), short.len()),
        "ASK" => (ScriptCommand::Ask(short.to_owned()), short.len()),
        "COST" => (ScriptCommand::Cost(number(short)?), short.len()),
        "RETRY" => {
            let (attempt, of) = short.split_once('/')?;
            (ScriptCommand::Retry { attempt: attempt.parse().ok()?, of: of.parse().ok()? }, short.len())
        }
        "ENV" => (ScriptCommand::Env(short.to_owned()), short.len()),
        _ => return None,
    };
    (length > 0).then_some((word, name.len() + 1 + length))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The JSON object that follows after some spaces, or an empty one; and where it ends.
fn json_after(text: &str, from: usize) -> (Value, usize) {
    let spaces = text[from..].len() - text[from..].trim_start().len();
    let begin = from + spaces;
    if text[begin..].starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
        if let Some(Ok(value)) = values.next() {
            return (value, begin + values.byte_offset());
        }
    }
    (Value::Object(serde_json::Map::new()), from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_found_wherever_they_stand() {
        let prompt = "Please WRITE:src/a.txt=two words\nthen RUN:echo 'a b' > c\n<task>CALL:mcp__x__go {\"n\": [1, \"}\"]} \
                      SLEEP:0.5 FAIL:429x2 FAIL:500 LOOP</task> \"REFUSE\" TOKENS:12 SAY:all done";
        assert_eq!(
            parse(prompt),
            [
                ScriptCommand::Write { path: "src/a.txt".to_owned(), text: "two words".to_owned() },
                ScriptCommand::Run("echo 'a b' > c".to_owned()),
                ScriptCommand::Call { tool: "mcp__x__go".to_owned(), input: json!({"n": [1, "}"]}) },
                ScriptCommand::Sleep(Duration::from_millis(500)),
                ScriptCommand::Fail { status: 429, times: Some(2) },
                ScriptCommand::Fail { status: 500, times: None },
                ScriptCommand::Loop,
                ScriptCommand::Refuse,
                ScriptCommand::Tokens(12),
                ScriptCommand::Say("all done".to_owned()),
            ]
        );
    }

    #[test]
    fn words_of_hosts() {
        assert_eq!(
            parse("CRASH EXIT:3 ASK:Bash COST:0.25 RETRY:2/10 ENV:HOME SYSTEM WRITE:a\nTHINK:hm, so CRASH"),
            [
                ScriptCommand::Crash,
                ScriptCommand::Exit(3),
                ScriptCommand::Ask("Bash".to_owned()),
                ScriptCommand::Cost(0.25),
                ScriptCommand::Retry { attempt: 2, of: 10 },
                ScriptCommand::Env("HOME".to_owned()),
                ScriptCommand::System,
                ScriptCommand::Write { path: "a".to_owned(), text: TEXT.to_owned() },
                ScriptCommand::Think("hm, so CRASH".to_owned()),
            ]
        );
    }

    #[test]
    fn what_only_resembles_a_word_is_text() {
        assert_eq!(parse("REWRITE:x LOOPS UN-LOOP SYSTEM_PROMPT WRITE: FAIL:soon FAIL:500xmany SLEEP:-1 ünd"), []);
    }

    #[test]
    fn a_quoted_word_ends_with_its_quote() {
        let written = ScriptCommand::Write { path: "a".to_owned(), text: "b c".to_owned() };
        assert_eq!(parse("\"WRITE:a=b c\"\nmore"), [written]);
        assert_eq!(parse("RUN:echo \"x\""), [ScriptCommand::Run("echo \"x\"".to_owned())]);
    }

    #[test]
    fn a_call_needs_no_json() {
        let call = ScriptCommand::Call { tool: "list".to_owned(), input: json!({}) };
        assert_eq!(parse("CALL:list and"), std::slice::from_ref(&call));
        assert_eq!(parse("CALL:list {broken"), [call]);
    }
}

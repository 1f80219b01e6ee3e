//! Decides what the model answers, from what it is asked alone.

use std::time::Duration;

use serde_json::json;

use super::{
    conversation::{ModelConversation, ModelTurn, ReplyMode},
    toolbox::{self, ModelToolCall},
};
use crate::script::{self, ScriptCommand};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelAnswer {
    /// The request fails with this status.
    Fail(u16),
    Reply(Box<ModelReply>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelReply {
    pub(crate) content: ModelContent,
    pub(crate) usage: ModelUsage,
    /// How long it takes before the content comes.
    pub(crate) delay: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelContent {
    Text(String),
    Refusal(String),
    Call(ModelToolCall),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelUsage {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

/// The text of the user that holds the script, and the answers of tools since then.
///
/// Hosts append messages of their own after the answer of a tool, so what counts is any answer since the script, not
/// whether one came last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptPrompt<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) words: Vec<ScriptCommand>,
    pub(crate) results: Vec<&'a str>,
}

// === impl ScriptPrompt ===

impl<'a> ScriptPrompt<'a> {
    pub(crate) fn of(conversation: &'a ModelConversation) -> Self {
        let mut told = Self { prompt: "", words: Vec::new(), results: Vec::new() };
        for turn in &conversation.turns {
            match turn {
                ModelTurn::User(text) => {
                    let words = script::parse(text);
                    if !words.is_empty() {
                        told = Self { prompt: text, words, results: Vec::new() };
                    }
                }
                ModelTurn::Result(text) => told.results.push(text),
            }
        }
        told
    }
}

/// The answer; `failed` is how often this script has failed already.
pub(crate) fn answer(conversation: &ModelConversation, told: &ScriptPrompt<'_>, failed: u32) -> ModelAnswer {
    let fails = told.words.iter().find_map(|word| match word {
        ScriptCommand::Fail { status, times } => Some((*status, times.is_none_or(|times| failed < times))),
        _ => None,
    });
    if let Some((status, true)) = fails {
        return ModelAnswer::Fail(status);
    }
    let tokens = told.words.iter().find_map(|word| if let ScriptCommand::Tokens(n) = word { Some(*n) } else { None });
    let delays =
        told.words.iter().filter_map(|word| if let ScriptCommand::Sleep(time) = word { Some(*time) } else { None });
    ModelAnswer::Reply(Box::new(ModelReply {
        content: content(conversation, told),
        usage: ModelUsage { input: 11, output: tokens.unwrap_or(7) },
        delay: if told.results.is_empty() { delays.sum() } else { Duration::ZERO },
    }))
}

fn content(conversation: &ModelConversation, told: &ScriptPrompt<'_>) -> ModelContent {
    if matches!(conversation.mode, ReplyMode::Json | ReplyMode::JsonStream) {
        // Gemini's program asks so which model is to be used, and who speaks next.
        let affairs = json!({"model_choice": "flash", "reasoning": "stub", "complexity_reasoning": "stub",
            "complexity_score": 10, "next_speaker": "user"});
        return ModelContent::Text(affairs.to_string());
    }
    if told.words.contains(&ScriptCommand::Refuse) {
        return ModelContent::Refusal("STUB-REFUSED".to_owned());
    }
    let tools = &conversation.tools;
    if !tools.is_empty() {
        let done = told.results.len();
        if told.words.contains(&ScriptCommand::Loop) {
            return toolbox::harmless(tools, done).map_or_else(|| none_for("LOOP"), ModelContent::Call);
        }
        let mut actions = told.words.iter().filter_map(|word| match word {
            ScriptCommand::Write { path, text } => Some((toolbox::write(tools, path, text), "WRITE")),
            ScriptCommand::Run(command) => Some((toolbox::run(tools, command), "RUN")),
            ScriptCommand::Call { tool, input } => Some((Some(toolbox::named(tools, tool, input)), "CALL")),
            _ => None,
        });
        if let Some((call, word)) = actions.nth(done) {
            return call.map_or_else(|| none_for(word), ModelContent::Call);
        }
    }
    let said = told
        .words
        .iter()
        .filter_map(|word| if let ScriptCommand::Say(text) = word { Some(text.clone()) } else { None });
    let said: Vec<String> = said.collect();
    let result = told.results.last().map(|result| format!("STUB-OK after tool: {}", brief(result)));
    let mut lines: Vec<String> = result.into_iter().chain(said).collect();
    if lines.is_empty() {
        lines.push("STUB-OK".to_owned());
    }
    ModelContent::Text(lines.join("\n"))
}

fn none_for(word: &str) -> ModelContent {
    ModelContent::Text(format!("STUB-ERROR: no tool for {word} is on offer"))
}

/// One line of at most 200 characters.
fn brief(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::stub_model::conversation::ModelTool;

    fn asked(turns: &[ModelTurn]) -> ModelConversation {
        let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let command = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
        let tools = vec![
            ModelTool::function("write", &path),
            ModelTool::function("read", &path),
            ModelTool::function("bash", &command),
        ];
        ModelConversation { model: "stub".to_owned(), mode: ReplyMode::Whole, tools, turns: turns.to_vec() }
    }

    fn user(text: &str) -> ModelTurn {
        ModelTurn::User(text.to_owned())
    }

    fn result(text: &str) -> ModelTurn {
        ModelTurn::Result(text.to_owned())
    }

    fn content_of(turns: &[ModelTurn]) -> ModelContent {
        let conversation = asked(turns);
        content(&conversation, &ScriptPrompt::of(&conversation))
    }

    fn called(turns: &[ModelTurn]) -> (String, Value) {
        let ModelContent::Call(call) = content_of(turns) else { panic!("a call is expected") };
        (call.tool.name, call.input)
    }

    fn text(text: &str) -> ModelContent {
        ModelContent::Text(text.to_owned())
    }

    #[test]
    fn each_action_once_and_then_a_text() {
        let script = user("WRITE:a.txt\nRUN:ls");
        assert_eq!(called(std::slice::from_ref(&script)), ("write".to_owned(), json!({"path": "a.txt"})));
        assert_eq!(called(&[script.clone(), result("written")]), ("bash".to_owned(), json!({"command": "ls"})));
        let all = [script, result("written"), result("a.txt\nb.txt"), user("a reminder by the host")];
        assert_eq!(content_of(&all), text("STUB-OK after tool: a.txt b.txt"));
    }

    #[test]
    fn a_new_script_begins_anew() {
        let turns = [user("RUN:ls"), result("a.txt"), user("RUN:pwd SAY:x")];
        assert_eq!(called(&turns), ("bash".to_owned(), json!({"command": "pwd SAY:x"})));
    }

    #[test]
    fn a_loop_never_ends_and_never_repeats_itself() {
        assert_eq!(called(&[user("LOOP")]), ("read".to_owned(), json!({"path": "no-such-file-0.txt"})));
        assert_eq!(
            called(&[user("LOOP"), result("no"), result("no")]),
            ("read".to_owned(), json!({"path": "no-such-file-2.txt"}))
        );
    }

    #[test]
    fn without_a_script_and_without_tools_there_is_a_text() {
        assert_eq!(content_of(&[user("hello")]), text("STUB-OK"));
        assert_eq!(content_of(&[user("SAY:one\nSAY:two")]), text("one\ntwo"));
        let title = ModelConversation { tools: Vec::new(), ..asked(&[user("A title for: WRITE:a.txt")]) };
        assert_eq!(content(&title, &ScriptPrompt::of(&title)), text("STUB-OK"));
        let cannot = ModelConversation { tools: asked(&[]).tools[1..2].to_vec(), ..asked(&[user("WRITE:a.txt")]) };
        assert_eq!(content(&cannot, &ScriptPrompt::of(&cannot)), text("STUB-ERROR: no tool for WRITE is on offer"));
    }

    #[test]
    fn it_fails_as_often_as_it_is_told() {
        let conversation = asked(&[user("FAIL:429x2 TOKENS:900 SLEEP:2")]);
        let told = ScriptPrompt::of(&conversation);
        assert_eq!(answer(&conversation, &told, 1), ModelAnswer::Fail(429));
        let reply = ModelReply {
            content: text("STUB-OK"),
            usage: ModelUsage { input: 11, output: 900 },
            delay: Duration::from_secs(2),
        };
        assert_eq!(answer(&conversation, &told, 2), ModelAnswer::Reply(Box::new(reply)));
        let always = asked(&[user("FAIL:500")]);
        assert_eq!(answer(&always, &ScriptPrompt::of(&always), 99), ModelAnswer::Fail(500));
    }
}

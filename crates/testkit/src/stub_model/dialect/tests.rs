//! What each dialect reads and says.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::stub_model::{
    answer::ModelUsage,
    conversation::{ModelTool, ModelToolKind, ModelTurn, ReplyMode},
    toolbox::ModelToolCall,
};

const LABEL: ReplyLabel<'_> = ReplyLabel { model: "m", serial: 3 };

fn reply(content: ModelContent) -> ModelReply {
    ModelReply { content, usage: ModelUsage { input: 11, output: 7 }, delay: Duration::ZERO }
}

fn call() -> ModelContent {
    ModelContent::Call(ModelToolCall { tool: ModelTool::function("go", &Value::Null), input: json!({"a": 1}) })
}

fn conversation(mode: ReplyMode) -> ModelConversation {
    ModelConversation {
        model: "m".to_owned(),
        mode,
        tools: vec![ModelTool::function("go", &json!({"type": "object"}))],
        turns: vec![
            ModelTurn::User("one\ntwo".to_owned()),
            ModelTurn::Result("done".to_owned()),
            ModelTurn::User("more".to_owned()),
        ],
    }
}

/// Names of the events, or `-`.
fn names(events: &(Vec<ModelStreamEvent>, Vec<ModelStreamEvent>)) -> (Vec<&str>, Vec<&str>) {
    let names = |events: &[ModelStreamEvent]| events.iter().map(|event| event.name.unwrap_or("-")).collect();
    (names(&events.0), names(&events.1))
}

#[test]
fn all_dialects_say_the_same_question() {
    let schema = json!({"type": "object"});
    let anthropic = json!({"model": "m", "stream": true, "tools": [{"name": "go", "input_schema": schema}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "go", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "more"}]}]});
    assert_eq!(ModelDialect::Anthropic.read("/v1/messages", &anthropic), conversation(ReplyMode::Stream));

    let responses = json!({"model": "m", "tools": [{"type": "function", "name": "go", "parameters": schema}], "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be good"}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
        {"type": "function_call", "call_id": "c", "name": "go", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"role": "user", "content": "more"}]});
    assert_eq!(ModelDialect::Responses.read("/v1/responses", &responses), conversation(ReplyMode::Whole));

    let chat = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": {"name": "go", "parameters": schema}}], "messages": [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "tool_calls": []},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": "more"}]});
    assert_eq!(ModelDialect::Chat.read("/v1/chat/completions", &chat), conversation(ReplyMode::StreamWithUsage));

    let gemini = json!({"tools": [{"functionDeclarations": [{"name": "go", "parametersJsonSchema": schema}]}], "contents": [
        {"role": "user", "parts": [{"text": "one"}, {"text": "two"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "go", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "go", "response": {"output": "done"}}}]},
        {"role": "user", "parts": [{"text": "more"}]}]});
    assert_eq!(
        ModelDialect::Gemini.read("/v1beta/models/m:streamGenerateContent", &gemini),
        conversation(ReplyMode::Stream)
    );
}

#[test]
fn tools_of_codex_are_of_three_kinds() {
    let tools = json!({"tools": [
        {"type": "local_shell"},
        {"type": "custom", "name": "apply_patch", "format": {}},
        {"type": "namespace", "name": "mcp__hub", "tools": [{"type": "function", "name": "go", "parameters": {}}]}]});
    let tool = |name: &str, namespace: Option<&str>, kind, schema| ModelTool {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        kind,
        schema,
    };
    assert_eq!(
        ModelDialect::Responses.read("/v1/responses", &tools).tools,
        [
            tool("local_shell", None, ModelToolKind::Function, Value::Null),
            tool("apply_patch", None, ModelToolKind::Custom, Value::Null),
            tool("go", Some("mcp__hub"), ModelToolKind::Function, json!({})),
        ]
    );
}

#[test]
fn anthropic_streams_a_call() {
    let events = ModelDialect::Anthropic.events(LABEL, &conversation(ReplyMode::Stream), &reply(call()));
    let rest =
        vec!["content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"];
    assert_eq!(names(&events), (vec!["message_start"], rest));
    assert_eq!(
        events.1[1].line(),
        "event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\
         \"partial_json\":\"{\\\"a\\\":1}\"},\"type\":\"content_block_delta\"}\n\n"
    );
    let whole = ModelDialect::Anthropic.whole(LABEL, &reply(ModelContent::Refusal("no".to_owned())));
    assert_eq!(
        whole,
        json!({"id": "msg_stub3", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "no"}], "stop_reason": "refusal", "stop_sequence": null,
            "usage": {"input_tokens": 11, "output_tokens": 7, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0}})
    );
}

#[test]
fn responses_stream_a_text_and_number_their_events() {
    let events = ModelDialect::Responses.events(
        LABEL,
        &conversation(ReplyMode::Stream),
        &reply(ModelContent::Text("a b".to_owned())),
    );
    let rest = vec![
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&events), (vec!["response.created", "response.in_progress"], rest));
    let numbers = events.0.iter().chain(&events.1).map(|event| {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        data["sequence_number"].as_u64().unwrap()
    });
    assert_eq!(numbers.collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    let whole = ModelDialect::Responses.whole(LABEL, &reply(call()));
    assert_eq!(
        whole["output"],
        json!([{"id": "call_item_stub3", "type": "function_call", "status": "completed", "call_id": "call_stub3",
            "name": "go", "arguments": "{\"a\":1}"}])
    );
    assert_eq!(whole["usage"]["total_tokens"], 18);
}

#[test]
fn chat_ends_with_the_usage_if_that_was_asked_for() {
    let text = reply(ModelContent::Text("a".to_owned()));
    let (first, rest) = ModelDialect::Chat.events(LABEL, &conversation(ReplyMode::StreamWithUsage), &text);
    assert_eq!((first.len(), rest.len()), (1, 4));
    let usage: Value = serde_json::from_str(&rest[2].data).unwrap();
    assert_eq!(usage["usage"], json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}));
    assert_eq!(rest[3].data, "[DONE]");
    let (_, rest) = ModelDialect::Chat.events(LABEL, &conversation(ReplyMode::Stream), &text);
    assert_eq!(rest.len(), 3);
}

#[test]
fn gemini_refuses_with_a_reason() {
    let whole = ModelDialect::Gemini.whole(LABEL, &reply(ModelContent::Refusal("no".to_owned())));
    assert_eq!(
        whole["candidates"],
        json!([{"content": {"role": "model", "parts": []}, "index": 0, "finishReason": "SAFETY"}])
    );
    let whole = ModelDialect::Gemini.whole(LABEL, &reply(call()));
    assert_eq!(whole["candidates"][0]["content"]["parts"], json!([{"functionCall": {"name": "go", "args": {"a": 1}}}]));
}

#[test]
fn paths_say_the_dialect() {
    assert_eq!(ModelDialect::of("/v1/messages"), Some(ModelDialect::Anthropic));
    assert_eq!(ModelDialect::of("/v1/messages/count_tokens"), None);
    assert_eq!(ModelDialect::of("/v1/responses"), Some(ModelDialect::Responses));
    assert_eq!(ModelDialect::of("/v1beta/models/x:generateContent"), Some(ModelDialect::Gemini));
}

//! OpenAI's chat completions: `POST /v1/chat/completions`.

use serde_json::{Value, json};

use super::{ModelStreamEvent, ReplyLabel, arguments, chunks, reason};
use crate::stub_model::{
    answer::{ModelContent, ModelReply},
    conversation::{ModelConversation, ModelTool, ModelTurn, ReplyMode, list, text_of},
};

pub(super) fn read(request: &Value) -> ModelConversation {
    let turns = list(&request["messages"]).iter().filter_map(|message| match message["role"].as_str() {
        Some("user") => Some(ModelTurn::User(text_of(&message["content"]))),
        Some("tool") => Some(ModelTurn::Result(text_of(&message["content"]))),
        _ => None,
    });
    let tools = list(&request["tools"]).iter().map(|tool| &tool["function"]);
    let with_usage = request["stream_options"]["include_usage"] == true;
    let mode = match ReplyMode::of(request) {
        ReplyMode::Stream if with_usage => ReplyMode::StreamWithUsage,
        mode => mode,
    };
    ModelConversation {
        model: text_of(&request["model"]),
        mode,
        tools: tools.map(|tool| ModelTool::function(&text_of(&tool["name"]), &tool["parameters"])).collect(),
        turns: turns.collect(),
    }
}

pub(super) fn whole(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    match &reply.content {
        ModelContent::Text(text) => message["content"] = json!(text),
        ModelContent::Refusal(text) => message["refusal"] = json!(text),
        ModelContent::Call(_) => message["tool_calls"] = json!([tool_call(label, reply)]),
    }
    let mut completion = envelope(label, "chat.completion");
    completion["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish_reason(reply)}]);
    completion["usage"] = usage(reply);
    completion
}

pub(super) fn events(
    label: ReplyLabel<'_>,
    mode: ReplyMode,
    reply: &ModelReply,
) -> (Vec<ModelStreamEvent>, Vec<ModelStreamEvent>) {
    let chunk = |choices: Value| {
        let mut chunk = envelope(label, "chat.completion.chunk");
        chunk["choices"] = choices;
        chunk
    };
    let delta = |delta: Value, reason: Value| {
        ModelStreamEvent::unnamed(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": reason}])))
    };
    let first = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut rest = match &reply.content {
        ModelContent::Text(text) => chunks(text).map(|piece| delta(json!({"content": piece}), Value::Null)).collect(),
        ModelContent::Refusal(text) => vec![delta(json!({"refusal": text}), Value::Null)],
        ModelContent::Call(_) => vec![delta(json!({"tool_calls": [tool_call(label, reply)]}), Value::Null)],
    };
    rest.push(delta(json!({}), json!(finish_reason(reply))));
    if mode == ReplyMode::StreamWithUsage {
        let mut last = chunk(json!([]));
        last["usage"] = usage(reply);
        rest.push(ModelStreamEvent::unnamed(&last));
    }
    rest.push(ModelStreamEvent { name: None, data: "[DONE]".to_owned() });
    (first, rest)
}

fn envelope(label: ReplyLabel<'_>, object: &str) -> Value {
    json!({"id": format!("chatcmpl-stub{}", label.serial), "object": object, "created": 0, "model": label.model})
}

fn tool_call(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    let ModelContent::Call(call) = &reply.content else {
        return Value::Null;
    };
    json!({"index": 0, "id": format!("call_stub{}", label.serial), "type": "function",
        "function": {"name": call.tool.name, "arguments": arguments(&call.input)}})
}

fn finish_reason(reply: &ModelReply) -> &'static str {
    reason(&reply.content, "stop", "tool_calls", "stop")
}

fn usage(reply: &ModelReply) -> Value {
    let (input, output) = (reply.usage.input, reply.usage.output);
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

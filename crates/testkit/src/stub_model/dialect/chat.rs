//! OpenAI's chat completions: `POST /v1/chat/completions`.

use serde_json::{Value, json};

use super::{Event, Label, arguments, pieces, reason};
use crate::stub_model::{
    answer::{Content, Reply},
    conversation::{Conversation, Mode, Tool, Turn, list, text_of},
};

pub(super) fn read(request: &Value) -> Conversation {
    let turns = list(&request["messages"]).iter().filter_map(|message| match message["role"].as_str() {
        Some("user") => Some(Turn::User(text_of(&message["content"]))),
        Some("tool") => Some(Turn::Result(text_of(&message["content"]))),
        _ => None,
    });
    let tools = list(&request["tools"]).iter().map(|tool| &tool["function"]);
    let with_usage = request["stream_options"]["include_usage"] == true;
    let mode = match Mode::of(request) {
        Mode::Stream if with_usage => Mode::StreamWithUsage,
        mode => mode,
    };
    Conversation {
        model: text_of(&request["model"]),
        mode,
        tools: tools.map(|tool| Tool::function(&text_of(&tool["name"]), &tool["parameters"])).collect(),
        turns: turns.collect(),
    }
}

pub(super) fn whole(label: Label<'_>, reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    match &reply.content {
        Content::Text(text) => message["content"] = json!(text),
        Content::Refusal(text) => message["refusal"] = json!(text),
        Content::Call(_) => message["tool_calls"] = json!([tool_call(label, reply)]),
    }
    let mut completion = envelope(label, "chat.completion");
    completion["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish_reason(reply)}]);
    completion["usage"] = usage(reply);
    completion
}

pub(super) fn events(label: Label<'_>, mode: Mode, reply: &Reply) -> (Vec<Event>, Vec<Event>) {
    let chunk = |choices: Value| {
        let mut chunk = envelope(label, "chat.completion.chunk");
        chunk["choices"] = choices;
        chunk
    };
    let delta = |delta: Value, reason: Value| {
        Event::unnamed(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": reason}])))
    };
    let first = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut rest = match &reply.content {
        Content::Text(text) => pieces(text).map(|piece| delta(json!({"content": piece}), Value::Null)).collect(),
        Content::Refusal(text) => vec![delta(json!({"refusal": text}), Value::Null)],
        Content::Call(_) => vec![delta(json!({"tool_calls": [tool_call(label, reply)]}), Value::Null)],
    };
    rest.push(delta(json!({}), json!(finish_reason(reply))));
    if mode == Mode::StreamWithUsage {
        let mut last = chunk(json!([]));
        last["usage"] = usage(reply);
        rest.push(Event::unnamed(&last));
    }
    rest.push(Event { name: None, data: "[DONE]".to_owned() });
    (first, rest)
}

fn envelope(label: Label<'_>, object: &str) -> Value {
    json!({"id": format!("chatcmpl-stub{}", label.serial), "object": object, "created": 0, "model": label.model})
}

fn tool_call(label: Label<'_>, reply: &Reply) -> Value {
    let Content::Call(call) = &reply.content else {
        return Value::Null;
    };
    json!({"index": 0, "id": format!("call_stub{}", label.serial), "type": "function",
        "function": {"name": call.tool.name, "arguments": arguments(&call.input)}})
}

fn finish_reason(reply: &Reply) -> &'static str {
    reason(&reply.content, "stop", "tool_calls", "stop")
}

fn usage(reply: &Reply) -> Value {
    let (input, output) = (reply.usage.input, reply.usage.output);
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

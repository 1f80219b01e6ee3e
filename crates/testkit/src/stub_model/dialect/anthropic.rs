//! Anthropic's messages: `POST /v1/messages`.

use serde_json::{Value, json};

use super::{ModelStreamEvent, ReplyLabel, chunks, reason};
use crate::stub_model::{
    answer::{ModelContent, ModelReply},
    conversation::{ModelConversation, ModelTool, ModelTurn, ReplyMode, list, text_of},
};

const WHILE_AT_WORK: &str = "The user sent a new message while you were working:";

/// Stands in a script for the file that the program wants the plan in.
const PLAN_FILE: &str = "PLAN-FILE";

pub(super) fn read(request: &Value) -> ModelConversation {
    let (mut turns, plan) = (Vec::new(), plan_file(request));
    for message in list(&request["messages"]).iter().filter(|message| is_of_user(message)) {
        let content = &message["content"];
        let (results, said): (Vec<&Value>, Vec<&Value>) =
            list(content).iter().partition(|block| block["type"] == "tool_result");
        turns.extend(results.into_iter().map(|block| ModelTurn::Result(text_of(&block["content"]))));
        let text = if content.is_string() {
            text_of(content)
        } else {
            said.into_iter().map(text_of).collect::<Vec<_>>().join("\n")
        };
        if !text.is_empty() {
            turns.push(ModelTurn::User(match &plan {
                Some(plan) => text.replace(PLAN_FILE, plan),
                None => text,
            }));
        }
    }
    let tools = list(&request["tools"]).iter();
    ModelConversation {
        model: text_of(&request["model"]),
        mode: ReplyMode::of(request),
        tools: tools.map(|tool| ModelTool::function(&text_of(&tool["name"]), &tool["input_schema"])).collect(),
        turns,
    }
}

/// What a person says while Claude Code works, it passes on as a message of the system.
fn is_of_user(message: &Value) -> bool {
    message["role"] == "user"
        || (message["role"] == "system" && text_of(&message["content"]).starts_with(WHILE_AT_WORK))
}

/// Where Claude Code, in its plan mode, tells the model to write the plan.
fn plan_file(request: &Value) -> Option<String> {
    let told =
        list(&request["messages"]).iter().map(|message| text_of(&message["content"])).collect::<Vec<_>>().join("\n");
    let (before, after) = told.split_once("/plans/")?;
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (name, _) = after.split_once(".md")?;
    Some(format!("{}/plans/{name}.md", &before[start..]))
}

pub(super) fn whole(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    let mut message = envelope(label, reply);
    message["content"] = json!([block(label, reply)]);
    message["stop_reason"] = json!(stop_reason(reply));
    message["usage"]["output_tokens"] = json!(reply.usage.output);
    message
}

pub(super) fn events(label: ReplyLabel<'_>, reply: &ModelReply) -> (Vec<ModelStreamEvent>, Vec<ModelStreamEvent>) {
    let first = vec![named("message_start", json!({"message": envelope(label, reply)}))];
    let (start, deltas) = match &reply.content {
        ModelContent::Text(text) | ModelContent::Refusal(text) => {
            let deltas: Vec<Value> = chunks(text).map(|piece| json!({"type": "text_delta", "text": piece})).collect();
            (json!({"type": "text", "text": ""}), deltas)
        }
        ModelContent::Call(call) => {
            let mut start = block(label, reply);
            start["input"] = json!({});
            (start, vec![json!({"type": "input_json_delta", "partial_json": call.input.to_string()})])
        }
    };
    let mut rest = vec![named("content_block_start", json!({"index": 0, "content_block": start}))];
    rest.extend(deltas.into_iter().map(|delta| named("content_block_delta", json!({"index": 0, "delta": delta}))));
    rest.push(named("content_block_stop", json!({"index": 0})));
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    rest.push(named("message_delta", json!({"delta": delta, "usage": {"output_tokens": reply.usage.output}})));
    rest.push(named("message_stop", json!({})));
    (first, rest)
}

/// Every event says in its data, too, which it is.
fn named(name: &'static str, mut data: Value) -> ModelStreamEvent {
    data["type"] = json!(name);
    ModelStreamEvent::named(name, &data)
}

fn envelope(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    json!({
        "id": format!("msg_stub{}", label.serial), "type": "message", "role": "assistant", "model": label.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": reply.usage.input, "output_tokens": 1, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0},
    })
}

fn block(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    match &reply.content {
        ModelContent::Text(text) | ModelContent::Refusal(text) => json!({"type": "text", "text": text}),
        ModelContent::Call(call) => {
            let id = format!("toolu_stub{}", label.serial);
            json!({"type": "tool_use", "id": id, "name": call.tool.name, "input": call.input})
        }
    }
}

fn stop_reason(reply: &ModelReply) -> &'static str {
    reason(&reply.content, "end_turn", "tool_use", "refusal")
}

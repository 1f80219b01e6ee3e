//! OpenAI's responses: `POST /v1/responses`.

use serde_json::{Value, json};

use super::{ModelStreamEvent, ReplyLabel, arguments, chunks};
use crate::stub_model::{
    answer::{ModelContent, ModelReply},
    conversation::{ModelConversation, ModelTool, ModelToolKind, ModelTurn, ReplyMode, list, text_of},
};

pub(super) fn read(request: &Value) -> ModelConversation {
    let input = &request["input"];
    let mut turns = Vec::new();
    if let Value::String(text) = input {
        turns.push(ModelTurn::User(text.clone()));
    }
    for item in list(input) {
        if text_of(&item["type"]).ends_with("_output") {
            turns.push(ModelTurn::Result(text_of(&item["output"])));
        } else if item["role"] == "user" {
            turns.push(ModelTurn::User(text_of(&item["content"])));
        }
    }
    let tools = list(&request["tools"]).iter().flat_map(|tool| {
        let name = text_of(&tool["name"]);
        if tool["type"] == "namespace" {
            let members = list(&tool["tools"]).iter();
            return members.map(|tool| ModelTool { namespace: Some(name.clone()), ..read_tool(tool) }).collect();
        }
        vec![read_tool(tool)]
    });
    ModelConversation { model: text_of(&request["model"]), mode: ReplyMode::of(request), tools: tools.collect(), turns }
}

/// Tools without a name are known by their type, for example `local_shell`.
fn read_tool(tool: &Value) -> ModelTool {
    let name = tool.get("name").unwrap_or(&tool["type"]);
    let kind = if tool["type"] == "custom" { ModelToolKind::Custom } else { ModelToolKind::Function };
    ModelTool { kind, ..ModelTool::function(&text_of(name), &tool["parameters"]) }
}

pub(super) fn whole(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    response(label, "completed", &json!([item(label, reply)]), &usage(reply))
}

pub(super) fn events(label: ReplyLabel<'_>, reply: &ModelReply) -> (Vec<ModelStreamEvent>, Vec<ModelStreamEvent>) {
    let mut numbered = EventNumbering(0);
    let begun = response(label, "in_progress", &json!([]), &Value::Null);
    let first = vec![
        numbered.event("response.created", json!({"response": begun})),
        numbered.event("response.in_progress", json!({"response": begun})),
    ];
    let item = item(label, reply);
    let id = item["id"].clone();
    let mut rest = Vec::new();
    let mut say = |name, data| rest.push(numbered.event(name, data));
    match &reply.content {
        ModelContent::Text(_) | ModelContent::Refusal(_) => {
            let mut empty = item.clone();
            empty["status"] = json!("in_progress");
            empty["content"] = json!([]);
            say("response.output_item.added", json!({"output_index": 0, "item": empty}));
            let place = json!({"item_id": id, "output_index": 0, "content_index": 0});
            let at = |member: &str, value: Value| {
                let mut data = place.clone();
                data[member] = value;
                data
            };
            if let ModelContent::Text(text) = &reply.content {
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                say("response.content_part.added", at("part", part));
                for piece in chunks(text) {
                    say("response.output_text.delta", at("delta", json!(piece)));
                }
                say("response.output_text.done", at("text", json!(text)));
            } else if let ModelContent::Refusal(text) = &reply.content {
                say("response.content_part.added", at("part", json!({"type": "refusal", "refusal": ""})));
                say("response.refusal.delta", at("delta", json!(text)));
                say("response.refusal.done", at("refusal", json!(text)));
            }
            say("response.content_part.done", at("part", item["content"][0].clone()));
        }
        ModelContent::Call(call) => {
            let (member, delta, done) = match call.tool.kind {
                ModelToolKind::Function => {
                    ("arguments", "response.function_call_arguments.delta", "response.function_call_arguments.done")
                }
                ModelToolKind::Custom => {
                    ("input", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
                }
            };
            let mut empty = item.clone();
            empty["status"] = json!("in_progress");
            empty[member] = json!("");
            say("response.output_item.added", json!({"output_index": 0, "item": empty}));
            say(delta, json!({"item_id": id, "output_index": 0, "delta": item[member]}));
            let mut whole = json!({"item_id": id, "output_index": 0});
            whole[member] = item[member].clone();
            say(done, whole);
        }
    }
    say("response.output_item.done", json!({"output_index": 0, "item": item}));
    say("response.completed", json!({"response": whole(label, reply)}));
    (first, rest)
}

/// Events of a response are numbered.
struct EventNumbering(u64);

impl EventNumbering {
    fn event(&mut self, name: &'static str, mut data: Value) -> ModelStreamEvent {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.0);
        self.0 += 1;
        ModelStreamEvent::named(name, &data)
    }
}

fn response(label: ReplyLabel<'_>, status: &str, output: &Value, usage: &Value) -> Value {
    json!({
        "id": format!("resp_stub{}", label.serial), "object": "response", "created_at": 0, "status": status,
        "model": label.model, "output": output, "usage": usage, "error": null, "incomplete_details": null,
    })
}

fn item(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    let serial = label.serial;
    let message = |content: Value| {
        json!({"id": format!("msg_stub{serial}"), "type": "message", "role": "assistant", "status": "completed",
            "content": [content]})
    };
    let call = match &reply.content {
        ModelContent::Text(text) => return message(json!({"type": "output_text", "text": text, "annotations": []})),
        ModelContent::Refusal(text) => return message(json!({"type": "refusal", "refusal": text})),
        ModelContent::Call(call) => call,
    };
    let (id, call_id, name) = (format!("call_item_stub{serial}"), format!("call_stub{serial}"), &call.tool.name);
    let mut item = match call.tool.kind {
        ModelToolKind::Function => json!({"id": id, "type": "function_call", "status": "completed", "call_id": call_id,
            "name": name, "arguments": arguments(&call.input)}),
        ModelToolKind::Custom => {
            json!({"id": id, "type": "custom_tool_call", "status": "completed", "call_id": call_id,
            "name": name, "input": arguments(&call.input)})
        }
    };
    if let Some(namespace) = &call.tool.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

fn usage(reply: &ModelReply) -> Value {
    let (input, output) = (reply.usage.input, reply.usage.output);
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output})
}

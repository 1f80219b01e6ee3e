//! Google's models: `POST …:generateContent` and `…:streamGenerateContent?alt=sse`.

use serde_json::{Value, json};

use super::{ReplyLabel, reason};
use crate::stub_model::{
    answer::{ModelContent, ModelReply},
    conversation::{ModelConversation, ModelTool, ModelTurn, ReplyMode, list, text_of},
};

pub(super) fn read(path: &str, request: &Value) -> ModelConversation {
    let mut turns = Vec::new();
    for content in list(&request["contents"]).iter().filter(|content| content["role"] != "model") {
        let parts = list(&content["parts"]);
        turns.extend(parts.iter().filter_map(|part| part.get("functionResponse")).map(|answer| {
            let response = &answer["response"];
            let text = text_of(response);
            ModelTurn::Result(if text.is_empty() { response.to_string() } else { text })
        }));
        let text = text_of(&content["parts"]);
        if !text.is_empty() {
            turns.push(ModelTurn::User(text));
        }
    }
    let tools = list(&request["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let tools = tools.map(|tool| {
        let schema = tool.get("parametersJsonSchema").unwrap_or(&tool["parameters"]);
        ModelTool::function(&text_of(&tool["name"]), schema)
    });
    let wants_json = request["generationConfig"]["responseMimeType"] == "application/json";
    let mode = match (path.ends_with(":streamGenerateContent"), wants_json) {
        (false, false) => ReplyMode::Whole,
        (false, true) => ReplyMode::Json,
        (true, false) => ReplyMode::Stream,
        (true, true) => ReplyMode::JsonStream,
    };
    ModelConversation { model: model_of(path), mode, tools: tools.collect(), turns }
}

/// `/v1beta/models/<model>:generateContent`.
fn model_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default().to_owned()
}

pub(super) fn whole(label: ReplyLabel<'_>, reply: &ModelReply) -> Value {
    let parts = match &reply.content {
        ModelContent::Text(text) => json!([{"text": text}]),
        ModelContent::Refusal(_) => json!([]),
        ModelContent::Call(call) => json!([{"functionCall": {"name": call.tool.name, "args": call.input}}]),
    };
    let (input, output) = (reply.usage.input, reply.usage.output);
    json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0,
            "finishReason": reason(&reply.content, "STOP", "STOP", "SAFETY")}],
        "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output},
        "modelVersion": label.model,
        "responseId": format!("stub{}", label.serial),
    })
}

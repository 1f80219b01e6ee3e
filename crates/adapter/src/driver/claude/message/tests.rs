//! Tests with lines recorded from Claude Code 2.1.325.

use super::*;

const INIT: &str = r#"{"type":"system","subtype":"init","cwd":"/srv","session_id":"47aae263","tools":["Bash","Write"],"mcp_servers":[{"name":"attache","status":"connected","source":"dynamic"}],"model":"claude-opus-5-5","permissionMode":"default","apiKeySource":"ANTHROPIC_API_KEY","claude_code_version":"2.1.325"}"#;
const RETRY: &str = r#"{"type":"system","subtype":"api_retry","attempt":7,"max_retries":10,"retry_delay_ms":38785,"error_status":null,"error":"unknown","session_id":"114b5a8e","uuid":"ac6ba39d"}"#;
const TOOL: &str = r#"{"type":"assistant","message":{"id":"msg_stub1","type":"message","role":"assistant","model":"claude-opus-5-5","content":[{"type":"tool_use","id":"toolu_stub1","name":"Write","input":{"file_path":"a.txt","content":"hi\n"}}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"output_tokens":1,"cache_creation_input_tokens":2,"cache_read_input_tokens":3},"context_management":null},"parent_tool_use_id":null,"session_id":"47aae263"}"#;
const SYNTHETIC: &str = r#"{"type":"assistant","message":{"id":"eb832961","model":"<synthetic>","role":"assistant","type":"message","usage":{"output_tokens_details":null,"input_tokens":0,"output_tokens":0,"service_tier":null},"content":[{"type":"text","text":"API Error: Connection refused"}]},"parent_tool_use_id":null,"error":"server_error","is_api_error_message":true}"#;
const ASK: &str = r#"{"type":"control_request","request_id":"cc91203a","request":{"subtype":"can_use_tool","tool_name":"Write","display_name":"Write","input":{"file_path":"/srv/a.txt", "content":"hi\n"},"description":"a.txt","permission_suggestions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}],"server_policy_ask_only":true,"tool_use_id":"toolu_stub1"}}"#;
const RESULT: &str = r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_stub1","type":"tool_result","content":"File created"}]},"parent_tool_use_id":null,"tool_use_result":{"type":"create"}}"#;
const REJECTED: &str = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"no"},{"type":"text","text":"way"}],"is_error":true,"tool_use_id":"t"}]}}"#;

fn said(line: &str) -> ClaudeMessage {
    read(line).unwrap()
}

fn tokens(input: u64, output: u64) -> ClaudeTokens {
    ClaudeTokens { input_tokens: Some(input), output_tokens: Some(output), ..ClaudeTokens::default() }
}

#[test]
fn init_and_retries_are_read() {
    let server = ClaudeMcpServer { name: "attache".to_owned(), status: "connected".to_owned() };
    let tools = vec!["Bash".to_owned(), "Write".to_owned()];
    let init = ClaudeInit { session_id: "47aae263".to_owned(), tools, mcp_servers: vec![server] };
    assert_eq!(said(INIT), ClaudeMessage::Init(init));
    let retry = ClaudeApiRetry { attempt: 7, max_retries: Some(10), error_status: None, error: "unknown".to_owned() };
    assert_eq!(said(RETRY), ClaudeMessage::Retry(retry));
}

#[test]
fn answers_are_read_in_pieces_and_complete() {
    let piece = |event: &str| {
        let line = format!(r#"{{"type":"stream_event","event":{event},"session_id":"s","parent_tool_use_id":null}}"#);
        match said(&line) {
            ClaudeMessage::Delta { within: None, piece } => piece,
            other => panic!("{other:?}"),
        }
    };
    let start = r#"{"message":{"id":"msg_1","type":"message","usage":{"input_tokens":11,"output_tokens":1}},"type":"message_start"}"#;
    assert_eq!(piece(start), ClaudeDelta::Begins { id: "msg_1".to_owned(), usage: tokens(11, 1) });
    let text = r#"{"index":0,"content_block":{"type":"text","text":""},"type":"content_block_start"}"#;
    assert_eq!(piece(text), ClaudeDelta::Text);
    let delta = |inner: &str| piece(&format!(r#"{{"index":0,"delta":{inner},"type":"content_block_delta"}}"#));
    assert_eq!(delta(r#"{"type":"text_delta","text":"STUB-OK "}"#), ClaudeDelta::Said("STUB-OK ".to_owned()));
    assert_eq!(delta(r#"{"type":"thinking_delta","thinking":"hm"}"#), ClaudeDelta::Thought("hm".to_owned()));
    assert_eq!(delta(r#"{"type":"input_json_delta","partial_json":"{}"}"#), ClaudeDelta::Other);
    let used = r#"{"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7},"type":"message_delta"}"#;
    assert_eq!(piece(used), ClaudeDelta::Used(ClaudeTokens { output_tokens: Some(7), ..ClaudeTokens::default() }));

    let ClaudeMessage::Assistant(tool) = said(TOOL) else { panic!("a part of an answer") };
    assert_eq!((tool.id.as_str(), tool.usage.input(), tool.usage.output()), ("msg_stub1", 16, 1));
    let input = Json::from_text(r#"{"file_path":"a.txt","content":"hi\n"}"#).unwrap();
    let block = ClaudeBlock::Tool { id: "toolu_stub1".to_owned(), name: "Write".to_owned(), input };
    assert_eq!((tool.blocks, tool.is_error, tool.within), (vec![block], false, None));
    let ClaudeMessage::Assistant(error) = said(SYNTHETIC) else { panic!("a part of an answer") };
    assert!(error.is_error);
}

#[test]
fn questions_keep_their_exact_input() {
    let ask = ClaudeToolRequest {
        tool_name: "Write".to_owned(),
        input: Json::from_text(r#"{"file_path":"/srv/a.txt", "content":"hi\n"}"#).unwrap(),
        description: Some("a.txt".to_owned()),
        decision_reason: None,
        blocked_path: None,
        tool_use_id: "toolu_stub1".to_owned(),
        agent_id: None,
    };
    assert_eq!(said(ASK), ClaudeMessage::Ask { id: "cc91203a".to_owned(), ask });
    let other = r#"{"type":"control_request","request_id":"9","request":{"subtype":"hook_callback","x":1}}"#;
    assert_eq!(said(other), ClaudeMessage::Unknown { id: "9".to_owned() });
    let withdrawn = r#"{"type":"control_cancel_request","request_id":"45bb2c78"}"#;
    assert_eq!(said(withdrawn), ClaudeMessage::Withdrawn { id: "45bb2c78".to_owned() });
}

#[test]
fn tools_answer_in_text_or_blocks() {
    let result = |id: &str, failed, text: &str| ClaudeToolResult { id: id.to_owned(), failed, text: text.to_owned() };
    assert_eq!(said(RESULT), ClaudeMessage::Results(vec![result("toolu_stub1", false, "File created")]));
    assert_eq!(said(REJECTED), ClaudeMessage::Results(vec![result("t", true, "no\nway")]));
    assert_eq!(said(r#"{"type":"user","message":{"content":"hi"}}"#), ClaudeMessage::Results(Vec::new()));
}

#[test]
fn unknown_messages_are_skipped_and_broken_ones_are_errors() {
    assert_eq!(said(r#"{"type":"rate_limit_event","x":1}"#), ClaudeMessage::Other);
    let limit = ClaudeRateLimit {
        status: "allowed_warning".to_owned(),
        resets_at: Some(1_800_000_000),
        rate_limit_type: Some("five_hour".to_owned()),
        utilization: Some(0.95),
    };
    let line = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1800000000,"rateLimitType":"five_hour","utilization":0.95}}"#;
    assert_eq!(
        limit.warning().as_deref(),
        Some("95% of the account's five hour limit is used; it resets at 2027-01-15T08:00:00.000Z")
    );
    assert_eq!(said(line), ClaudeMessage::Limit(limit));
    assert_eq!(said(r#"{"subtype":"status","type":"system"}"#), ClaudeMessage::Other);
    let fine = r#"{"type":"control_response","response":{"subtype":"success","request_id":"begin","response":{}}}"#;
    assert_eq!(said(fine), ClaudeMessage::Answer { error: None });
    let bad = r#"{"type":"control_response","response":{"subtype":"error","request_id":"begin","error":"no"}}"#;
    assert_eq!(said(bad), ClaudeMessage::Answer { error: Some("no".to_owned()) });
    for broken in ["not json", "{}", r#"{"type":"assistant","message":{"#, r#"{"type":"result","is_error":"maybe"}"#] {
        assert!(read(broken).is_err(), "{broken}");
    }
}

#[test]
fn an_answer_is_counted_once() {
    let mut tally = TokenTally::default();
    tally.begins(None, "msg_1".to_owned(), tokens(11, 1));
    tally.count("msg_1", tokens(11, 1));
    tally.begins(Some("toolu_1"), "msg_2".to_owned(), tokens(5, 1));
    tally.goes_on(None, ClaudeTokens { output_tokens: Some(7), ..ClaudeTokens::default() });
    tally.goes_on(Some("toolu_1"), tokens(5, 9));
    tally.goes_on(Some("nobody"), tokens(100, 100));
    assert_eq!(tally.total(), (16, 16));
    // Also of answers that are no longer remembered.
    let long = "x".repeat(1 << 20);
    (0..20).for_each(|number| tally.count(&format!("{number}{long}"), tokens(1, 2)));
    assert_eq!(tally.total(), (36, 56));
}

//! Display names of known hosts. To the hub, labels are opaque strings.

use attache_protocol::Json;

use crate::text::Text;

/// `host_type` labels and their display names.
const KNOWN: &[(&str, &str)] = &[
    ("claude_cli", "Claude Code CLI"),
    ("claude", "Claude Code"),
    ("hermes", "Hermes Agent"),
    ("openclaw", "OpenClaw"),
    ("cursor", "Cursor Agent"),
    ("cursor_acp", "Cursor Agent (ACP)"),
    ("codex", "Codex CLI"),
    ("gemini", "Gemini CLI"),
    ("qwen", "Qwen Code"),
    ("opencode", "OpenCode"),
    ("goose", "Goose"),
    ("aider", "Aider"),
];

/// The display name of a runtime's host, or the raw label if it is unknown.
pub(crate) fn name(labels: &Json, t: &Text) -> Option<String> {
    let label = labels.text_member("host_type").filter(|label| !label.trim().is_empty())?;
    let name = match label.as_str() {
        "custom" => t.host_custom,
        "shell" => t.host_shell,
        "command" => t.host_command,
        "acp" => t.host_acp,
        label => KNOWN.iter().find(|(key, _)| *key == label).map_or(label, |(_, name)| name),
    };
    Some(match labels.text_member("asks").as_deref() {
        Some("no") => t.host_asks_nobody(name),
        Some("partly") => t.host_asks_partly(name),
        _ => name.to_owned(),
    })
}

/// Whether tasks of this host are scripts rather than prompts.
pub(crate) fn runs_scripts(labels: &Json) -> bool {
    labels.text_member("host_type").is_some_and(|label| label == "shell" || label == "command")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn known_labels_have_names_and_others_are_unchanged() {
        let of = |text: &str| name(&Json::from_text(text).unwrap(), Language::En.text());
        assert_eq!(of(r#"{"host_type":"claude_cli"}"#).as_deref(), Some("Claude Code CLI"));
        assert_eq!(of(r#"{"host_type":"<b>mine</b>"}"#).as_deref(), Some("<b>mine</b>"));
        assert_eq!(of(r#"{"host_type":7}"#), None);
        assert_eq!(of(r#"{"host_type":"shell","asks":"no"}"#).as_deref(), Some("Built-in shell (never asks)"));
        assert_eq!(of(r#"{"host_type":"codex","asks":"yes"}"#).as_deref(), Some("Codex CLI"));
        assert_eq!(of("{}"), None);
    }
}

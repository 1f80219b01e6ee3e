//! Builds a host's prompts: the system prompt (instructions and context, in order) and the task.

use attache_protocol::Json;
use serde::Deserialize;

use crate::DriverRun;

/// The instructions of account and conversation, the caller's context, then the adapter's own instructions.
pub(crate) fn system(job: &DriverRun) -> Option<String> {
    let context = job.task.context_fragments.as_ref().and_then(context);
    let parts = [job.task.instructions.clone(), context, job.standing.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Prepends the system prompt to the task, for hosts without a system prompt.
pub(crate) fn whole(system: Option<&str>, task: &str) -> String {
    match system {
        None => task.to_owned(),
        Some(system) => format!("<instructions>\n{system}\n</instructions>\n\n{task}"),
    }
}

/// Fragments are strings, or objects with a `text` or `content`. Anything else is included as JSON.
fn context(fragments: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct ContextFragment {
        text: Option<String>,
        content: Option<String>,
    }
    let fragments: Vec<Json> = fragments.parse().ok()?;
    let texts: Vec<String> = fragments
        .iter()
        .map(|fragment| {
            let inside =
                || fragment.parse::<ContextFragment>().ok().and_then(|fragment| fragment.text.or(fragment.content));
            fragment.parse::<String>().ok().or_else(inside).unwrap_or_else(|| fragment.get().to_owned())
        })
        .filter(|text| !text.trim().is_empty())
        .collect();
    (!texts.is_empty()).then(|| format!("Context provided with the task:\n\n{}", texts.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_with_text_are_shown_as_text() {
        let json = Json::from_text(r#"["one",{"text":"two"},{"content":"three","x":1},{"url":"u"},"  "]"#).unwrap();
        let expected = "Context provided with the task:\n\none\n\ntwo\n\nthree\n\n{\"url\":\"u\"}";
        assert_eq!(context(&json).as_deref(), Some(expected));
        assert_eq!(context(&Json::from_text("[]").unwrap()), None);
    }

    #[test]
    fn a_host_without_a_system_prompt_gets_it_before_the_task() {
        assert_eq!(whole(None, "task"), "task");
        assert_eq!(whole(Some("be brief"), "task"), "<instructions>\nbe brief\n</instructions>\n\ntask");
    }
}

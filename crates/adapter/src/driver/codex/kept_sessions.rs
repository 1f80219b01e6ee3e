//! The sessions that Codex keeps: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl` in its own folder.

use std::path::Path;

use attache_protocol::{Json, wire::host_session::is_session_id};
use serde::Deserialize;

use crate::host::session_file::{self, SessionChoice, SessionFile, StoredHostSession};

/// One line of a session.
#[derive(Debug, Deserialize)]
struct RolloutLine {
    #[serde(rename = "type")]
    kind: String,
    payload: RolloutPayload,
}

/// The members of a payload that say what the session is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RolloutPayload {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    cwd: Option<String>,
    /// Who began it. That of a sub-agent is an object.
    source: Option<Json>,
    item: Option<RolloutItem>,
    /// What a person said, before version 0.160.
    message: Option<String>,
}

/// A line of `session_index.jsonl`: the name that a person gave a session. The last one counts.
#[derive(Debug, Deserialize)]
struct NamedSession {
    id: String,
    thread_name: String,
}

#[derive(Debug, Deserialize)]
struct RolloutItem {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    content: Vec<RolloutContent>,
}

#[derive(Debug, Deserialize)]
struct RolloutContent {
    #[serde(default)]
    text: String,
}

/// How many of the newest files are looked for.
const MAX_FILES: usize = 2000;
/// How many of those that changed last are read.
const MAX_READ: usize = 300;

/// The sessions of a folder, which is named without links, newest first. `home` is the program's own folder.
pub(super) fn list(home: &Path, folder: &Path, choice: SessionChoice<'_>) -> Vec<StoredHostSession> {
    let mut files = Vec::new();
    let mut days: Vec<_> = vec![home.join("sessions")];
    for _level in ["year", "month", "day"] {
        days = days.iter().flat_map(|folder| newest_first(folder)).take(MAX_FILES).collect();
    }
    for day in days {
        files.extend(session_file::files(&day, ".jsonl"));
        if files.len() >= MAX_FILES {
            break;
        }
    }
    files.retain(|file| choice.includes(file));
    files.sort_by_key(|file| std::cmp::Reverse(file.modified));
    let index = session_file::files(home, "session_index.jsonl");
    let index = index.first().map(SessionFile::lines).unwrap_or_default();
    let name = |id: &str| index.last::<NamedSession>().find(|named| named.id == id).map(|named| named.thread_name);
    files.iter().take(MAX_READ).filter_map(|file| session(file, folder, name)).take(choice.most()).collect()
}

/// The subfolders that are numbers, the highest first.
fn newest_first(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = session_file::folders(folder);
    found.retain(|(name, _)| name.bytes().all(|byte| byte.is_ascii_digit()));
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    found.into_iter().map(|(_, path)| path).collect()
}

/// `None` if it isn't a session of this folder that a person could continue.
fn session(file: &SessionFile, folder: &Path, name: impl Fn(&str) -> Option<String>) -> Option<StoredHostSession> {
    let lines = file.lines();
    let meta = lines.first::<RolloutLine>().find(|line| line.kind == "session_meta")?.payload;
    let is_here = meta.cwd.as_deref().is_some_and(|cwd| session_file::is_in(folder, cwd));
    let by_person = !meta.source.is_some_and(|source| source.is_object());
    if !is_here || !by_person || !is_session_id(&meta.id) || !file.stem().ends_with(&meta.id) {
        return None;
    }
    let title = name(&meta.id).or_else(|| lines.first::<RolloutLine>().find_map(RolloutLine::said))?;
    Some(StoredHostSession { id: meta.id, title: session_file::title(&title)?, updated_at: file.modified })
}

// === impl RolloutLine ===

impl RolloutLine {
    /// What a person said.
    fn said(self) -> Option<String> {
        let RolloutPayload { kind, item, message, .. } = self.payload;
        let said = match (self.kind.as_str(), kind.as_str()) {
            ("event_msg", "user_message") => message,
            ("event_msg", "item_completed") => {
                let item = item.filter(|item| item.kind == "UserMessage")?;
                item.content.into_iter().map(|part| part.text).find(|text| !text.trim().is_empty())
            }
            _ => None,
        };
        said.filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    const ID: &str = "01a1f0dd-7617-7fb1-a72e-9f0c08b0d1d5";

    /// As version 0.166.0 writes it, without what it tells its model.
    const ROLLOUT: &str = r#"{"timestamp":"2026-11-18T22:53:30.505Z","ordinal":0,"type":"session_meta","payload":{"session_id":"01a1f0dd-7617-7fb1-a72e-9f0c08b0d1d5","id":"01a1f0dd-7617-7fb1-a72e-9f0c08b0d1d5","timestamp":"2026-11-18T22:53:27.403Z","cwd":"$CWD","runtime_workspace_roots":["$CWD"],"originator":"codex-tui","cli_version":"0.166.0","source":"vscode","thread_source":"user","model_provider":"stub","base_instructions":{"text":"You are a coding agent running in the Codex CLI."}}}
{"timestamp":"2026-11-18T22:53:30.552Z","ordinal":3,"type":"response_item","payload":{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"<environment_context>\n  <cwd>$CWD</cwd>\n</environment_context>"}]}}
{"timestamp":"2026-11-18T22:53:30.563Z","ordinal":7,"type":"response_item","payload":{"type":"message","id":"msg_2","role":"user","content":[{"type":"input_text","text":"codex interactive"}]}}
{"timestamp":"2026-11-18T22:53:30.563Z","ordinal":8,"type":"event_msg","payload":{"type":"item_completed","thread_id":"01a1f0dd-7617-7fb1-a72e-9f0c08b0d1d5","turn_id":"t","item":{"type":"UserMessage","id":"u","content":[{"type":"text","text":"codex interactive","text_elements":[]}]},"started_at_ms":1,"completed_at_ms":1}}
{"timestamp":"2026-11-18T22:53:30.589Z","ordinal":9,"type":"event_msg","payload":{"type":"item_completed","thread_id":"01a1f0dd-7617-7fb1-a72e-9f0c08b0d1d5","turn_id":"t","item":{"type":"AgentMessage","id":"m1","content":[{"type":"Text","text":"CODEX-ANSWER"}]},"started_at_ms":1,"completed_at_ms":1}}
"#;

    fn keep(home: &Path, work: &Path, id: &str, text: &str) -> PathBuf {
        let day = home.join("sessions/2026/11/18");
        fs::create_dir_all(&day).unwrap();
        let file = day.join(format!("rollout-2026-11-18T22-53-27-{id}.jsonl"));
        fs::write(&file, text.replace("$CWD", work.to_str().unwrap())).unwrap();
        file
    }

    fn titles(home: &Path, work: &Path) -> Vec<(String, String)> {
        list(home, work, SessionChoice::Newest(10)).into_iter().map(|session| (session.id, session.title)).collect()
    }

    #[test]
    fn a_session_of_the_folder_is_listed_by_its_first_task_or_name() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().canonicalize().unwrap();
        let here = |title: &str| [(ID.to_owned(), title.to_owned())];
        keep(home.path(), &work, ID, ROLLOUT);
        assert_eq!(titles(home.path(), &work), here("codex interactive"));
        // Earlier versions wrote another event.
        let earlier = r#"{"type":"event_msg","payload":{"type":"user_message","message":"an earlier version"}}"#;
        let (meta, _) = ROLLOUT.split_once('\n').unwrap();
        keep(home.path(), &work, ID, &format!("{meta}\n{earlier}\n"));
        assert_eq!(titles(home.path(), &work), here("an earlier version"));
        let name = |name: &str| {
            format!("{{\"id\":\"{ID}\",\"thread_name\":\"{name}\",\"updated_at\":\"2026-11-18T23:00:15.67801139Z\"}}\n")
        };
        fs::write(home.path().join("session_index.jsonl"), name("Its first name") + &name("My own name")).unwrap();
        assert_eq!(titles(home.path(), &work), here("My own name"));
    }

    #[test]
    fn other_folders_sub_agents_and_garbage_are_left_out() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().canonicalize().unwrap();
        let other = |digit: &str| format!("{digit}{}", &ID[1..]);
        keep(home.path(), Path::new("/somewhere/else"), ID, ROLLOUT);
        let sub_agent = ROLLOUT.replace(r#""source":"vscode""#, r#""source":{"subagent":"review"}"#);
        keep(home.path(), &work, &other("1"), &sub_agent.replace(ID, &other("1")));
        // The name of the file and what it says differ.
        keep(home.path(), &work, &other("2"), ROLLOUT);
        keep(home.path(), &work, &other("3"), "garbage\n{\"type\":\"session_meta\",\"payload\":[]}\n{");
        let link = home.path().join("sessions/2027");
        std::os::unix::fs::symlink(home.path().join("sessions/2026"), link).unwrap();
        assert_eq!(titles(home.path(), &work), []);
        keep(home.path(), &work, ID, ROLLOUT);
        assert_eq!(titles(home.path(), &work).len(), 1, "once, although a link leads there, too");
    }
}

//! The sessions that Claude Code keeps for a folder: `projects/<folder>/<session>.jsonl` in its own folder.

use std::path::Path;

use attache_protocol::wire::host_session::is_session_id;
use serde::Deserialize;

use crate::host::session_file::{self, SessionChoice, SessionFile, StoredHostSession};

/// The members of a line that say what the session is about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaudeRecord {
    #[serde(rename = "type")]
    kind: String,
    cwd: Option<String>,
    is_sidechain: bool,
    is_meta: bool,
    message: Option<RecordedMessage>,
    /// The name that a person gave it.
    custom_title: Option<String>,
    /// The name that the program gave it.
    ai_title: Option<String>,
    last_prompt: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RecordedMessage {
    content: RecordedContent,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RecordedContent {
    Text(String),
    Blocks(Vec<RecordedBlock>),
}

#[derive(Debug, Deserialize)]
struct RecordedBlock {
    #[serde(default)]
    text: String,
}

/// Longer names of folders end in a hash instead.
const MAX_NAME: usize = 200;

/// What the program itself puts into a person's messages.
const NOT_SAID: &[&str] =
    &["<command-", "<local-command-", "<bash-", "<ide_", "<system-reminder", "<task-notification"];

/// The sessions of a folder, which is named without links, newest first. `config` is the program's own folder.
pub(super) fn list(config: &Path, folder: &Path, choice: SessionChoice<'_>) -> Vec<StoredHostSession> {
    let Some(name) = project_name(folder) else { return Vec::new() };
    let is_of = |found: &str| match name.len() {
        ..=MAX_NAME => found == name,
        _ => found.strip_prefix(&name[..MAX_NAME]).is_some_and(|rest| rest.starts_with('-')),
    };
    let projects = session_file::folders(&config.join("projects")).into_iter().filter(|(found, _)| is_of(found));
    let files = projects.flat_map(|(_, path)| session_file::files(&path, ".jsonl"));
    let mut files: Vec<_> = files.filter(|file| choice.includes(file)).collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.modified));
    files.iter().filter_map(|file| session(file, folder)).take(choice.most()).collect()
}

/// The name of the folder with the sessions of this one. Others can have the same.
fn project_name(folder: &Path) -> Option<String> {
    let plain = |unit: u16| char::from_u32(u32::from(unit)).filter(char::is_ascii_alphanumeric).unwrap_or('-');
    Some(folder.to_str()?.encode_utf16().map(plain).collect())
}

/// `None` if it isn't a session of this folder that a person could continue.
fn session(file: &SessionFile, folder: &Path) -> Option<StoredHostSession> {
    // Those of sub-agents have other names.
    let id = file.stem();
    let is_uuid = id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !is_uuid || !is_session_id(id) {
        return None;
    }
    let lines = file.lines();
    let cwd = lines.first::<ClaudeRecord>().find_map(|record| record.cwd)?;
    if !session_file::is_in(folder, &cwd) {
        return None;
    }
    let mut first_said = lines.first::<ClaudeRecord>().filter(|record| record.kind == "user" && !record.is_meta);
    let opening = first_said.next();
    if opening.as_ref().is_some_and(|record| record.is_sidechain) {
        return None;
    }
    let said = || opening.into_iter().chain(first_said).find_map(|record| record.message?.content.said());
    let named = |kind: &str, name: fn(ClaudeRecord) -> Option<String>| {
        lines.last::<ClaudeRecord>().find(|record| record.kind == kind).and_then(name)
    };
    let title = named("custom-title", |record| record.custom_title)
        .or_else(|| named("ai-title", |record| record.ai_title))
        .or_else(said)
        .or_else(|| named("last-prompt", |record| record.last_prompt))?;
    Some(StoredHostSession { id: id.to_owned(), title: session_file::title(&title)?, updated_at: file.modified })
}

// === impl RecordedContent ===

impl RecordedContent {
    /// What the person wrote.
    fn said(self) -> Option<String> {
        let is_said = |text: &String| {
            let text = text.trim_start();
            !text.is_empty() && !NOT_SAID.iter().any(|prefix| text.starts_with(prefix))
        };
        match self {
            Self::Text(text) => Some(text).filter(is_said),
            Self::Blocks(blocks) => blocks.into_iter().map(|block| block.text).find(is_said),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use tempfile::TempDir;

    use super::*;

    const ID: &str = "5f84eaf7-e37f-49a0-b0ee-01ef1b487eff";

    /// A home with the records of one folder.
    struct Home {
        folder: TempDir,
        work: PathBuf,
    }

    impl Home {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let work = folder.path().canonicalize().unwrap().join("My Pröject_1.x");
            fs::create_dir(&work).unwrap();
            Self { folder, work }
        }

        fn keep(&self, name: &str, text: &str) -> PathBuf {
            let project = self.folder.path().join("projects").join(project_name(&self.work).unwrap());
            fs::create_dir_all(&project).unwrap();
            let file = project.join(name);
            fs::write(&file, text.replace("$CWD", self.work.to_str().unwrap())).unwrap();
            file
        }

        fn titles(&self) -> Vec<String> {
            list(self.folder.path(), &self.work, SessionChoice::Newest(10))
                .into_iter()
                .map(|session| session.title)
                .collect()
        }
    }

    /// As version 2.1.325 writes it when somebody types into its terminal, without what it tells its model.
    const TYPED: &str = r#"{"type":"mode","mode":"normal","sessionId":"5f84eaf7-e37f-49a0-b0ee-01ef1b487eff"}
{"type":"file-history-snapshot","messageId":"b36e7e82-7848-4006-acfa-3831d0dff5cd","snapshot":{"messageId":"b36e7e82-7848-4006-acfa-3831d0dff5cd","trackedFileBackups":{},"timestamp":"2026-11-18T22:53:16.330Z"},"isSnapshotUpdate":false}
{"parentUuid":null,"isSidechain":false,"promptId":"2f5fd09f-33cb-46fa-939e-d71824438631","type":"user","message":{"role":"user","content":"interactive prompt"},"uuid":"b36e7e82-7848-4006-acfa-3831d0dff5cd","timestamp":"2026-11-18T22:53:16.327Z","permissionMode":"auto","origin":{"kind":"human"},"promptSource":"typed","userType":"external","entrypoint":"cli","cwd":"$CWD","sessionId":"5f84eaf7-e37f-49a0-b0ee-01ef1b487eff","version":"2.1.325","gitBranch":"HEAD"}
{"parentUuid":"857181c0-fcbf-4b6b-96af-b9be54c048ee","isSidechain":false,"message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5-5","content":[{"type":"text","text":"ANSWER-2"}],"stop_reason":"end_turn"},"type":"assistant","uuid":"80b4cebd-20eb-4227-a7e0-ca8b30960f0a","cwd":"$CWD","sessionId":"5f84eaf7-e37f-49a0-b0ee-01ef1b487eff"}
{"type":"last-prompt","lastPrompt":"interactive prompt","leafUuid":"399e3ab7-c8ad-4877-b8a4-ff0f01c02ca5","sessionId":"5f84eaf7-e37f-49a0-b0ee-01ef1b487eff"}
"#;

    #[test]
    fn a_session_of_the_folder_is_listed_by_its_first_task_or_name() {
        let home = Home::new();
        let file = home.keep(&format!("{ID}.jsonl"), TYPED);
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        let millis = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let session = StoredHostSession {
            id: ID.to_owned(),
            title: "interactive prompt".to_owned(),
            updated_at: attache_protocol::Timestamp::from_millis(i64::try_from(millis).unwrap()),
        };
        assert_eq!(list(home.folder.path(), &home.work, SessionChoice::Newest(10)), [session]);
        let named = format!(
            "{TYPED}{}\n{}\n",
            r#"{"type":"custom-title","customTitle":"Release 2","sessionId":"5f84"}"#,
            r#"{"type":"ai-title","aiTitle":"Another name","sessionId":"5f84"}"#
        );
        home.keep(&format!("{ID}.jsonl"), &named);
        assert_eq!(home.titles(), ["Release 2"]);
    }

    #[test]
    fn what_a_person_said_is_told_from_what_the_program_added() {
        let home = Home::new();
        let user = |content: &str| {
            format!(r#"{{"type":"user","message":{{"role":"user","content":{content}}},"cwd":"$CWD"}}"#)
        };
        let lines = [
            user(r#""<command-name>/clear</command-name>""#),
            user(
                r#"[{"type":"image","source":{}},{"type":"text","text":"<ide_opened_file>a</ide_opened_file>"},{"type":"text","text":"what is this?"}]"#,
            ),
        ];
        home.keep(&format!("{ID}.jsonl"), &lines.join("\n"));
        assert_eq!(home.titles(), ["what is this?"]);
    }

    #[test]
    fn other_folders_sub_agents_and_garbage_are_left_out() {
        let home = Home::new();
        // Another folder can lead to the same name.
        home.keep(&format!("{ID}.jsonl"), &TYPED.replace("$CWD", "/somewhere/else"));
        home.keep("00000000-e37f-49a0-b0ee-01ef1b487eff.jsonl", "garbage\n\u{0}\n{\"type\":\"user\"");
        home.keep(
            "10000000-e37f-49a0-b0ee-01ef1b487eff.jsonl",
            &TYPED.replace("\"isSidechain\":false", "\"isSidechain\":true"),
        );
        home.keep("agent-a1b2c3.jsonl", TYPED);
        let real = home.folder.path().join("outside.jsonl");
        fs::write(&real, TYPED.replace("$CWD", home.work.to_str().unwrap())).unwrap();
        let project = home.folder.path().join("projects").join(project_name(&home.work).unwrap());
        std::os::unix::fs::symlink(&real, project.join("20000000-e37f-49a0-b0ee-01ef1b487eff.jsonl")).unwrap();
        assert_eq!(home.titles(), [""; 0]);
    }

    #[test]
    fn the_folder_of_a_project_has_the_name_that_the_program_gives_it() {
        let name = |path: &str| project_name(Path::new(path)).unwrap();
        assert_eq!(name("/tmp/ws/My Pröject_1.x"), "-tmp-ws-My-Pr-ject-1-x");
        assert_eq!(name("/tmp/e🙂x"), "-tmp-e--x");
    }
}

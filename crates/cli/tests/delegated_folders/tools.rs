//! A model delegates a folder: `attache mcp` as a client starts it, with everything behind it real.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{DelegationWorld, FolderRoute};
use crate::{harness::until, mcp::McpProcess};

const SOON: Duration = Duration::from_secs(10);

struct ModelWithTools<'a> {
    world: &'a DelegationWorld,
    tools: McpProcess,
}

impl<'a> ModelWithTools<'a> {
    fn of(world: &'a DelegationWorld) -> Self {
        Self { world, tools: McpProcess::start(&world.host, &[]) }
    }

    fn delegate(&mut self, prompt: &str, background: bool) -> Value {
        self.tools.call(
            "delegate",
            json!({
                "description": "Work in it",
                "prompt": prompt,
                "peer_url": self.world.agent_url(),
                "workspace_dir": self.world.folder,
                "background": background,
                "ttl_seconds": 120,
            }),
        )
    }
}

/// The metadata, which is identical at the end of the text and in the structured content.
fn metadata(result: &Value) -> Value {
    let metadata = &result["structuredContent"]["metadata"];
    let text = result["content"][0]["text"].as_str().unwrap();
    let (_, block) = text.rsplit_once("<AWCP_metadata>\n").unwrap_or_else(|| panic!("{text}"));
    let lines = block.strip_suffix("</AWCP_metadata>").unwrap_or_else(|| panic!("{text}")).lines();
    for (name, value) in lines.map(|line| line.split_once(": ").unwrap()) {
        let structured = &metadata[name];
        let same = structured == value || structured.as_array().is_some_and(|all| all == &[json!(value)]);
        assert!(same, "{name}: {value} and {structured}");
    }
    metadata.clone()
}

#[test]
fn a_model_delegates_a_folder() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    world.write("greeting.txt", "hello\n");
    let mut model = ModelWithTools::of(&world);

    // Waits for the result.
    let done = model.delegate("cat greeting.txt; echo world >> greeting.txt; echo new > made.txt", false);
    assert_eq!(done["isError"], json!(false), "{done:#}");
    let messages = metadata(&done);
    assert_eq!(
        (messages["status"].as_str(), messages["peer_url"].as_str()),
        (Some("completed"), Some(&*world.agent_url())),
        "{done:#}"
    );
    let output = done["structuredContent"]["output"].as_str().unwrap();
    for said in ["hello\n", "greeting.txt (modified)", "made.txt (added)", "Next: review the changes"] {
        assert!(output.contains(said), "{said}: {output}");
    }
    assert_eq!((world.read("greeting.txt"), world.read("made.txt")), ("hello\nworld\n".into(), "new\n".into()));
    let links: Vec<_> = done["content"].as_array().unwrap().iter().filter(|it| it["type"] == "resource_link").collect();
    assert_eq!(links.len(), 2, "{done:#}");
    world.is_clean(SOON);

    // Fetches the result later.
    let begun =
        model.delegate("while [ ! -e go ]; do sleep 0.1; done; rm go; echo later >> greeting.txt; echo fetched", true);
    let id = metadata(&begun)["delegation_id"].as_str().unwrap().to_owned();
    let status = |model: &mut ModelWithTools<'_>| {
        metadata(&model.tools.call("delegate_output", json!({ "delegation_id": id })))["status"].clone()
    };
    until("the remote to work", || (status(&mut model) == "running").then_some(()));
    world.write("go", "");
    let fetched = model.tools.call("delegate_output", json!({ "delegation_id": id, "block": true, "timeout": 40 }));
    let messages = metadata(&fetched);
    assert_eq!((&messages["status"], &messages["delegation_id"]), (&json!("completed"), &json!(id)), "{fetched:#}");
    assert!(fetched["structuredContent"]["output"].as_str().unwrap().starts_with("fetched"), "{fetched:#}");
    assert_eq!(world.read("greeting.txt"), "hello\nworld\nlater\n");

    // Cancels it.
    let begun = model.delegate("echo begun > begun.txt; sleep 100; echo late > late.txt", true);
    let id = metadata(&begun)["delegation_id"].as_str().unwrap().to_owned();
    until("the remote to write", || (world.read("begun.txt") == "begun\n").then_some(()));
    let ended = model.tools.call("delegate_cancel", json!({ "delegation_id": id }));
    assert_eq!(
        (&ended["isError"], metadata(&ended)["status"].as_str()),
        (&json!(false), Some("cancelled")),
        "{ended:#}"
    );
    world.is_clean(SOON);
    let shown = model.tools.call("delegate_output", json!({ "delegation_id": id }));
    assert_eq!(metadata(&shown)["code"], "CANCELLED", "{shown:#}");
    assert_eq!((world.read("begun.txt"), world.folder.join("late.txt").exists()), ("begun\n".into(), false));
    // Everything belongs to one session.
    let session = metadata(&done)["session_id"].clone();
    assert_eq!(
        (metadata(&fetched)["session_id"].clone(), metadata(&ended)["session_id"].clone()),
        (session.clone(), session)
    );
    assert!(model.tools.close());
}

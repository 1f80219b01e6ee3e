//! Steps of a host: the approval questions about them, and their results.

use serde_json::{Value, json};

use super::{AsksWhom, DriverUnderTest, HOSTS, asking};
use crate::{
    hosts::{answer, answered, failure, no, result, texts, yes},
    world::{AdapterWorld, task},
};

/// A file to be written.
struct ExpectedFile {
    name: &'static str,
    text: &'static str,
    diff: &'static str,
    change: &'static str,
}

const FILES: [ExpectedFile; 2] = [
    ExpectedFile { name: "a.txt", text: "new\n", diff: "@@ -1 +1 @@\n-old\n+new\n", change: "update" },
    ExpectedFile { name: "b.txt", text: "made\n", diff: "@@ -0,0 +1 @@\n+made\n", change: "add" },
];

impl DriverUnderTest {
    /// The expected question about a file.
    fn question(&self, id: &str, file: &ExpectedFile, world: &AdapterWorld) -> Value {
        let path = world.cwd.join(file.name).display().to_string();
        let input = match self.manner {
            "acp" => json!({"file_path": file.name, "content": file.text}),
            "claude" => json!({"file_path": path, "content": file.text}),
            _ => json!({"changes": [{"path": path, "change": file.change}]}),
        };
        let mut question = json!({
            "id": id, "tool": self.write, "input": input, "cwd": world.cwd, "paths": [path], "risk": "medium",
            "diff": format!("--- {path}\n+++ {path}\n{}", file.diff),
        });
        if self.manner != "acp" {
            question["assured"] = json!(["folder_edit"]);
        }
        if self.manner != "codex" {
            question["reason"] = json!(format!("Write {}", file.name));
        }
        question
    }

    /// The expected tool calls for writing a file, at its start and end.
    fn calls(&self, file: &ExpectedFile, world: &AdapterWorld) -> [Value; 2] {
        let path = world.cwd.join(file.name).display().to_string();
        let input = json!({"file_path": file.name, "content": file.text});
        let output = format!("wrote {}", file.name);
        let mut begun = json!({"name": self.write, "status": "started", "title": output.replace("wrote", "Write"),
            "input": input});
        let mut ended = json!({"name": self.write, "status": "completed", "output": output});
        match self.manner {
            "acp" => {
                ended["title"] = begun["title"].clone();
                ended["input"] = input;
            }
            "codex" => {
                begun["title"] = json!(path);
                begun["input"] = json!({"paths": [path], "diff": format!("--- {path}\n+++ {path}\n{}", file.diff)});
                ended = begun.clone();
                ended["status"] = json!("completed");
            }
            "jsonl" => {
                begun.as_object_mut().unwrap().remove("title");
            }
            _ => {}
        }
        [begun, ended]
    }

    /// The expected question when the host discloses almost nothing.
    fn mystery(&self, world: &AdapterWorld) -> Value {
        let (tool, reason, risk, undisclosed) = match self.manner {
            "acp" => ("mystery", "mystery", "medium", json!(["input", "paths"])),
            "claude" => ("mystery", "mystery", "high", json!(["paths"])),
            _ => {
                let reason = "Codex doesn't say whether this runs inside its sandbox";
                ("shell", reason, "high", json!(["input", "paths"]))
            }
        };
        json!({
            "id": "q1", "tool": tool, "input": {}, "cwd": world.cwd, "reason": reason, "risk": risk,
            "undisclosed": undisclosed,
        })
    }
}

#[tokio::test]
async fn a_step_is_shown_in_full_and_done_after_approval() {
    for host in HOSTS {
        let world = host.world().await;
        std::fs::write(world.cwd.join("a.txt"), "old\n").unwrap();
        let task = task("THINK:hm, so\nSAY:I begin\nWRITE:a.txt=new\nWRITE:b.txt=made");
        let (asked, events) = answered(&world, &task, yes).await;
        let asks = host.asks == AsksWhom::People;
        let questions = ["q1", "q2"].iter().zip(&FILES).map(|(id, file)| host.question(id, file, &world));
        assert_eq!(asked, questions.filter(|_| asks).collect::<Vec<_>>());
        for file in &FILES {
            assert_eq!(std::fs::read_to_string(world.cwd.join(file.name)).unwrap(), file.text, "{}", host.manner);
        }
        assert_eq!(texts(&events, "thought", "text").concat(), "hm, so", "{}", host.manner);
        // Each text appears once, even if it is sent in pieces and complete. A new message starts after a tool.
        let said = ["I begin", "FAKE-OK after tool: wrote b.txt"];
        let streamed = said.map(|text| host.streamed(&[text])).join("\n\n");
        assert_eq!(texts(&events, "chunk", "text").concat(), streamed, "{}", host.manner);
        let mut done = host.done(&said);
        if host.manner == "acp" {
            done["output"]["text"] = json!(streamed);
        }
        assert_eq!(*result(&events), done, "{}", host.manner);

        let mut calls: Vec<Value> =
            events.iter().filter(|event| event.1 == "tool_call").map(|event| event.2.clone()).collect();
        let ids: Vec<Value> =
            calls.iter_mut().map(|call| call.as_object_mut().unwrap().remove("id").unwrap()).collect();
        assert_eq!(
            calls,
            FILES.iter().flat_map(|file| host.calls(file, &world)).collect::<Vec<_>>(),
            "{}",
            host.manner
        );
        assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");

        let waiting = FILES.iter().flat_map(|file| {
            let path = world.cwd.join(file.name).display().to_string();
            [format!("waiting for approval: {} {path}", host.write), "Fake host continues".to_owned()]
        });
        let told = ["starting Fake host", "Fake host is working on the task"].map(str::to_owned).into_iter();
        let told: Vec<String> = told.chain(waiting.filter(|_| asks)).collect();
        assert_eq!(texts(&events, "progress", "message"), told, "{}", host.manner);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_denied_step_fails_the_run_with_the_reason() {
    for host in asking() {
        let world = host.world().await;
        let (questions, events) = answered(&world, &task("WRITE:a.txt"), no).await;
        assert_eq!(questions.len(), 1);
        let file = world.cwd.join("a.txt");
        assert!(!file.exists());
        let expected = format!(
            "permission_denied: Fake host was denied permission: {} {} (not today). Its answer: FAKE-OK after tool: denied",
            host.write,
            file.display()
        );
        assert_eq!(failure(result(&events)), expected);
        // Progress after a denial counts.
        let decide = |question: &Value| json!({"approved": question["tool"] == host.run});
        let (questions, events) = answered(&world, &task("WRITE:a.txt=x\nRUN:echo instead > b.txt"), decide).await;
        assert_eq!((questions.len(), &questions[1]["undisclosed"]), (2, &json!(["paths"])), "{}", host.manner);
        assert_eq!(result(&events)["success"], true, "{}", host.manner);
        assert_eq!((file.exists(), world.cwd.join("b.txt").exists()), (false, true));
        world.stop().await;
    }
}

#[tokio::test]
async fn undisclosed_details_are_reported() {
    for host in asking() {
        let world = host.world().await;
        let (questions, events) = answered(&world, &task("ASK:mystery"), yes).await;
        assert_eq!(questions, [host.mystery(&world)]);
        assert_eq!(*result(&events), host.done(&["FAKE-OK after tool: may use mystery"]));
        world.stop().await;
    }
}

#[tokio::test]
async fn a_late_answer_still_counts() {
    for host in asking() {
        let world = host.world().await;
        let task = task("WRITE:a.txt=x\nSAY:after");
        let mut events = world.stream(&task).await;
        let question = loop {
            let (_, name, data) = events.next().await.unwrap();
            if name == "permission" {
                break data;
            }
        };
        assert!(!world.cwd.join("a.txt").exists());
        answer(&world, &task, &question, &json!({"approved": true})).await;
        assert_eq!(events.rest().await.last().unwrap().2["success"], true, "{}", host.manner);
        assert!(world.cwd.join("a.txt").exists());
        world.stop().await;
    }
}

//! Third-party secrets: the key of an outside agent, and a subscriber's token.

use serde_json::{Value, json};

use super::LeakWorld;
use crate::{
    deliveries::CallbackReceiver,
    harness::{http, until},
    leak::search::{PlantedSecret, SecretKind},
};

impl LeakWorld {
    /// Adds an agent of another hub to this hub, with the key that it requires.
    pub fn add_an_agent_elsewhere(&mut self) {
        let up = self.elsewhere.up(&[]);
        up.agent_is("local", "online");
        let key = self.know(SecretKind::PeerKey, &up.key);
        let file = self.hub_home.keep_secret("elsewhere.key", &key.text);
        let url = format!("{}/a2a/local", up.url);
        let args = ["agents", "add", "elsewhere", "--peer", &url, "--peer-key-file", &file, "--json"];
        let made = self.command(|world| &world.hub_home, &args, |_| None).succeeds().json();
        assert_eq!(made["peer"]["has_key"], true, "{made}");
        self.agents.push(made["agent_id"].as_str().unwrap().to_owned());
        self.running.push(up.process);
    }

    /// It works, so the key was used where it belongs.
    pub fn ask_elsewhere(&mut self) {
        let run = self.hub.ask("elsewhere", &format!("echo there {}", self.canary.text));
        assert_eq!(run["status"], "completed", "{run:#}");
        self.runs.push(run);
    }

    /// One subscriber receives a task's updates; another one is unreachable.
    pub fn subscribe(&mut self) {
        let token = self.know(SecretKind::PushToken, &format!("pt_{}", "5ab5c71b0e70cafe".repeat(4)));
        let credential = self.know(SecretKind::PushCredential, &format!("pc_{}", "c4ed1d0ff1ce7e57".repeat(4)));
        let receiver = CallbackReceiver::start(&[Some(500)]);
        let config = |url: &str| {
            json!({ "id": "mine", "url": url, "token": token.text,
                "authentication": { "scheme": "Bearer", "credentials": credential.text } })
        };
        let send = |url: &str| {
            let message = json!({ "messageId": url, "role": "ROLE_USER", "parts": [{ "text": "echo told" }] });
            json!({ "message": message, "configuration": { "taskPushNotificationConfig": config(url) } })
        };
        let told = self.rpc("SendMessage", &send(&receiver.origin), &[]);
        // Nothing listens on this port.
        self.rpc("SendMessage", &send("http://127.0.0.1:9/"), &[]);
        receiver.told(1);
        let head = receiver.head(1).to_lowercase();
        assert!(head.contains(&format!("x-a2a-notification-token: {}", token.text)), "{head}");
        assert!(head.contains(&format!("authorization: bearer {}", credential.text)), "{head}");
        until("the attempt at nobody", || {
            let deliveries = self.hub.get("/api/v1/deliveries");
            let deliveries = deliveries["deliveries"].as_array().unwrap().clone();
            let nobodys = |delivery: &Value| delivery["url"].as_str().unwrap().starts_with("http://127.0.0.1:9");
            deliveries.iter().any(|delivery| nobodys(delivery) && delivery["attempts"] != 0).then_some(())
        });
        // Only the subscriber sees its own configuration again.
        let task = &told["task"]["id"];
        let shown = [&token, &credential];
        let mut other = config(&receiver.origin);
        (other["id"], other["taskId"]) = (json!("other"), task.clone());
        self.rpc("CreateTaskPushNotificationConfig", &other, &shown);
        self.rpc("GetTaskPushNotificationConfig", &json!({ "taskId": task, "id": "other" }), &shown);
        self.rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": task }), &shown);
        self.rpc("GetTask", &json!({ "id": task }), &[]);
        self.rpc("ListTasks", &json!({}), &[]);
    }

    /// Calls alpha over A2A with the owner's key, and keeps the answer as evidence.
    #[track_caller]
    pub(super) fn rpc(&mut self, method: &str, params: &Value, shows: &[&PlantedSecret]) -> Value {
        let key = format!("Bearer {}", self.hub.key);
        let headers = [("authorization", key.as_str()), ("a2a-version", "1.0")];
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let url = format!("{}/a2a/alpha", self.hub.url);
        let reply = http::json("POST", &url, &headers, Some(&body)).unwrap().expect(200);
        let answer = reply.json();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        self.evidence.answer(format!("answer A2A {method}"), &reply, shows);
        answer["result"].clone()
    }
}

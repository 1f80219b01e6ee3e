//! A world to search: a hub and two devices in typical use. Every secret is recorded when it is created.

mod delegating;
mod end;
mod outside;

use std::{fs, process::Command};

use serde_json::{Value, json};

use super::{
    browser::{ScriptlessBrowser, between},
    misuse,
    processes::ProcessListWatch,
    search::{LeakEvidence, PlantedSecret, SecretKind},
};
use crate::harness::{FinishedProcess, TestHome, TestHub, TestProcess, until};

pub struct LeakWorld {
    evidence: LeakEvidence,
    secrets: Vec<PlantedSecret>,
    /// A fake token that appears throughout tasks, agents and artifacts.
    canary: PlantedSecret,
    watch: ProcessListWatch,
    hub: TestHub,
    browser: Option<ScriptlessBrowser>,
    running: Vec<TestProcess>,
    adapter: String,
    runs: Vec<Value>,
    agents: Vec<String>,
    delegations: Vec<String>,
    hub_home: TestHome,
    alpha: TestHome,
    beta: TestHome,
    gamma: TestHome,
    /// Another hub, whose agent works for the first one.
    elsewhere: TestHome,
    /// A machine that delegates a folder.
    lender: TestHome,
    /// Output of commands that may print a secret; kept as separate evidence, not as a log.
    printed: TestHome,
}

// === impl LeakWorld ===

impl LeakWorld {
    #[track_caller]
    pub fn start() -> Self {
        let [hub_home, alpha, beta, gamma, elsewhere, lender, printed] = [(); 7].map(|()| TestHome::logging("trace"));
        let watch = ProcessListWatch::start();
        let hub = hub_home.hub(&["--egress-allow", "127.0.0.1"]);
        let canary = PlantedSecret::new(SecretKind::RuntimeToken, &format!("rt_{}", "0ca9a21e5eed5a17".repeat(4)));
        let secrets = vec![PlantedSecret::new(SecretKind::ApiKey, &hub.key)];
        let running = vec![TestProcess::spawn(
            "canary",
            Command::new("sh").args(["-c", "sleep 1000", &canary.text]),
            &printed.logs(),
        )];
        let (evidence, agents, runs, delegations) = Default::default();
        let (browser, adapter) = Default::default();
        Self {
            evidence,
            secrets,
            canary,
            watch,
            hub,
            browser,
            running,
            adapter,
            runs,
            agents,
            delegations,
            hub_home,
            alpha,
            beta,
            gamma,
            elsewhere,
            lender,
            printed,
        }
    }

    fn know(&mut self, kind: SecretKind, text: &str) -> PlantedSecret {
        let secret = PlantedSecret::new(kind, text);
        if !self.secrets.contains(&secret) {
            self.secrets.push(secret.clone());
        }
        secret
    }

    /// Calls with the owner's key and keeps the answer as evidence.
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let reply = self.hub.call(method, path, body);
        assert!(reply.status < 300, "{method} {path}: {}", reply.text());
        self.evidence.answer(format!("answer {method} {path}"), &reply, &[]);
        serde_json::from_slice(&reply.body).unwrap_or_default()
    }

    /// The one response that shows a secret, in its member `name`.
    #[track_caller]
    fn call_for(&mut self, kind: SecretKind, name: &str, path: &str, body: Option<&Value>) -> PlantedSecret {
        let reply = self.hub.call("POST", path, body);
        assert!(reply.status < 300, "{path}: {}", reply.text());
        let secret = self.know(kind, reply.json()[name].as_str().unwrap());
        self.evidence.answer(format!("answer POST {path}"), &reply, &[&secret]);
        secret
    }

    /// Runs a command whose output may show `secrets`, created by it or earlier.
    #[track_caller]
    fn command(
        &mut self,
        home: fn(&Self) -> &TestHome,
        args: &[&str],
        shows: impl Fn(&FinishedProcess) -> Option<(SecretKind, String)>,
    ) -> FinishedProcess {
        let ran = FinishedProcess::of(&mut home(self).command(args), &self.printed.path().join("shown"));
        let shown = shows(&ran).map(|(kind, text)| self.know(kind, &text));
        let shown: Vec<_> = shown.iter().collect();
        let output = format!("{}\n{}", ran.stdout, ran.stderr);
        self.evidence.add_showing(format!("command {}", args.join(" ")), output, &shown);
        ran
    }

    /// The tokens and adapter secrets of a device, read from where they belong.
    fn know_device(&mut self, home: fn(&Self) -> &TestHome) {
        let profiles = home(self).profiles();
        for profile in profiles["profiles"].as_object().unwrap().values() {
            self.know(SecretKind::RuntimeToken, profile["runtime_token"].as_str().unwrap());
            if let Some(secret) = profile["adapter_secret"].as_str() {
                self.know(SecretKind::AdapterSecret, secret);
            }
        }
        self.know_adapters(home);
    }

    fn know_adapters(&mut self, home: fn(&Self) -> &TestHome) {
        for entry in fs::read_dir(home(self).a2a().join("adapters")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if text.starts_with("as_") {
                self.know(SecretKind::AdapterSecret, text.trim());
            }
        }
    }

    /// A person creates a code; a device with its own adapter redeems it.
    pub fn pair_with_a_code(&mut self) {
        let canary = self.canary.text.clone();
        for name in ["alpha", "beta", "gamma"] {
            let made = self.call(
                "POST",
                "/api/v1/agent-accounts",
                Some(&json!({ "name": name, "description": format!("knows {canary}") })),
            );
            self.agents.push(made["agent_id"].as_str().unwrap().to_owned());
        }
        // One code that is never redeemed, and one that is.
        self.call_for(SecretKind::PairingCode, "pairing_code", "/api/v1/agent-accounts/alpha/pairing-codes", None);
        let code =
            self.call_for(SecretKind::PairingCode, "pairing_code", "/api/v1/agent-accounts/alpha/pairing-codes", None);
        let (adapter, endpoint) = self.alpha.adapter(&["shell"]);
        self.running.push(adapter);
        let url = self.hub.url.clone();
        let pair = ["runtime", "pair", &code.text, "--api-base", &url, "--local-agent-endpoint", &endpoint];
        let work = self.alpha.path().join("work");
        fs::create_dir(&work).unwrap();
        let mut all = pair.to_vec();
        all.extend(["--cwd", "work", "--json"]);
        FinishedProcess::of(&mut self.alpha.command(&all), &self.alpha.logs()).succeeds();
        self.adapter = endpoint.clone();
        self.know_device(|world| &world.alpha);
        self.take_folders();
        let runtime = self.alpha.runtime(&[]);
        self.running.push(runtime);
        // A used code, and a code that never existed.
        for code in [code.text.to_lowercase().as_str(), "0000-0000"] {
            FinishedProcess::of(
                &mut self.gamma.command(&["runtime", "pair", code, "--api-base", &url]),
                &self.gamma.logs(),
            )
            .exits(3);
        }
    }

    /// A device shows a code; a person confirms it in the console. The runtime supervises its adapter.
    pub fn pair_from_the_device(&mut self) {
        let link = self.hub.post("/api/v1/login-links", &json!({})).expect(201);
        let url = link.json()["url"].as_str().unwrap().to_owned();
        let token = self.know(SecretKind::LoginLink, url.split_once("token=").unwrap().1);
        self.evidence.answer("answer POST /api/v1/login-links", &link, &[&token]);
        let page = crate::harness::http::send("GET", &url, &[], b"").unwrap().expect(200);
        self.evidence.answer("page that the login link leads to", &page, &[&token]);
        let (browser, opened) = ScriptlessBrowser::sign_in(&self.hub, &url);
        let session = self.know(SecretKind::Session, &browser.session);
        self.evidence.answer("answer POST /login", &opened, &[&session]);

        let args = ["runtime", "pair", "--api-base", &self.hub.url, "--device-name", "tablet"];
        let pairing = TestProcess::spawn("pair", &mut self.beta.command(&args), &self.printed.path().join("shown"));
        let messages = pairing.tells("Confirm: ");
        let code = self.know(SecretKind::PairingCode, between(&messages, "Code:", "\n").trim());
        let page = browser.get(&format!("/pair?code={}", code.text)).expect(200);
        self.evidence.answer("page that confirms a device", &page, &[&code]);
        let fields =
            [("code", code.text.as_str()), ("decision", "confirm"), ("agent", &self.agents[1]), ("new_name", "")];
        let decided = browser.post("/pair/decision", &fields).expect(303);
        self.evidence.answer("page /pair/decision", &decided, &[]);
        assert!(pairing.wait().success(), "{}", pairing.stderr());
        self.evidence.add_showing("command runtime pair", pairing.stdout() + &pairing.stderr(), &[&code]);
        self.know_device(|world| &world.beta);
        let runtime = self.beta.runtime(&[]);
        self.running.push(runtime);
        self.know_adapters(|world| &world.beta);

        // A device never prints its polling secret, so one is requested directly.
        let path = "/api/v1/agent-runtimes/runtime/pairing-requests";
        let asked = self.hub.post(path, &json!({ "device_name": "by hand" })).expect(201);
        let poll = self.know(SecretKind::PollToken, asked.json()["poll_token"].as_str().unwrap());
        let code = self.know(SecretKind::PairingCode, asked.json()["pairing_code"].as_str().unwrap());
        self.evidence.answer(format!("answer POST {path}"), &asked, &[&poll, &code]);
        let pending = self.hub.post(&format!("{path}/poll"), &json!({ "poll_token": poll.text })).expect(202);
        self.evidence.answer(format!("answer POST {path}/poll"), &pending, &[]);
        self.browser = Some(browser);
    }

    /// Runs that succeed, fail, are cancelled, print their environment and produce artifacts.
    pub fn work(&mut self) {
        let canary = self.canary.text.clone();
        let look = "env; ps -ef ww 2>/dev/null; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; \
                    tr '\\0' '\\n' < /proc/$PPID/environ";
        let file = format!("printf '%s' '{canary}' > report.txt && echo report.txt >> \"$ATTACHE_ARTIFACTS\"");
        let scripts = [
            format!("echo fine {canary}; echo quietly {canary} >&2"),
            look.to_owned(),
            format!("echo half; echo broken {canary} >&2; exit 3"),
            "kill -9 $$".to_owned(),
        ];
        for agent in ["alpha", "beta"] {
            for script in &scripts {
                let run = self.hub.ask(agent, script);
                self.runs.push(run);
            }
        }
        self.runs.push(self.hub.ask("alpha", &file));
        let delivered = &self.runs.last().unwrap()["task_result"]["artifact_refs"][0];
        assert!(delivered.is_string(), "{:#}", self.runs.last().unwrap());
        let run = self.hub.create_run("beta", "touch started; exec sleep 1000");
        until("the task to start", || self.beta.path().join("started").exists().then_some(()));
        self.call("POST", &format!("/api/v1/task-runs/{run}/cancel"), Some(&json!({ "reason": "enough" })));
        self.runs.push(self.hub.ended(&run));
        assert!(self.watch.saw(&["hub", "--listen"]) && self.watch.saw(&["runtime", "start"]));
        assert!(self.watch.saw(&["adapter", "shell", "--listen", "127.0.0.1:0", "--exit-with-parent"]));
    }

    /// API keys from the API, the command line and the console; codes and links from the command line and the console.
    pub fn make_keys(&mut self) {
        let body = json!({ "name": "ci", "role": "operator" });
        let key = self.call_for(SecretKind::ApiKey, "api_key", "/api/v1/api-keys", Some(&body));
        let list = self.call("GET", "/api/v1/api-keys", None);
        let id = list["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "ci").unwrap()["key_id"].clone();
        self.call("DELETE", &format!("/api/v1/api-keys/{}", id.as_str().unwrap()), None);
        let mut denied = self.hub_home.command(&["agents"]);
        let denied = FinishedProcess::of(denied.env("ATTACHE_KEY", &key.text), &self.hub_home.logs());
        assert_eq!(denied.status, Some(4), "{}", denied.stderr);

        let first_line = |ran: &FinishedProcess| ran.stdout.lines().next().unwrap_or_default().to_owned();
        self.command(
            |world| &world.hub_home,
            &["keys", "add", "cli"],
            |ran| Some((SecretKind::ApiKey, first_line(ran))),
        )
        .succeeds();
        let member = |ran: &FinishedProcess, name: &str| ran.json()[name].as_str().unwrap().to_owned();
        self.command(
            |world| &world.hub_home,
            &["keys", "add", "script", "--json"],
            |ran| Some((SecretKind::ApiKey, member(ran, "api_key"))),
        )
        .succeeds();
        self.command(|world| &world.hub_home, &["keys", "add", "file", "--to-file", "new.key"], |_| None).succeeds();
        let written = fs::read_to_string(self.hub_home.path().join("new.key")).unwrap();
        self.know(SecretKind::ApiKey, written.trim());
        let token = |text: &str| text.split_once("token=").unwrap().1.trim().to_owned();
        self.command(|world| &world.hub_home, &["login"], |ran| Some((SecretKind::LoginLink, token(&first_line(ran)))))
            .succeeds();
        self.command(
            |world| &world.hub_home,
            &["agents", "code", "beta", "--json"],
            |ran| Some((SecretKind::PairingCode, member(ran, "pairing_code"))),
        )
        .succeeds();

        let browser = self.browser.take().unwrap();
        let page = browser.post("/settings/keys", &[("name", "console"), ("role", "viewer")]).expect(200);
        let key = self.know(SecretKind::ApiKey, between(&page.text(), "id=\"secret\">", "<"));
        self.evidence.answer("page that shows a new key", &page, &[&key]);
        let page = browser.post(&format!("/agents/{}/pairing-codes", self.agents[0]), &[]).expect(200);
        let text = page.text();
        let code = self.know(SecretKind::PairingCode, between(&text, "attache runtime pair ", " "));
        self.evidence.answer("page that shows a new code", &page, &[&code]);
        self.browser = Some(browser);
    }

    /// A third device takes over; the previous one receives a message and stops.
    pub fn replace_a_device(&mut self) {
        let code =
            self.call_for(SecretKind::PairingCode, "pairing_code", "/api/v1/agent-accounts/beta/pairing-codes", None);
        let args = ["runtime", "pair", &code.text, "--api-base", &self.hub.url];
        FinishedProcess::of(&mut self.gamma.command(&args), &self.gamma.logs()).succeeds();
        self.know_device(|world| &world.gamma);
        let old = self.running.pop().unwrap();
        assert_eq!(old.wait().code(), Some(4), "{}", old.stderr());
        let runtime = self.gamma.runtime(&[]);
        self.running.push(runtime);
        self.know_adapters(|world| &world.gamma);
        let run = self.hub.ask("beta", "echo taken over");
        self.runs.push(run);
        self.call("DELETE", &format!("/api/v1/agent-runtimes/{}", self.gamma_runtime()), None);
        let revoked = self.running.pop().unwrap();
        assert_eq!(revoked.wait().code(), Some(4), "{}", revoked.stderr());
    }

    fn gamma_runtime(&self) -> String {
        let profiles = self.gamma.profiles();
        profiles["active_profile"].as_str().unwrap().split_once('/').unwrap().1.to_owned()
    }

    /// Every page of the console, and its streams.
    pub fn visit_the_console(&mut self) {
        let browser = self.browser.take().unwrap();
        let mut paths: Vec<String> = [
            "/",
            "/runs",
            "/runs/new",
            "/runs/rows",
            "/agents",
            "/pair",
            "/audit",
            "/deliveries",
            "/delegations",
            "/settings",
            "/login",
            "/nowhere",
        ]
        .map(str::to_owned)
        .into();
        for agent in &self.agents {
            paths.extend([
                format!("/agents/{agent}"),
                format!("/agents/{agent}/paired?since=0"),
                format!("/runs?agent={agent}"),
            ]);
        }
        for run in &self.runs {
            let id = run["task_run_id"].as_str().unwrap();
            paths.extend(["", "/part", "/log.jsonl"].map(|part| format!("/runs/{id}{part}")));
            for artifact in run["task_result"]["artifact_refs"].as_array().into_iter().flatten() {
                paths.push(format!("/artifacts/{}", artifact.as_str().unwrap()));
            }
        }
        for delegation in &self.delegations {
            paths.push(format!("/delegations/{delegation}"));
        }
        for path in paths {
            let page = browser.get(&path);
            assert!(page.status < 500, "{path}: {}", page.text());
            self.evidence.answer(format!("page {path}"), &page, &[]);
        }
        self.evidence.add("page /live", self.stream("/live", Some(&browser)));
        self.browser = Some(browser);
    }

    /// The first part of a stream.
    fn stream(&self, path: &str, browser: Option<&ScriptlessBrowser>) -> Vec<u8> {
        use std::io::Read as _;
        let cookie = browser.map(|browser| format!("attache_session={}", browser.session)).unwrap_or_default();
        let key = format!("Bearer {}", self.hub.key);
        let credential = if cookie.is_empty() { ("authorization", &key) } else { ("cookie", &cookie) };
        let headers = [("accept", "text/event-stream"), (credential.0, credential.1)];
        let mut stream = crate::harness::http::open("GET", &format!("{}{path}", self.hub.url), &headers).unwrap();
        stream.get_ref().set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut bytes = Vec::new();
        // The stream stays open; it is complete when it is quiet after its head.
        until("the stream to begin", || {
            let _ = stream.read_to_end(&mut bytes);
            bytes.windows(4).any(|end| end == b"\r\n\r\n").then_some(())
        });
        assert!(bytes.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&bytes));
        bytes
    }

    /// `kill -9` leaves the write-ahead log behind, which is searched as it is.
    pub fn crash_the_hub(&mut self) {
        self.hub.process.kill();
        let mut crashed = LeakEvidence::default();
        crashed.home("hub", &self.hub_home, |file| self.belongs(file));
        self.evidence.take("crashed ", crashed);
        let address = self.hub.address().to_owned();
        self.hub = self.hub_home.hub(&["--egress-allow", "127.0.0.1", "--listen", &address]);
    }

    /// Real secrets in the wrong places; every refusal is evidence.
    pub fn make_mistakes(&mut self) {
        let token =
            self.alpha.profiles()["profiles"].as_object().unwrap().values().next().unwrap()["runtime_token"].clone();
        let run = self.runs[0]["task_run_id"].as_str().unwrap().to_owned();
        let scene = misuse::MisuseContext { hub: &self.hub, runtime_token: token.as_str().unwrap(), run: &run };
        let secret = self.secrets.iter().find(|secret| secret.kind == SecretKind::AdapterSecret).unwrap().text.clone();
        // Third-party secrets have any form, so the hub can't recognise them.
        let foreign =
            [SecretKind::PushToken, SecretKind::PushCredential, SecretKind::TunnelToken, SecretKind::LeaseKey];
        let known = |secret: &&PlantedSecret| !foreign.contains(&secret.kind);
        for kept in self.secrets.iter().filter(known) {
            for (place, reply) in scene.at_the_hub(kept) {
                self.evidence.answer(format!("mistake {place} with a {:?}", kept.kind), &reply, &[]);
            }
            for (place, reply) in misuse::at_the_adapter(&self.adapter, &secret, kept) {
                self.evidence.answer(format!("adapter mistake {place} with a {:?}", kept.kind), &reply, &[]);
            }
        }
    }

    /// All output of the API and the command line.
    pub fn ask_for_everything(&mut self) {
        let mut paths: Vec<String> = [
            "/healthz",
            "/readyz",
            "/metrics",
            "/api/v1/openapi.json",
            "/api/v1/audit",
            "/api/v1/agent-accounts",
            "/api/v1/agent-runtimes",
            "/api/v1/task-runs",
            "/api/v1/conversations",
            "/api/v1/api-keys",
            "/api/v1/deliveries",
            "/api/v1/delegations",
            "/api/v1/agent-accounts/elsewhere",
            "/a2a/alpha/.well-known/agent-card.json",
            "/a2a/elsewhere/.well-known/agent-card.json",
            "/.well-known/ai-catalog.json",
        ]
        .map(str::to_owned)
        .into();
        for run in &self.runs {
            let text = |name: &str| run[name].as_str().unwrap().to_owned();
            let (id, conversation, workspace) = (text("task_run_id"), text("conversation_id"), text("workspace_id"));
            paths.extend([
                format!("/api/v1/task-runs/{id}"),
                format!("/api/v1/task-runs/{id}/events"),
                format!("/api/v1/conversations/{conversation}"),
                format!("/api/v1/conversations/{conversation}/messages"),
                format!("/api/v1/workspaces/{workspace}/artifacts"),
            ]);
        }
        for path in paths {
            self.call("GET", &path, None);
        }
        let run = self.runs[0]["task_run_id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/task-runs/{run}/events");
        self.evidence.add(format!("answer GET {path} as a stream"), self.stream(&path, None));

        for args in [&["runtime", "status", "--json"][..], &["runtime", "status"], &["runtime", "profiles", "--json"]] {
            self.command(|world| &world.alpha, args, |_| None).succeeds();
            self.command(|world| &world.gamma, args, |_| None);
        }
        let show = ["runs", "show", &run, "--json"];
        for args in [
            &["doctor", "--json"][..],
            &["doctor"],
            &["agents", "--json"],
            &["agents", "show", "alpha", "--json"],
            &["agents", "show", "elsewhere", "--json"],
            &["agents", "show", "elsewhere"],
            &["deliveries", "--json"],
            &["runtimes", "--json"],
            &["runs", "--json"],
            &show,
            &["keys", "--json"],
            &["keys"],
            &["audit", "list", "--json"],
            &["audit", "verify", "--json"],
        ] {
            let ran = self.command(|world| &world.hub_home, args, |_| None);
            assert!(!args.contains(&"--json") || ran.json().is_object(), "{ran:?}");
        }
        self.command(|world| &world.alpha, &["doctor", "--json"], |_| None).json();
        let left = self.browser.take().unwrap().post("/logout", &[]).expect(303);
        self.evidence.answer("page /logout", &left, &[]);
    }
}

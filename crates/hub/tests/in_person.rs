//! Who speaks to a run that may work outside the walls of its owner's device: a table of credentials and of everything that
//! says something to one.

use attache_hub::{
    Handle, Principal, Result,
    control::{CallHeaders, CreatedRun, DecisionOrigin},
};
use attache_protocol::{
    Code, Json, RunId, Secret,
    rules::permission::DecisionScope,
    wire::{
        account::AccountRequest,
        conversation::{Conversation, CreateConversationRequest},
        input_request::GiveInputRequest,
        permission::DecisionRequest,
        run::CreateRunRequest,
    },
};
use serde_json::{Value, json};

use crate::{
    escalation::{RUNS, person},
    world::{Engine, TestCaller, TestDevice, World, on_all},
};

on_all! {
    only_a_credential_with_all_rights_of_its_person_speaks_to_unwalled_runs
    a_limited_key_gets_its_own_runs_inside_walls
}

const FOR_A_WHILE: &str = "a key with all her rights for a while";
const PASSWORD: &str = "correct horse battery";
const KEYS: &str = "/api/v1/api-keys";
const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";

/// One of Ada's credentials, and whether it acts in person.
struct Credential {
    name: &'static str,
    by: Principal,
    in_person: bool,
}

/// Ada, an admin, with an agent of her own on her own device.
struct Owner {
    world: World,
    ada: TestCaller,
    device: TestDevice,
}

// === impl Owner ===

impl Owner {
    async fn start(engine: Engine) -> Self {
        let world = World::timed(engine, |_| {}).await;
        let ada = person(&world, "ada", "admin").await;
        ada.post("/api/v1/agent-accounts", json!({"name": "adas"})).await.expect(201);
        let device = world.device_of(&ada, "adas").await;
        Self { world, ada, device }
    }

    async fn principal(&self, caller: &TestCaller) -> Principal {
        let secret = caller.header("authorization").trim_start_matches("Bearer ").to_owned();
        self.world.hub.authenticate_key(&secret).await.unwrap()
    }

    async fn key(&self, maker: &TestCaller, body: Value) -> TestCaller {
        let made = maker.post(KEYS, body).await.expect(201);
        self.world.anonymous().key(made["api_key"].as_str().unwrap())
    }

    /// Who opens the link that this caller makes for Ada.
    async fn session(&self, maker: &TestCaller) -> Principal {
        let link = maker.post("/api/v1/login-links", json!({"user": "ada"})).await.expect(201);
        let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
        self.world.hub.redeem_login(&token, [192, 0, 2, 7].into()).await.unwrap().principal
    }

    async fn credentials(&self) -> Vec<Credential> {
        let (world, ada) = (&self.world, &self.ada);
        world.owner.patch("/api/v1/users/ada", json!({"password": PASSWORD})).await.expect(200);
        let password: Secret<String> = serde_json::from_value(json!(PASSWORD)).unwrap();
        let signed_in = world.hub.sign_in("ada", &password, [192, 0, 2, 7].into()).await.unwrap().principal;
        let short =
            self.key(ada, json!({"name": "short", "role": "admin", "expires_at": "2099-01-01T00:00:00Z"})).await;
        let usual = self.key(ada, json!({"name": "usual"})).await;
        let below = self.key(&usual, json!({"name": "made with the usual one"})).await;
        let every =
            json!({"name": "every scope", "role": "admin", "scopes": ["read", "call", "decide", "manage", "admin"]});
        let every = self.key(ada, every).await;
        let token = ada.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
        let token = world.anonymous().key(token["token"].as_str().unwrap());
        let issued = self.key(&world.owner, json!({"name": "issued", "user": "ada", "role": "admin"})).await;
        let of = async |caller: &TestCaller| self.principal(caller).await;
        [
            ("her key", of(ada).await, true),
            ("her password", signed_in, true),
            ("a session from her key", self.session(ada).await, true),
            (FOR_A_WHILE, of(&short).await, true),
            ("a key with a lower role", of(&usual).await, false),
            ("a key made with that", of(&below).await, false),
            ("a session from that", self.session(&usual).await, false),
            ("a key with scopes", of(&every).await, false),
            ("a token", of(&token).await, false),
            ("a key that somebody else issued", of(&issued).await, false),
            ("a session that somebody else opened", self.session(&world.owner).await, false),
        ]
        .map(|(name, by, in_person)| Credential { name, by, in_person })
        .into()
    }

    /// A run that Ada started in person, at work.
    async fn at_work(&self) -> RunId {
        let run = self.ada.post(RUNS, json!({"agent_id": "adas", "input": {"text": "go"}})).await.expect(201);
        assert_eq!(self.device.claim().await["for_owner"], true);
        run["task_run_id"].as_str().unwrap().parse().unwrap()
    }

    async fn done(&self, run: RunId) {
        let path = format!("{RUNS}/{run}/complete");
        self.device.client.post(&path, json!({"output": {"text": "done"}})).await.expect(200);
    }

    /// A step of the run that waits for a decision.
    async fn step(&self, run: RunId, tool: &str) -> attache_protocol::PermissionId {
        let body = json!({"tool": tool, "input": {}, "request_id": tool});
        let asked = self.device.client.post(&format!("{RUNS}/{run}/permission-requests"), body).await.expect(201);
        asked["permission_request_id"].as_str().unwrap().parse().unwrap()
    }

    /// Whether the device does what this creates outside its walls.
    async fn outside(&self, by: &Principal, request: CreateRunRequest, headers: CallHeaders) -> Result<bool> {
        let (CreatedRun::New(run) | CreatedRun::Existing(run)) =
            self.world.hub.create_run(by, request, headers).await?;
        let claim = self.device.claim().await;
        self.done(run.task_run_id).await;
        Ok(claim["for_owner"] == true)
    }
}

fn task() -> CreateRunRequest {
    CreateRunRequest { agent_id: "adas".to_owned(), ..CreateRunRequest::default() }
}

fn told(text: &str) -> GiveInputRequest {
    GiveInputRequest { text: Some(text.to_owned()), ..GiveInputRequest::default() }
}

fn denial(scope: DecisionScope) -> DecisionRequest {
    serde_json::from_value(json!({"approved": false, "scope": scope, "comment": "Do this instead"})).unwrap()
}

async fn conversation(hub: &Handle, by: &Principal, body: Value) -> Result<Conversation> {
    let request: CreateConversationRequest = serde_json::from_value(body).unwrap();
    hub.create_conversation(by, request).await
}

fn is_refused<T: std::fmt::Debug>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.code, Code::Forbidden, "{error:?}");
            true
        }
    }
}

async fn only_a_credential_with_all_rights_of_its_person_speaks_to_unwalled_runs(engine: Engine) {
    let owner = Owner::start(engine).await;
    let (hub, ada) = (owner.world.hub.clone(), owner.principal(&owner.ada).await);
    let session = json!({"session_id": "s-1", "title": "fix the tests", "updated_at": "2026-11-18T22:53:16.330Z",
        "folder": "/home/ada/site", "command": "cd /home/ada/site && claude --resume s-1"});
    let beat = json!({"agent_id": owner.device.agent, "running": [], "host_sessions": [session]});
    owner.device.client.post(BEAT, beat).await.expect(200);
    let continued = json!({"agent_type": "adas", "host_session": "s-1"});
    let continuing = conversation(&hub, &ada, continued.clone()).await.unwrap().conversation_id;
    let place = || DecisionOrigin { via: "rest", from: None };
    let old = owner.at_work().await;
    owner.done(old).await;

    for (number, Credential { name, by, in_person }) in owner.credentials().await.into_iter().enumerate() {
        // What it starts is outside the walls.
        let made = owner.outside(&by, task(), CallHeaders::default()).await.unwrap();
        assert_eq!(made, in_person, "{name}: a run");
        let headers = CallHeaders { repeats: Some(old), ..CallHeaders::default() };
        assert_eq!(owner.outside(&by, task(), headers).await.unwrap(), in_person, "{name}: a run again");
        let space = json!({"metadata": {"instructions": "Be careful."}});
        let space = conversation(&hub, &by, space).await.unwrap().conversation_id;
        let request = CreateRunRequest { conversation_id: Some(space), ..task() };
        let follows = owner.outside(&ada, request, CallHeaders::default()).await.unwrap();
        assert_eq!(follows, in_person, "{name}: instructions of a conversation in which she goes on");

        // What it says to a run of hers.
        let run = owner.at_work().await;
        let said = hub.give_input(&by, run, told("Do that instead")).await;
        assert_eq!(is_refused(said), !in_person, "{name}: input");
        let ask = json!({"epoch": 1, "prompt": "Which?"});
        owner.device.client.post(&format!("{RUNS}/{run}/input-requests"), ask).await.expect(201);
        assert_eq!(is_refused(hub.give_input(&by, run, told("That")).await), !in_person, "{name}: an answer");
        hub.give_input(&ada, run, told("This")).await.unwrap();
        for scope in [DecisionScope::Once, DecisionScope::Run, DecisionScope::Conversation] {
            let step = owner.step(run, &format!("{scope:?}")).await;
            let decided = hub.decide(&by, step, denial(scope), place()).await;
            assert_eq!(is_refused(decided), !in_person, "{name}: a comment, {scope:?}");
            // Without words, everybody who may decides.
            if !in_person {
                let silent = DecisionRequest { comment: None, ..denial(DecisionScope::Once) };
                hub.decide(&by, step, silent, place()).await.unwrap();
            }
        }
        owner.done(run).await;

        // What it says to later ones.
        let walled = owner.world.owner.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
        let walled: RunId = walled["task_run_id"].as_str().unwrap().parse().unwrap();
        assert_eq!(owner.device.claim().await["for_owner"], false);
        let step = owner.step(walled, &format!("standing-{number}")).await;
        let decided = hub.decide(&by, step, denial(DecisionScope::Agent), place()).await;
        assert_eq!(is_refused(decided), !in_person, "{name}: a standing comment");
        if !in_person {
            hub.decide(&by, step, DecisionRequest { comment: None, ..denial(DecisionScope::Once) }, place())
                .await
                .unwrap();
        }
        owner.done(walled).await;
        let grants = owner.ada.get("/api/v1/permission-grants").await.expect(200);
        for grant in grants["permission_grants"].as_array().unwrap() {
            let path = format!("/api/v1/permission-grants/{}", grant["grant_id"].as_str().unwrap());
            owner.ada.delete(&path).await.expect(200);
        }
        let instructed = AccountRequest { instructions: Some(format!("Obey {name}.")), ..AccountRequest::default() };
        // What a key that expires says would outlast it.
        let lasts = in_person && name != FOR_A_WHILE;
        let result = hub.update_account(&by, "adas", instructed.clone()).await;
        assert_eq!(is_refused(result), !lasts, "{name}: instructions of the agent");
        let new = AccountRequest { name: Some("new".to_owned()), ..instructed };
        match hub.create_account(&by, new).await {
            Ok(made) => {
                // People who sign in only by others' links have agents, too. This one has no device of hers, on which anything
                // would be outside the sandbox.
                assert!(lasts || name.contains("somebody else"), "{name}: an agent with instructions");
                hub.archive_account(&ada, &made.agent_id.to_string()).await.unwrap();
            }
            Err(error) => assert_eq!((lasts, error.code), (false, Code::Forbidden), "{name}"),
        }

        // What a terminal of hers holds.
        assert_eq!(is_refused(hub.host_sessions(&by, "adas").await), !in_person, "{name}: sessions");
        let result = conversation(&hub, &by, continued.clone()).await;
        assert_eq!(is_refused(result), !in_person, "{name}: a session that goes on");
        let request = CreateRunRequest { conversation_id: Some(continuing), ..task() };
        match owner.outside(&by, request, CallHeaders::default()).await {
            Ok(outside) => assert!(outside && in_person, "{name}: a run in a session"),
            Err(error) => assert_eq!((in_person, error.code), (false, Code::Forbidden), "{name}"),
        }
    }
}

async fn a_limited_key_gets_its_own_runs_inside_walls(engine: Engine) {
    let owner = Owner::start(engine).await;
    let hub = &owner.world.hub;
    let usual = owner.key(&owner.ada, json!({"name": "usual"})).await;
    let by = owner.principal(&usual).await;
    let run = usual.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
    assert_eq!(owner.device.claim().await["for_owner"], false);
    let id: RunId = run["task_run_id"].as_str().unwrap().parse().unwrap();
    // It speaks to that, and so does everybody who may.
    hub.give_input(&by, id, told("one")).await.unwrap();
    hub.give_input(&owner.principal(&owner.ada).await, id, told("two")).await.unwrap();
    owner.done(id).await;
    // She goes on in its conversation, which her agent may remember: inside walls, too.
    let reply = json!({"agent_id": "adas", "conversation_id": run["conversation_id"]});
    owner.ada.post(RUNS, reply).await.expect(201);
    assert_eq!(owner.device.claim().await["for_owner"], false);
    // Nobody says that they wrote in person what they didn't.
    for said in [true, false] {
        let forged = json!({"metadata": {"instructions": "x", "instructions_in_person": said}});
        assert_eq!(conversation(hub, &by, forged).await.unwrap_err().code, Code::InvalidRequest);
    }
    let plain = conversation(hub, &by, json!({"metadata": {"a": 1.0}})).await.unwrap();
    assert_eq!(plain.metadata, Some(Json::from_text(r#"{"a":1.0}"#).unwrap()));
}

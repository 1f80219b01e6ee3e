//! Artifacts: stored once under their hash, read completely or in ranges, and never run by a browser.

use hyper::Method;
use serde_json::{Value, json};

use crate::world::{Engine, World, on_all};

async fn workspace(world: &World) -> String {
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    conversation["workspace_id"].as_str().unwrap().to_owned()
}

async fn upload(world: &World, workspace: &str, name: &str, bytes: impl Into<bytes::Bytes>) -> Value {
    let path = format!("/api/v1/workspaces/{workspace}/artifacts/{name}");
    world.owner.with("content-type", "text/html").call(Method::PUT, &path, bytes).await.expect(201)
}

#[tokio::test]
async fn an_artifact_is_read_completely_and_in_ranges() {
    let world = World::start().await;
    let workspace = workspace(&world).await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let artifact = upload(&world, &workspace, "r%C3%A9sum%C3%A9%20%22x%22.bin", bytes.clone()).await;
    assert_eq!((&artifact["size"], &artifact["name"]), (&json!(1_000_000), &json!("résumé \"x\".bin")));
    let hash = artifact["blake3"].as_str().unwrap();
    assert_eq!(hash, blake3::hash(&bytes).to_hex().as_str());
    let path = format!("/api/v1/artifacts/{}", artifact["artifact_id"].as_str().unwrap());

    let whole = world.owner.get(&path).await;
    assert_eq!((whole.status, whole.body.as_ref()), (200, bytes.as_slice()));
    assert_eq!(whole.header("content-type"), "text/html");
    assert_eq!(whole.header("content-length"), "1000000");
    assert_eq!(whole.header("x-content-type-options"), "nosniff");
    assert_eq!(whole.header("content-security-policy"), "sandbox; default-src 'none'");
    let disposition = "attachment; filename*=UTF-8''r%C3%A9sum%C3%A9%20%22x%22.bin";
    assert_eq!(whole.header("content-disposition"), disposition);

    let part = world.owner.with("range", "bytes=10-19").get(&path).await;
    assert_eq!((part.status, part.body.as_ref()), (206, &bytes[10..20]));
    assert_eq!(part.header("content-range"), "bytes 10-19/1000000");
    let tail = world.owner.with("range", "bytes=-5").get(&path).await;
    assert_eq!((tail.status, tail.body.as_ref()), (206, &bytes[999_995..]));
    let beyond = world.owner.with("range", "bytes=1000000-").get(&path).await;
    assert_eq!(beyond.refusal(), (416, "range_not_satisfiable".to_owned()));
    assert_eq!(beyond.header("content-range"), "bytes */1000000");
    let etag = whole.header("etag").to_owned();
    assert_eq!(world.owner.with("if-none-match", &etag).get(&path).await.status, 304);
    let changed = world.owner.with("range", "bytes=0-1").with("if-range", "\"other\"").get(&path).await;
    assert_eq!((changed.status, changed.body.len()), (200, 1_000_000));
    let head = world.owner.call(Method::HEAD, &path, "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "1000000", 0));

    assert_eq!(world.owner.get(&format!("{path}?meta=1")).await.expect(200), artifact);
    assert_eq!(world.owner.with("accept", "application/json").get(&path).await.expect(200), artifact);
    let listed = world.owner.get(&format!("/api/v1/workspaces/{workspace}/artifacts")).await.expect(200);
    assert_eq!(listed, json!({"artifacts": [artifact], "next_cursor": null}));
}

#[tokio::test]
async fn the_same_content_is_one_file_and_nothing_unfinished_stays() {
    let world = World::tuned(|options| options.max_artifact = 1000).await;
    let workspace = workspace(&world).await;
    let one = upload(&world, &workspace, "a", "same").await;
    let two = upload(&world, &workspace, "b", "same").await;
    assert_ne!(one["artifact_id"], two["artifact_id"]);
    let empty = upload(&world, &workspace, "empty", "").await;
    assert_eq!(empty["size"], 0);
    let path = format!("/api/v1/artifacts/{}", empty["artifact_id"].as_str().unwrap());
    assert_eq!(world.owner.get(&path).await.body.len(), 0);
    let path = format!("/api/v1/workspaces/{workspace}/artifacts/big");
    let large = world.owner.call(Method::PUT, &path, vec![0; 1001]).await;
    assert_eq!(large.refusal(), (413, "too_large".to_owned()));
    let blobs = world.blobs();
    assert_eq!(std::fs::read_dir(blobs.join("incoming")).unwrap().count(), 0);
    let hash = one["blake3"].as_str().unwrap();
    assert_eq!(std::fs::read(blobs.join(&hash[..2]).join(&hash[2..])).unwrap(), b"same");
    for name in ["..", "%2e%2e%2fx", "a%2Fb", "a%5Cb", "%0a", "%00"] {
        let path = format!("/api/v1/workspaces/{workspace}/artifacts/{name}");
        let reply = world.owner.call(Method::PUT, &path, "x").await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_result_can_reference_only_artifacts_of_its_workspace() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let foreign = upload(&world, &workspace(&world).await, "a", "x").await;
    let created = world.run("builder").await;
    device.claim().await;
    let own = created["workspace_id"].as_str().unwrap();
    let path = format!("/api/v1/workspaces/{own}/artifacts/report.md");
    let uploaded = device.client.call(Method::PUT, &path, "# hi").await.expect(201);
    let run = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    let refs = |id: &Value| json!({"output": {"text": "done", "artifact_refs": [id]}});
    let refused = device.client.post(&format!("{run}/complete"), refs(&foreign["artifact_id"])).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    device.client.post(&format!("{run}/complete"), refs(&uploaded["artifact_id"])).await.expect(200);
    let path = format!("/api/v1/artifacts/{}?meta=1", uploaded["artifact_id"].as_str().unwrap());
    assert_eq!(world.owner.get(&path).await.expect(200)["produced_by"], created["task_run_id"]);
}

on_all! {
    a_worker_adds_so_much_to_a_run_and_no_more
    uploads_stop_before_the_disk_is_full
}

async fn a_worker_adds_so_much_to_a_run_and_no_more(engine: Engine) {
    let world = World::timed(engine, |options| options.max_run_artifacts = 1000).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let workspace = conversation["workspace_id"].as_str().unwrap();
    // What a person attached doesn't count.
    upload(&world, workspace, "attachment", vec![b'a'; 900]).await;
    for round in 0..2 {
        world.advance(std::time::Duration::from_secs(1));
        let body = json!({"agent_id": "builder", "input": {}, "conversation_id": conversation["conversation_id"]});
        let run = world.owner.post("/api/v1/task-runs", body).await.expect(201);
        device.claim().await;
        let add = async |name: &str, size: usize| {
            let path = format!("/api/v1/workspaces/{workspace}/artifacts/{round}-{name}");
            device.client.call(Method::PUT, &path, vec![b'x'; size]).await
        };
        add("one", 600).await.expect(201);
        assert_eq!(add("two", 401).await.refusal(), (413, "too_large".to_owned()));
        add("three", 400).await.expect(201);
        assert_eq!(add("four", 1).await.refusal(), (413, "too_large".to_owned()));
        let path = format!("/api/v1/task-runs/{}/complete", run["task_run_id"].as_str().unwrap());
        device.client.post(&path, json!({"output": {"text": "done"}})).await.expect(200);
    }
}

/// Everything that frees space, and everything that ends work, goes on.
async fn uploads_stop_before_the_disk_is_full(engine: Engine) {
    let disk = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    let free = disk.f_bavail * disk.f_frsize;
    let world = World::timed(engine, |options| options.disk_reserve = Some(2 * free)).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let run = world.run("builder").await;
    device.claim().await;
    let low = || (503, "disk_low".to_owned());
    let path = format!("/api/v1/workspaces/{}/artifacts/a", run["workspace_id"].as_str().unwrap());
    for caller in [&world.owner, &device.client] {
        assert_eq!(caller.call(Method::PUT, &path, "x").await.refusal(), low());
    }
    let large = json!({"agent_id": "builder", "input": {"text": "x".repeat(70_000)}});
    assert_eq!(world.owner.post("/api/v1/task-runs", large).await.refusal(), low());
    let ready = world.anonymous().get("/readyz").await.expect(200);
    assert_eq!((&ready["status"], &ready["storage"]), (&json!("degraded"), &json!("disk_low")));
    let run = format!("/api/v1/task-runs/{}", run["task_run_id"].as_str().unwrap());
    device.client.post(&format!("{run}/progress"), json!({"chunk": "x"})).await.expect(200);
    device.client.post(&format!("{run}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    assert_eq!(world.owner.delete(&run).await.status, 204);
}

/// One operation after the other, whichever it is: what adds something is refused, and everything that frees space, ends work or takes
/// rights away goes on.
#[tokio::test]
async fn nothing_new_is_stored_in_the_last_part_of_the_reserve() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    world.agent("builder").await;
    world.agent("spare").await;
    let device = world.device("builder").await;
    let (first, second) = (world.run("builder").await, world.run("builder").await);
    let run = format!("/api/v1/task-runs/{}", first["task_run_id"].as_str().unwrap());
    device.claim().await;
    let key = world.owner.post("/api/v1/api-keys", json!({"name": "k", "role": "operator"})).await.expect(201);
    let made = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let conversation = format!("/api/v1/conversations/{}", made["conversation_id"].as_str().unwrap());
    let ask = json!({"tool": "Bash", "input": {"command": "ls"}});
    let asked = device.client.post(&format!("{run}/permission-requests"), ask.clone()).await.expect(201);

    let disk = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    let reserve = 8 * disk.f_bavail * disk.f_frsize;
    let world = world.retuned(|options| options.disk_reserve = Some(reserve)).await;
    let owner = &world.owner;
    for (path, body) in [
        ("/api/v1/task-runs", json!({"agent_id": "builder", "input": {"text": "x"}})),
        ("/api/v1/conversations", json!({"metadata": {"x": "y".repeat(60_000)}})),
        (&format!("{conversation}/messages"), json!({"text": "x"})),
        ("/api/v1/agent-accounts", json!({"name": "another"})),
        ("/api/v1/agent-accounts/spare/pairing-codes", json!({})),
        ("/api/v1/api-keys", json!({"name": "another", "role": "operator"})),
        ("/api/v1/users", json!({"name": "ada", "role": "operator"})),
        (&format!("{run}/input"), json!({"text": "x".repeat(50_000), "unsolicited": true})),
    ] {
        assert_eq!(owner.post(path, body).await.refusal(), (503, "disk_low".to_owned()), "{path}");
    }
    let longer = json!({"instructions": "x".repeat(8_000)});
    let refused = owner.patch("/api/v1/agent-accounts/spare", longer).await.refusal();
    assert_eq!(refused, (503, "disk_low".to_owned()));
    let another = device.client.post(&format!("{run}/permission-requests"), ask).await.refusal();
    assert_eq!(another, (503, "disk_low".to_owned()));

    owner.post("/api/v1/login-links", json!({})).await.expect(201);
    owner.patch("/api/v1/agent-accounts/spare", json!({"name": "spared"})).await.expect(200);
    let asked = format!("/api/v1/permission-requests/{}", asked["permission_request_id"].as_str().unwrap());
    owner.post(&format!("{asked}/decision"), json!({"approved": false})).await.expect(200);
    device.client.post(&format!("{run}/progress"), json!({})).await.expect(200);
    device.client.post(&format!("{run}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    assert_eq!(owner.delete(&format!("/api/v1/api-keys/{}", key["key"]["key_id"].as_str().unwrap())).await.status, 200);
    let queued = format!("/api/v1/task-runs/{}", second["task_run_id"].as_str().unwrap());
    owner.post(&format!("{queued}/cancel"), json!({})).await.expect(200);
    assert_eq!(owner.delete(&run).await.status, 204);
    assert_eq!(owner.delete(&conversation).await.status, 204);
    assert_eq!(owner.delete("/api/v1/agent-accounts/spared").await.status, 200);
}

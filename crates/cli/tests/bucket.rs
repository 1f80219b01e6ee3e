//! Artifacts in a bucket, on a real object store (SeaweedFS, which `./test` installs).

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use attache_client::bucket::{Bucket, BucketAddress, BucketUpload};
use attache_protocol::{Secret, Timestamp, digest::unhex};

use crate::{
    harness::{TestHome, TestHub, TestProcess, until},
    interop,
};

const ACCESS_KEY: &str = "AKIATESTS";
const SECRET_KEY: &str = "the secret of the tests";
const BUCKET: &str = "artifacts";
/// The prefix of a hub's artifacts.
const HUB: &str = "a hub";

/// Says which hub's artifacts these are.
const OWNER: &str = ".attache-hub";

/// An object store with one bucket.
struct ObjectStore {
    program: PathBuf,
    folder: tempfile::TempDir,
    ports: [u16; 4],
    process: TestProcess,
}

// === impl ObjectStore ===

impl ObjectStore {
    fn start() -> Option<Self> {
        let program = interop::installed("weed")?.join("bin/weed");
        let folder = tempfile::tempdir().unwrap();
        let keys = serde_json::json!({ "identities": [{
            "name": "hub",
            "credentials": [{ "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY }],
            "actions": ["Admin", "Read", "Write", "List"],
        }] });
        fs::write(folder.path().join("keys.json"), keys.to_string()).unwrap();
        let ports = ports();
        let process = spawn(&program, folder.path(), ports);
        let store = Self { program, folder, ports, process };
        store.wait();
        until("the bucket", || {
            store.shell(&format!("s3.bucket.create -name {BUCKET}")).contains("create bucket").then_some(())
        });
        Some(store)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[3])
    }

    fn wait(&self) {
        until("the object store", || std::net::TcpStream::connect(("127.0.0.1", self.ports[3])).ok());
    }

    fn shell(&self, command: &str) -> String {
        let [master, _, filer, _] = self.ports;
        // It waits for a store that isn't ready yet, and sometimes for one that is.
        let mut shell = Command::new("timeout");
        shell.arg("20").arg(&self.program).args([
            "shell",
            &format!("-master=127.0.0.1:{master}"),
            &format!("-filer=127.0.0.1:{filer}"),
        ]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), format!("{command}\n").as_bytes()).unwrap();
        String::from_utf8_lossy(&shell.wait_with_output().unwrap().stdout).into_owned()
    }

    fn restart(&mut self) {
        self.process = spawn(&self.program, self.folder.path(), self.ports);
        self.wait();
    }

    /// The bucket below a prefix, past the hub.
    fn bucket(&self, prefix: &str) -> Bucket {
        let address = BucketAddress {
            endpoint: self.endpoint(),
            region: "us-east-1".to_owned(),
            bucket: BUCKET.to_owned(),
            prefix: prefix.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: Secret::new(SECRET_KEY.to_owned()),
            session_token: None,
        };
        Bucket::new(address, None).unwrap()
    }

    /// The keys of the artifacts that are there.
    fn keys(&self, prefix: &str) -> Vec<String> {
        let objects = block_on(self.bucket(prefix).list(None, now())).unwrap().objects;
        objects.into_iter().map(|object| object.key).filter(|key| key != OWNER).collect()
    }
}

/// Free, also 10,000 higher, where its servers listen for gRPC. Below those that the system gives to connections.
fn ports() -> [u16; 4] {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 11_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut candidates = (first..22_000).filter(|port| free(*port) && free(port + 10_000));
    std::array::from_fn(|_| candidates.next().unwrap())
}

fn spawn(program: &Path, folder: &Path, [master, volume, filer, s3]: [u16; 4]) -> TestProcess {
    let mut command = Command::new(program);
    command.arg("server").args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-volume.max=8"]);
    command.args([
        "-master.volumeSizeLimitMB=32".to_owned(),
        format!("-master.port={master}"),
        format!("-volume.port={volume}"),
    ]);
    command.args([format!("-filer.port={filer}"), format!("-s3.port={s3}")]);
    command.arg(format!("-s3.config={}", folder.join("keys.json").display())).arg(format!("-dir={}", folder.display()));
    TestProcess::spawn("weed", &mut command, folder)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn home_with_keys(store: &ObjectStore, secret: &str) -> TestHome {
    let mut home = TestHome::new();
    home.set("AWS_ACCESS_KEY_ID", ACCESS_KEY);
    home.set("AWS_SECRET_ACCESS_KEY", secret);
    home.set("AWS_ENDPOINT_URL", &store.endpoint());
    home
}

/// The file's own name below `blobs`, which is its key.
fn only_key(store: &ObjectStore) -> String {
    let keys = store.keys(HUB);
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

fn put(home: &TestHome, place: &str, file: &Path) -> String {
    let added = home.attache(&["artifacts", "put", place, file.to_str().unwrap(), "--json"]).succeeds().json();
    added["artifact_id"].as_str().unwrap().to_owned()
}

/// One store for all of it: starting one takes longer than using it.
#[test]
fn artifacts_live_in_a_bucket() {
    let Some(mut store) = ObjectStore::start() else { return };
    what_cannot_be_used_is_refused(&store);
    copies_on_the_disk_are_limited(&store);
    a_bucket_belongs_to_one_hub(&store);
    a_bucket_has_every_artifact(&mut store);
}

fn a_bucket_has_every_artifact(store: &mut ObjectStore) {
    let home = home_with_keys(store, SECRET_KEY);
    let options = ["--artifacts", "s3://artifacts/a hub/"];
    let mut hub: TestHub = home.hub(&options);
    hub.add_agent("builder");
    let run = hub.create_run("builder", "nothing");
    let (file, got) = (home.path().join("file"), home.path().join("got"));
    // Not a multiple of anything.
    let content: Vec<u8> = (0..3_000_017_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&file, &content).unwrap();
    let artifact = put(&home, &run, &file);
    let key = only_key(store);
    let copy = home.a2a().join("hub/blobs").join(&key);
    assert_eq!(fs::read(&copy).unwrap(), content);

    // Another machine: the same database and keys, and none of the files.
    hub.process.kill();
    fs::remove_dir_all(home.a2a().join("hub/blobs")).unwrap();
    let listen = hub.address().to_owned();
    hub = home.server("hub", &[&options[..], &["--listen", &listen]].concat());
    home.attache(&["artifacts", "get", &artifact, "-o", got.to_str().unwrap()]).succeeds();
    assert_eq!(fs::read(&got).unwrap(), content);
    assert_eq!(fs::read(&copy).unwrap(), content, "a copy is kept");

    // What isn't what its name says isn't served.
    fs::remove_file(&copy).unwrap();
    let (right, wrong) = (home.path().join("file"), home.path().join("wrong"));
    fs::write(&wrong, b"other").unwrap();
    let replace = |with: &Path| {
        let upload = BucketUpload { file: with, size: fs::metadata(with).unwrap().len(), sha256: sha256(with) };
        block_on(store.bucket(HUB).put(&key, upload, now())).unwrap();
    };
    replace(&wrong);
    let refused = home.attache(&["artifacts", "get", &artifact]).exits(1);
    assert!(refused.stderr.contains("was modified") && refused.stdout.is_empty(), "{}", refused.stderr);
    assert!(!copy.exists());
    replace(&right);
    home.attache(&["artifacts", "get", &artifact, "-o", got.to_str().unwrap()]).succeeds();

    // Nothing is acknowledged that the bucket doesn't have.
    store.process.kill();
    let other = home.path().join("other");
    fs::write(&other, b"another one").unwrap();
    let refused = home.attache(&["artifacts", "put", &run, other.to_str().unwrap()]).exits(1).stderr;
    assert!(refused.contains("object store can't be reached"), "{refused}");
    assert_eq!(
        hub.get(&format!("/api/v1/workspaces/{}/artifacts", workspace(&hub, &run)))["artifacts"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    store.restart();
    until("the store to take it", || {
        home.attache(&["artifacts", "put", &run, other.to_str().unwrap()]).status.filter(|status| *status == 0)
    });
    assert_eq!(store.keys(HUB).len(), 2);

    // It goes with the run.
    home.attache(&["runs", "cancel", &run]).succeeds();
    hub.ended(&run);
    home.attache(&["runs", "delete", &run, "--yes"]).succeeds();
    until("the objects to be removed", || store.keys(HUB).is_empty().then_some(()));
}

fn workspace(hub: &TestHub, run: &str) -> String {
    hub.run(run)["workspace_id"].as_str().unwrap().to_owned()
}

fn sha256(file: &Path) -> [u8; 32] {
    let output = Command::new("sha256sum").arg(file).output().unwrap().stdout;
    let text = String::from_utf8(output).unwrap();
    unhex(text.split_whitespace().next().unwrap()).unwrap()
}

fn copies_on_the_disk_are_limited(store: &ObjectStore) {
    let home = home_with_keys(store, SECRET_KEY);
    let hub = home.hub(&["--artifacts", "s3://artifacts/limited", "--artifacts-cache-bytes", "1500"]);
    hub.add_agent("builder");
    let run = hub.create_run("builder", "nothing");
    let file = home.path().join("file");
    let artifacts: Vec<String> = [1_u8, 2, 3]
        .map(|byte| {
            fs::write(&file, [byte; 1000]).unwrap();
            put(&home, &run, &file)
        })
        .into();
    let copies = || store.keys("limited").iter().filter(|key| home.a2a().join("hub/blobs").join(key).exists()).count();
    assert_eq!(store.keys("limited").len(), 3);
    assert!(copies() <= 2, "{} copies", copies());
    for (artifact, byte) in artifacts.iter().zip([1_u8, 2, 3]) {
        let got = home.path().join(artifact);
        home.attache(&["artifacts", "get", artifact, "-o", got.to_str().unwrap()]).succeeds();
        assert_eq!(fs::read(got).unwrap(), [byte; 1000]);
    }
    assert!(copies() <= 2, "{} copies", copies());
}

/// Nobody else removes its artifacts: no other hub, and no copy of it that was restored to see whether the backup is good.
fn a_bucket_belongs_to_one_hub(store: &ObjectStore) {
    const OPTIONS: [&str; 2] = ["--artifacts", "s3://artifacts/one hub"];
    let keys = || store.keys("one hub");
    let home = home_with_keys(store, SECRET_KEY);
    let hub = home.hub(&OPTIONS);
    hub.add_agent("builder");
    let run = hub.create_run("builder", "nothing");
    let (file, backup) = (home.path().join("file"), home.path().join("backup.tar"));
    fs::write(&file, "before the backup").unwrap();
    put(&home, &run, &file);
    home.attache(&["backup", backup.to_str().unwrap()]).succeeds();
    fs::write(&file, "after the backup").unwrap();
    put(&home, &run, &file);
    assert_eq!(keys().len(), 2);

    let other = home_with_keys(store, SECRET_KEY);
    let refused = other.attache(&["hub", "--listen", "127.0.0.1:0", OPTIONS[0], OPTIONS[1]]).exits(1).stderr;
    assert!(refused.contains("another hub keeps its artifacts in s3://artifacts/one hub"), "{refused}");

    let restored = home_with_keys(store, SECRET_KEY);
    let data = restored.a2a().join("hub");
    fs::create_dir_all(&data).unwrap();
    let mut tar = Command::new("tar");
    assert!(tar.arg("-xpf").arg(&backup).arg("-C").arg(&data).status().unwrap().success());
    let copy = restored.hub(&OPTIONS);
    // It looks for lost objects in its first second.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(copy.run(&run)["status"], "pending");
    assert_eq!(keys().len(), 2);
}

fn what_cannot_be_used_is_refused(store: &ObjectStore) {
    let refused = |home: &TestHome, bucket: &str, code| {
        home.attache(&["hub", "--listen", "127.0.0.1:0", "--artifacts", bucket]).exits(code).stderr
    };
    let home = home_with_keys(store, SECRET_KEY);
    let missing = refused(&home, "s3://nowhere", 1);
    assert!(missing.contains("NoSuchBucket"), "{missing}");
    let nonsense = refused(&home, "/srv/artifacts", 2);
    assert!(nonsense.contains("s3://BUCKET"), "{nonsense}");
    let wrong = refused(&home_with_keys(store, "a wrong secret"), "s3://artifacts", 1);
    assert!(wrong.contains("403") && !wrong.contains("a wrong secret"), "{wrong}");
    let none = refused(&TestHome::new(), "s3://artifacts", 2);
    assert!(none.contains("AWS_ACCESS_KEY_ID"), "{none}");
}

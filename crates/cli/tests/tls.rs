//! A hub with a self-signed certificate: who can connect, the error messages, and tasks end to end.

use std::fs;

use crate::harness::{TestHome, TestProcess, http, until};

/// `attache hub --tls-self-signed` on a free port: the process, its address and its pin.
fn hub(home: &TestHome) -> (TestProcess, String, String) {
    let (process, ready) = home.ready("hub", &["hub", "--listen", "127.0.0.1:0", "--tls-self-signed"]);
    let text = |name: &str| ready[name].as_str().unwrap().to_owned();
    (process, text("url"), text("pin"))
}

/// A home on another machine, with the owner key in a file.
fn elsewhere(hub: &TestHome) -> (TestHome, String) {
    let home = TestHome::new();
    let file = home.keep_secret("owner.key", &hub.owner_key());
    (home, file)
}

#[test]
fn a_device_pairs_with_the_pin_and_works_over_tls() {
    let here = TestHome::new();
    let (process, url, pin) = hub(&here);
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let messages = process.tells("Certificate pin: ");
    assert!(messages.contains(&format!("Certificate pin: {pin}\n")), "{messages}");
    assert_eq!(fs::read_to_string(here.a2a().join("hub/tls.pin")).unwrap(), format!("{pin}\n"));

    // On the hub's own machine, no options are needed.
    here.attache(&["agents", "add", "builder"]).succeeds();
    let messages = here.attache(&["agents", "code", "builder"]).succeeds().stderr;
    assert!(messages.contains(&format!(" --api-base {url} --pin {pin}\n")), "{messages}");
    let code = here.attache(&["--json", "agents", "code", "builder"]).succeeds().json();
    let code = code["pairing_code"].as_str().unwrap();

    let (laptop, key) = elsewhere(&here);
    let without = laptop.attache(&["runtime", "pair", code, "--api-base", &url]).exits(5);
    assert_eq!(
        without.stderr,
        format!(
            "The built-in shell never asks before it acts. Anyone who can call this agent can run commands on this \
             device: in its folder if this machine can enforce that (attache sandbox), otherwise with your \
             permissions.\n\
             error: can't trust {url}: this machine doesn't trust its certificate\n\
             \x20 → If the hub uses --tls-self-signed, pass its pin with --pin sha256:… or ATTACHE_PIN. \
             `attache hub` prints the pin when it starts, and stores it in <data>/tls.pin.\n"
        )
    );
    laptop.attache(&["runtime", "pair", code, "--api-base", &url, "--pin", &pin]).succeeds();
    let profiles = laptop.profiles();
    let profile = profiles["profiles"].as_object().unwrap().values().next().unwrap();
    assert_eq!((profile["pin"].as_str(), profile["api_base"].as_str()), (Some(&*pin), Some(&*format!("{url}/api/v1"))));
    let runtime = laptop.runtime(&[]);
    let status = laptop.attache(&["--json", "runtime", "status"]).succeeds().json();
    assert_eq!((status["hub_reachable"].as_bool(), status["pin"].as_str()), (Some(true), Some(&*pin)));
    until("the channel", || {
        let status = laptop.attache(&["--json", "runtime", "status"]).succeeds().json();
        status["connection"]["channel_id"].is_string().then_some(())
    });

    let ask = ["ask", "builder", "echo over tls", "--hub", &url, "--key-file", &key];
    let mut asked = ask.to_vec();
    asked.extend(["--pin", &pin]);
    assert_eq!(laptop.attache(&asked).succeeds().stdout, "over tls\n");
    let mut command = laptop.command(&ask);
    let ran = crate::harness::FinishedProcess::of(command.env("ATTACHE_PIN", &pin), &laptop.logs());
    assert_eq!(ran.succeeds().stdout, "over tls\n");
    let wrong = format!("sha256:{}", "0".repeat(64));
    asked[8] = &wrong;
    let ran = laptop.attache(&asked).exits(5);
    assert!(
        ran.stderr.starts_with(&format!("error: can't trust {url}: its key isn't the pinned one\n")),
        "{}",
        ran.stderr
    );
    asked[8] = "sha256:short";
    assert!(laptop.attache(&asked).exits(2).stderr.contains("not a pin"));
    assert_eq!(here.attache(&["ask", "builder", "echo at home"]).succeeds().stdout, "at home\n");
    assert!(here.attache(&["doctor"]).succeeds().stdout.contains("is reachable"));
    drop(runtime);
}

#[test]
fn the_certificate_outlives_the_hub() {
    let home = TestHome::new();
    let (process, _, pin) = hub(&home);
    let file = home.a2a().join("hub/tls/certificate.pem");
    let certificate = fs::read(&file).unwrap();
    assert!(process.terminate().success());
    let (process, url, again) = hub(&home);
    assert_eq!((again, fs::read(&file).unwrap()), (pin, certificate));

    let plain = url.replace("https://", "http://");
    let reply = http::send("GET", &format!("{plain}/healthz"), &[], b"").unwrap().expect(400);
    assert_eq!(reply.json()["error"]["hint"], "Use the same address with https:// (or wss://).");
    let address = url.trim_start_matches("https://");
    let taken = home.attache(&["hub", "--listen", address]).exits(1);
    // Only Linux tells which program it is.
    let next = if cfg!(attache_portable) { "\n" } else { " (" };
    assert!(
        taken.stderr.starts_with(&format!("error: an Attaché hub is already running at {url}{next}")),
        "{}",
        taken.stderr
    );
    drop(process);
}

#[test]
fn local_commands_use_tls_too() {
    let home = TestHome::new();
    let (_up, ready) = home.ready("up", &["up", "--listen", "127.0.0.1:0", "--tls-self-signed"]);
    assert!(ready["url"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{ready}");
    assert!(ready["pin"].as_str().unwrap().starts_with("sha256:"), "{ready}");
    assert_eq!(home.attache(&["ask", "local", "echo hi"]).succeeds().stdout, "hi\n");
    let link = home.attache(&["login"]).succeeds().stdout;
    assert!(link.starts_with(ready["url"].as_str().unwrap()), "{link}");
}

#[test]
fn invalid_tls_options_are_refused_before_startup() {
    let home = TestHome::new();
    let refused = |args: &[&str], message: &str, hint: &str| {
        let mut all = vec!["hub"];
        all.extend(args);
        let ran = home.attache(&all).exits(2);
        assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
        assert!(ran.stderr.contains(hint), "{}", ran.stderr);
    };
    refused(
        &["--listen", "0.0.0.0:0"],
        "error: 0.0.0.0:0 is reachable from other machines, but TLS isn't configured\n",
        "--tls-self-signed",
    );
    refused(
        &["--listen", "127.0.0.1:0", "--tls-self-signed", "--public-url", "http://hub.example"],
        "error: --public-url starts with http://, but the hub uses TLS\n",
        "https://",
    );
    refused(
        &["--listen", "127.0.0.1:0", "--tls-client-certs"],
        "error: --tls-client-certs requires TLS on the hub's own port\n",
        "--tls-self-signed",
    );
    refused(&["--tls-cert", "chain.pem"], "error: ", "--tls-key");
    refused(&["--tls-cert", "a", "--tls-key", "b", "--tls-self-signed"], "error: ", "cannot be used with");
    let ran =
        home.attache(&["hub", "--listen", "127.0.0.1:0", "--tls-cert", "gone.pem", "--tls-key", "gone.key"]).exits(1);
    assert!(ran.stderr.starts_with("error: can't read gone.pem: "), "{}", ran.stderr);
}

/// Asks who it is, with a certificate instead of a key; prints the status and the response.
const ASK: &str = "
import http.client, ssl, sys
context = ssl._create_unverified_context()
context.load_cert_chain(sys.argv[2], sys.argv[3])
connection = http.client.HTTPSConnection(sys.argv[1], context=context)
connection.request('GET', '/api/v1/users/me')
reply = connection.getresponse()
print(reply.status, reply.read().decode())
";

#[test]
fn a_client_certificate_works_as_a_key() {
    let here = TestHome::new();
    let (process, ready) =
        here.ready("hub", &["hub", "--listen", "127.0.0.1:0", "--tls-self-signed", "--tls-client-certs"]);
    let address = ready["url"].as_str().unwrap().trim_start_matches("https://").to_owned();
    // The certificate can come from anywhere; here, from another hub that created it for itself.
    let robot = TestHome::new();
    let (other, ..) = hub(&robot);
    let [certificate, private] =
        ["certificate.pem", "key.pem"].map(|file| robot.a2a().join("hub/tls").join(file).to_str().unwrap().to_owned());
    let of_no_use = robot.attache(&["keys", "add", "robot", "--certificate", &certificate]).exits(2);
    assert_eq!(
        of_no_use.stderr,
        "error: `certificate` has no effect: this hub does not request client certificates\n\
         \x20 → Start the hub with --tls-client-certs, or create a key without a certificate.\n"
    );
    assert!(other.terminate().success());

    let ask = || {
        let mut python = here.program("python3");
        python.args(["-c", ASK, &address, &certificate, &private]);
        let output = crate::harness::FinishedProcess::of(&mut python, &here.logs()).succeeds().stdout;
        let (status, body) = output.split_once(' ').unwrap();
        (status.to_owned(), body.to_owned())
    };
    assert_eq!(ask().0, "401", "nobody knows it yet");
    let made = here.attache(&["--json", "keys", "add", "robot", "--certificate", &certificate]).succeeds().json();
    assert_eq!((made.get("api_key"), made["key"]["name"].as_str()), (None, Some("robot")), "{made}");
    let (status, body) = ask();
    assert_eq!((status.as_str(), body.contains("\"owner\"")), ("200", true), "{body}");
    here.attache(&["keys", "revoke", made["key"]["key_id"].as_str().unwrap()]).succeeds();
    assert_eq!(ask().0, "401");

    let twice = here.attache(&["keys", "add", "again", "--certificate", &certificate]).exits(2);
    assert!(twice.stderr.starts_with("error: `certificate` is or was used by another key\n"), "{}", twice.stderr);
    let both = here.attache(&["keys", "add", "both", "--certificate", &certificate, "--to-file", "x.key"]).exits(2);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
    let gone = here.attache(&["keys", "add", "gone", "--certificate", "gone.pem"]).exits(1);
    assert!(gone.stderr.starts_with("error: can't read gone.pem: "), "{}", gone.stderr);
    drop(process);
}

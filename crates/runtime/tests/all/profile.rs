//! The profile file: private, replaced atomically, and with unknown members kept.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use attache_protocol::{RuntimeId, Secret, Timestamp, env::Env};
use attache_runtime::{
    Error, Options, RuntimeService,
    profile::{Profile, Profiles},
};

use crate::world::{agent, runtime};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn profile(runtime: RuntimeId) -> Profile {
    Profile::new(agent(), runtime, Secret::new("rt_hidden".to_owned()), "http://127.0.0.1:1/api/v1".to_owned())
}

#[test]
fn the_file_is_private_and_has_the_documented_form() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("a2a");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let profiles = Profiles::at(&home, Env::system());
    profiles.update(|set| set.insert(profile(runtime()))).unwrap();
    assert_eq!((mode(&home), mode(profiles.path())), (0o700, 0o600));
    let text = fs::read_to_string(profiles.path()).unwrap();
    let expected = r#"{
  "active_profile": "agt_00000000000000000000000000000001/rtm_00000000000000000000000000000002",
  "profiles": {
    "agt_00000000000000000000000000000001/rtm_00000000000000000000000000000002": {
      "agent_id": "agt_00000000000000000000000000000001",
      "runtime_id": "rtm_00000000000000000000000000000002",
      "runtime_token": "rt_hidden",
      "api_base": "http://127.0.0.1:1/api/v1",
      "local_agent_endpoint": null,
      "adapter": "http",
      "device_name": null,
      "last_heartbeat_at": null,
      "heartbeat_timeout_ms": 120000,
      "local_executor": {
        "type": null,
        "ref": null,
        "workspace": null,
        "cwd": null,
        "instruction_file": null
      }
    }
  }
}
"#;
    assert_eq!(text, expected);
    assert!(!format!("{:?}", profiles.load().unwrap()).contains("rt_hidden"));
}

#[test]
fn a_profile_that_others_can_read_is_refused_with_the_fix() {
    let home = tempfile::tempdir().unwrap();
    let profiles = Profiles::at(home.path(), Env::system());
    profiles.update(|set| set.insert(profile(runtime()))).unwrap();
    fs::set_permissions(profiles.path(), fs::Permissions::from_mode(0o640)).unwrap();
    let path = profiles.path().display().to_string();
    let expected = format!("other users of this machine can read {path} (mode 640). Restrict it: `chmod 600 {path}`");
    assert_eq!(profiles.load().unwrap_err().to_string(), expected);
    assert_eq!(RuntimeService::new(Options::new(home.path())).unwrap_err().to_string(), expected);
    assert!(matches!(profiles.update(|_| ()), Err(Error::LooseProfile { mode: 0o640, .. })));
}

#[test]
fn unknown_members_are_kept() {
    let home = tempfile::tempdir().unwrap();
    let profiles = Profiles::at(home.path(), Env::system());
    profiles.update(|set| set.insert(profile(runtime()))).unwrap();
    let text = fs::read_to_string(profiles.path()).unwrap();
    let text = text
        .replacen("{\n", "{\n  \"future\": [1, {\"a\": null}],\n", 1)
        .replace("\"adapter\": \"http\",", "\"adapter\": \"http\",\n      \"color\": \"green\",")
        .replace("\"ref\": null,", "\"ref\": null,\n        \"shell\": \"zsh\",");
    fs::write(profiles.path(), text).unwrap();
    let now = Timestamp::from_millis(1_000);
    profiles.update(|set| set.profiles.values_mut().for_each(|profile| profile.last_heartbeat_at = Some(now))).unwrap();
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(profiles.path()).unwrap()).unwrap();
    let profile = &value["profiles"][format!("{}/{}", agent(), runtime())];
    assert_eq!(value["future"], serde_json::json!([1, {"a": null}]));
    assert_eq!(profile["color"], "green");
    assert_eq!(profile["local_executor"]["shell"], "zsh");
    assert_eq!(profile["last_heartbeat_at"], "1970-01-01T00:00:01.000Z");
}

#[test]
fn a_new_pairing_replaces_the_old_one_and_becomes_active() {
    let home = tempfile::tempdir().unwrap();
    let profiles = Profiles::at(home.path(), Env::system());
    let env = Env::seeded(4);
    let newer = profile(env.runtime_id());
    let mut other = profile(env.runtime_id());
    other.agent_id = env.agent_id();
    let set = profiles
        .update(|set| {
            set.insert(profile(runtime()));
            set.insert(newer.clone());
            set.insert(other.clone());
            set.clone()
        })
        .unwrap();
    let mut keys = vec![newer.key(), other.key()];
    keys.sort();
    assert_eq!(set.profiles.keys().cloned().collect::<Vec<_>>(), keys);
    assert_eq!(set.select(None).unwrap().key(), other.key());
    assert_eq!(set.select(Some(&newer.key())).unwrap().key(), newer.key());
    assert_eq!(set.select(Some(&newer.runtime_id.to_string())).unwrap().key(), newer.key());
    assert_eq!(set.select(Some(&newer.agent_id.to_string())).unwrap().key(), newer.key());
    assert_eq!(
        set.select(Some("agt_x/rtm_y")).unwrap_err().to_string(),
        "no profile `agt_x/rtm_y` on this device; `attache runtime profiles` lists all of them"
    );
    let left = profiles.update(|set| set.remove(&other.key()).map(|_| set.active_profile.clone())).unwrap();
    assert_eq!(left, Some(Some(newer.key())));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(RuntimeService::new(Options::new(empty.path())), Err(Error::NoProfile)));
}

#[test]
fn concurrent_writers_lose_nothing() {
    let home = tempfile::tempdir().unwrap();
    let env = Env::system();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut new = profile(env.runtime_id());
                    new.agent_id = env.agent_id();
                    Profiles::at(home.path(), env.clone()).update(|set| set.insert(new)).unwrap();
                }
            });
        }
    });
    assert_eq!(Profiles::at(home.path(), env).load().unwrap().profiles.len(), 80);
    let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[test]
fn the_error_for_a_broken_file_does_not_contain_its_secrets() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("runtime.json");
    fs::write(&path, r#"{"active_profile": rt_hidden}"#).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = Profiles::at(home.path(), Env::system()).load().unwrap_err();
    assert!(
        !error.to_string().contains("rt_hidden") && error.to_string().contains("pair with the same agent"),
        "{error}"
    );
}

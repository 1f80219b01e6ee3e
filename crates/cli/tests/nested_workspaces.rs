//! Two agents on one device, one of which works in a folder inside the folder of the other.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use crate::{
    harness::{TestHome, TestHub, TestProcess},
    sandbox::has_namespaces,
};

/// A device with the agents `outer` (in `work`) and `inner` (in `work/site`), whose runs are all inside walls.
struct NestedWorkspaces {
    home: TestHome,
    _hub: TestHub,
    work: PathBuf,
    inner: TestProcess,
    _outer: TestProcess,
    profile: String,
}

impl NestedWorkspaces {
    fn start() -> Self {
        let home = TestHome::new();
        let hub = home.hub(&[]);
        let work = home.path().join("work");
        fs::create_dir_all(work.join("site")).unwrap();
        fs::create_dir(home.path().join("private")).unwrap();
        fs::write(home.path().join("private/key"), "secret").unwrap();
        let mut keys = Vec::new();
        for (name, folder) in [("outer", work.clone()), ("inner", work.join("site"))] {
            hub.add_agent(name);
            let code = hub.pairing_code(name);
            let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--workspace", folder.to_str().unwrap()];
            home.attache(&pair).succeeds();
            let key = home.profiles()["active_profile"].as_str().unwrap().to_owned();
            home.attache(&["runtime", "set", "--profile", &key, "--sandbox", "all"]).succeeds();
            keys.push(key);
        }
        let outer = home.runtime(&["--profile", &keys[0]]);
        let inner = home.runtime(&["--profile", &keys[1]]);
        for name in ["outer", "inner"] {
            hub.agent_is(name, "online");
        }
        Self { home, _hub: hub, work, inner, _outer: outer, profile: keys.remove(1) }
    }

    /// Puts a link to what no run may see in place of the inner folder.
    fn replace_inner(&self) {
        fs::rename(self.work.join("site"), self.work.join("real")).unwrap();
        symlink(self.home.path().join("private"), self.work.join("site")).unwrap();
    }
}

#[test]
fn a_run_sees_and_moves_no_folder_of_another_agent() {
    if !has_namespaces() {
        return;
    }
    let nested = NestedWorkspaces::start();
    let home = &nested.home;
    home.attache(&["ask", "inner", "echo mine > a.txt"]).succeeds();
    let script = "ls -A site; mv site gone; ln -s ../private site; mkdir -p site/.attache; ls -A; true";
    assert_eq!(home.attache(&["ask", "outer", script]).succeeds().stdout, ".attache\nsite\n");
    assert_eq!(home.attache(&["ask", "inner", "cat a.txt; ls -A"]).succeeds().stdout, "mine\n.attache\na.txt\n");
}

#[test]
fn no_run_works_where_a_link_leads_that_was_put_there_since() {
    if !has_namespaces() {
        return;
    }
    let nested = NestedWorkspaces::start();
    let home = &nested.home;
    nested.replace_inner();
    let refused = home.attache(&["ask", "inner", "cat key; echo planted > here"]).exits(1);
    assert!(refused.stderr.contains("since this adapter started") && refused.stdout.is_empty(), "{refused:?}");
    // Not after a restart either.
    nested.inner.terminate();
    let restarted = home.attache(&["runtime", "start", "--profile", &nested.profile]);
    assert_ne!(restarted.status, Some(0));
    assert!(restarted.stderr.contains("now contains a symbolic link"), "{restarted:?}");
    assert!(!home.path().join("private/here").exists());
    // Nobody is paired with the link's target by mistake either.
    let set = ["runtime", "set", "--profile", &nested.profile, "--cwd", "work/site"];
    let refused = home.attache(&set).exits(2);
    assert!(refused.stderr.contains("is a link in an agent's folder"), "{refused:?}");
    // Nor through a link of the owner's own that leads there.
    symlink("work/site", home.path().join("current")).unwrap();
    for folder in ["work/site", "current"] {
        let up = home.attache(&["up", "--listen", "127.0.0.1:0", "--cwd", folder]).exits(2);
        assert!(up.stderr.contains("is a link in an agent's folder"), "{up:?}");
    }
}

#[test]
fn a_link_planted_for_the_files_of_a_run_leads_nowhere() {
    if !has_namespaces() {
        return;
    }
    let nested = NestedWorkspaces::start();
    let (home, site) = (&nested.home, nested.work.join("site"));
    // The run waits until somebody who knows its id has put a link there.
    let waiting = home.spawn("ask", &["ask", "inner", "until [ -e go ]; do sleep 0.1; done"]);
    let run =
        home.attache(&["ask", "inner", "cat .attache/*/key; ls", "--no-wait"]).succeeds().stdout.trim().to_owned();
    fs::create_dir_all(site.join(".attache")).unwrap();
    symlink(home.path().join("private"), site.join(".attache").join(&run)).unwrap();
    fs::write(site.join("go"), "").unwrap();
    assert!(waiting.wait().success());
    let watched = home.attache(&["watch", &run]).succeeds();
    assert_eq!(watched.stdout, "go\n", "{watched:?}");
}

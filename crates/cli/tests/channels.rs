//! `attache channels`: current and past channels and their events.

use crate::harness::{TestHome, until};

#[test]
fn a_runtimes_channel_and_its_events_are_shown() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let none = home.attache(&["channels"]).succeeds();
    assert!(none.stdout.is_empty() && none.stderr.starts_with("No channels found."), "{}", none.stderr);
    home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    let runtime = home.runtime(&[]);
    let channel = until("a channel to be connected", || {
        let list = home.attache(&["channels", "list", "--status", "connected", "--json"]).succeeds().json();
        list["channels"].as_array().unwrap().first().cloned()
    });
    let id = channel["channel_id"].as_str().unwrap();
    assert_eq!((&channel["transport"], &channel["status"]), (&"websocket".into(), &"connected".into()));
    let table = home.attache(&["channels", "list", "--agent", "builder"]).succeeds().stdout;
    assert!(table.starts_with("ID ") && table.contains(id) && table.contains("connected"), "{table}");
    let shown = home.attache(&["channels", "show", id]).succeeds();
    for part in ["status", "last seen", "capabilities", "unacknowledged", channel["account_ref"].as_str().unwrap()] {
        assert!(shown.stdout.contains(part), "{part} is missing in {}", shown.stdout);
    }
    let json = home.attache(&["channels", "show", id, "--json"]).succeeds().json();
    assert_eq!(json["channel_id"], id);
    let events = home.attache(&["channels", "events", id, "--json"]).succeeds().json();
    assert_eq!(events["events"][0]["type"], "channel.connected");
    assert!(home.attache(&["channels", "events", id]).succeeds().stdout.contains("channel.connected"));

    runtime.kill();
    until("the channel to be disconnected", || {
        let list = home.attache(&["channels", "list", "--status", "disconnected"]).succeeds().stdout;
        list.contains(id).then_some(())
    });
    let shown = home.attache(&["channels", "show", id]).succeeds().stdout;
    assert!(shown.contains("disconnected"), "{shown}");
}

#[test]
fn unknown_channels_and_wrong_usage_have_their_exit_codes() {
    let home = TestHome::new();
    let _hub = home.hub(&[]);
    home.attache(&["channels", "show", "chn_00000000000000000000000000000000"]).exits(3);
    home.attache(&["channels", "events", "chn_00000000000000000000000000000000"]).exits(3);
    home.attache(&["channels", "show", "run_1"]).exits(2);
    home.attache(&["channels", "list", "--status", "odd"]).exits(2);
    home.attache(&["channels", "list", "--agent", "nobody"]).exits(3);
}

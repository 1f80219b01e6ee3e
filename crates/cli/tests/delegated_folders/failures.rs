//! Failures during a write: the lease expires, the delegation is cancelled, machines and networks fail.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{
    networks::NetworkMachine,
    world::{DelegationWorld, FolderRoute, StartedDelegation},
};
use crate::harness::until;

/// Writes until it fails, and reports how far it got.
const WRITES: &str = "i=0; while echo $i >> log.txt; do i=$((i+1)); sleep 0.01; done; echo stopped at $i; exit 7";
/// Writes, waits for a signal from the host, and writes again.
/// The folder `closed` appears once the remote has closed the first file.
const WAITS: &str =
    "echo before > a.txt; mkdir closed; until test -e go; do sleep 0.1; done; echo after > b.txt; echo done";

/// How much was written; waits until there is something.
fn grows(world: &DelegationWorld) -> u64 {
    let size = |_: ()| fs::metadata(world.folder.join("log.txt")).map_or(0, |found| found.len());
    until("the remote to write", || (size(()) > 20).then_some(()));
    size(())
}

/// Checks that nothing more is written after the end.
#[track_caller]
fn stays(world: &DelegationWorld) {
    let before = fs::read(world.folder.join("log.txt")).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(fs::read(world.folder.join("log.txt")).unwrap().len(), before.len(), "somebody still writes");
}

#[test]
fn the_lease_expires_during_a_write() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let delegation = world.delegate_in_background(&["--ttl", "20"], WRITES);
    grows(&world);
    let ended = delegation.ended();
    assert_eq!(
        (ended["status"].as_str(), ended["result"]["error"]["code"].as_str()),
        (Some("expired"), Some("EXPIRED")),
        "{ended:#}"
    );
    stays(&world);
    world.is_clean(Duration::from_secs(30));
}

fn cancelled(way: FolderRoute) {
    let Some(world) = DelegationWorld::new(way, "") else { return };
    let delegation = world.delegate_in_background(&[], WRITES);
    grows(&world);
    world.delegations(&["cancel", &delegation.id]).succeeds();
    stays(&world);
    assert_eq!(delegation.ended()["status"], "cancelled");
    world.is_clean(Duration::from_secs(30));
    // The folder is available for the next delegation.
    assert_eq!(world.delegate(&[], "echo next > next.txt")["status"], "completed");
}

#[test]
fn a_delegation_is_cancelled_during_a_write() {
    cancelled(FolderRoute::Direct);
}

#[test]
fn a_delegation_through_the_hub_is_cancelled() {
    cancelled(FolderRoute::Tunnel);
}

#[test]
fn the_remote_is_killed() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let id = {
        let delegation = world.delegate_in_background(&[], WRITES);
        grows(&world);
        delegation.id
    };
    world.runtime.take().unwrap().kill();
    world.is_clean(Duration::from_secs(15));
    stays(&world);
    world.start_runtime();
    let delegation = StartedDelegation::of(&world, id);
    let ended = delegation.ended();
    assert_eq!(ended["status"], "error", "{ended:#}");
    assert!(!ended["result"]["error"]["message"].as_str().unwrap().is_empty());
    assert_eq!(world.delegate(&[], "echo next > next.txt")["status"], "completed");
}

#[test]
fn the_host_is_killed() {
    let Some(mut world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let id = {
        let delegation = world.delegate_in_background(&[], WRITES);
        grows(&world);
        delegation.id
    };
    world.daemon.take().unwrap().kill();
    stays(&world);
    world.start_daemon();
    let ended = StartedDelegation::of(&world, id).ended();
    assert_eq!(ended["status"], "error", "{ended:#}");
    world.is_clean(Duration::from_secs(30));
    assert_eq!(world.delegate(&[], "echo next > next.txt")["status"], "completed");
}

fn hub_restarts(way: FolderRoute) {
    let Some(mut world) = DelegationWorld::new(way, "") else { return };
    let id = world.delegate_in_background(&[], WAITS).id;
    until("the remote to write", || world.folder.join("closed").exists().then_some(()));
    world.hub.take().unwrap().kill();
    world.start_hub();
    world.write("go", "");
    let ended = StartedDelegation::of(&world, id).ended();
    assert_eq!((ended["status"].as_str(), world.read("b.txt").as_str()), (Some("completed"), "after\n"), "{ended:#}");
    world.is_clean(Duration::from_secs(30));
}

#[test]
fn the_hub_is_killed_and_restarted() {
    hub_restarts(FolderRoute::Direct);
}

#[test]
fn the_hub_is_killed_and_restarted_while_it_relays_the_folder() {
    hub_restarts(FolderRoute::Tunnel);
}

#[test]
fn the_network_is_disconnected_and_reconnected() {
    for machine in [NetworkMachine::Remote, NetworkMachine::Host] {
        let Some(world) = DelegationWorld::new(FolderRoute::Tunnel, "") else { return };
        let delegation = world.delegate_in_background(&[], WAITS);
        until("the remote to write", || world.folder.join("closed").exists().then_some(()));
        let nets = world.nets.as_ref().unwrap();
        nets.cut(machine);
        std::thread::sleep(Duration::from_secs(3));
        nets.plug_in(machine);
        let healed = Instant::now();
        world.write("go", "");
        let ended = delegation.ended();
        assert_eq!(
            (ended["status"].as_str(), world.read("b.txt").as_str()),
            (Some("completed"), "after\n"),
            "{ended:#}"
        );
        eprintln!("{machine:?}: done {:?} after the cable was back", healed.elapsed());
        world.is_clean(Duration::from_secs(30));
    }
}

#[test]
fn a_queued_lease_does_not_expire() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let first = world.delegate_in_background(&[], WAITS);
    until("the remote to write", || world.folder.join("closed").exists().then_some(()));
    // The folder is in use for longer than the second lease lasts.
    let second = world.delegate_in_background(&["--ttl", "12"], "echo second > c.txt");
    until("the second to be queued", || second.show()["waits_for"].as_str().map(|_| ()));
    std::thread::sleep(Duration::from_secs(13));
    assert_eq!(second.show()["status"], "created");
    world.write("go", "");
    assert_eq!(first.ended()["status"], "completed");
    let ended = second.ended();
    assert_eq!((ended["status"].as_str(), world.read("c.txt").as_str()), (Some("completed"), "second\n"), "{ended:#}");
}

#[test]
fn exceeding_a_lease_limit_fails_unless_corrected() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let file = world.host.path().join(".AWCP/policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{policy}\n[delegator.export]\nmax_bytes = 1000\n")).unwrap();
    let refused = "refused by a limit of the lease (bytes written)";
    let ended = world.delegate(&[], "head -c 5000 /dev/zero > large.bin; echo small > small.txt; true");
    assert_eq!(
        (&ended["status"], &ended["result"]["error"]["code"]),
        (&"error".into(), &"TASK_FAILED".into()),
        "{ended:#}"
    );
    assert!(
        ended["result"]["error"]["message"].as_str().unwrap().ends_with("these changes failed: large.bin"),
        "{ended:#}"
    );
    assert!(ended["result"]["notes"].as_str().unwrap().contains(refused), "{ended:#}");
    let ended = world.delegate(&[], "head -c 5000 /dev/zero > other.bin; echo small > other.bin");
    assert_eq!((&ended["status"], world.read("other.bin").as_str()), (&"completed".into(), "small\n"), "{ended:#}");
    assert!(ended["result"]["notes"].as_str().unwrap().contains(refused), "{ended:#}");
}

#[test]
fn an_outage_is_reported_with_the_result() {
    let Some(world) = DelegationWorld::new(FolderRoute::Tunnel, "") else { return };
    let delegation = world.delegate_in_background(&[], WAITS);
    until("the remote to write", || world.folder.join("closed").exists().then_some(()));
    let nets = world.nets.as_ref().unwrap();
    nets.cut(NetworkMachine::Host);
    // Until ssh gives up: three times five seconds without an answer.
    std::thread::sleep(Duration::from_secs(25));
    nets.plug_in(NetworkMachine::Host);
    world.write("go", "");
    let ended = delegation.ended();
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let notes = ended["result"]["notes"].as_str().unwrap_or_default();
    assert!(notes.contains("The connection to the folder broke"), "{ended:#}");
}

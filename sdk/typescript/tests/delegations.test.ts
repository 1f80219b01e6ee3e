// Folders delegated through a real daemon to a real collaborator, which mounts them with sshfs.
import assert from "node:assert/strict";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { HubError } from "@attache/sdk";
import { DelegationDaemon } from "@attache/sdk/delegations";
import { Example, writeExamples } from "./readme.js";
import { World, collect, until } from "./world.js";

let world: World;
let daemon: DelegationDaemon;
let folder: string;
let peer: string;

/** Why this machine can't mount a folder, if it can't. */
function missing(): string | false {
  for (const program of ["sshfs", "fusermount3", "ssh"]) {
    if (spawnSync("which", [program]).status !== 0)
      return `${program} isn't installed (apt install sshfs fuse3 openssh-client)`;
  }
  try {
    accessSync("/dev/fuse", constants.R_OK | constants.W_OK);
    return false;
  } catch {
    return "/dev/fuse can't be opened";
  }
}

before(async () => {
  world = await World.start();
  const home = join(world.home, "awcp");
  mkdirSync(home, { recursive: true });
  daemon = new DelegationDaemon({ home });
  folder = join(world.home, "site");
  mkdirSync(folder);
  writeFileSync(join(folder, "a.txt"), "old\n");
  peer = `${world.url}/a2a/builder`;
});

after(async () => {
  await world.attache(["daemon", "--stop"]).catch(() => {});
  await world.stop();
});

test("without a daemon, the error says how to start it", async () => {
  const hint =
    "Start it with `attache daemon`, and leave it running. `attache delegate` starts it too; this package doesn't.";
  await assert.rejects(daemon.list(), { code: "unreachable", hint });
});

test("what isn't allowed is refused, with the command that allows it", async () => {
  world.spawn(["daemon"], { ATTACHE_KEY: world.key });
  await until("the daemon", () =>
    daemon.health().then(
      ({ version }) => version,
      () => undefined,
    ),
  );
  await assert.rejects(daemon.delegate(folder, "list it", { to: peer }), (error: HubError) => {
    assert.deepEqual([error.code, error.status], ["peer_not_allowed", 403]);
    assert.match(error.hint!, /attache delegations allow --peer/);
    return true;
  });
});

test("a delegated folder is changed, compared and reverted", { skip: missing() }, async () => {
  const client = world.client();
  await client.agents.create({ name: "builder" });
  const { pairing_code: code } = await client.agents.pairingCode("builder");
  const device = { A2A_HOME: join(world.home, "device"), AWCP_HOME: join(world.home, "device-awcp") };
  const work = join(world.home, "device-work");
  mkdirSync(work);
  await world.attache(["runtime", "pair", code, "--api-base", world.url, "--cwd", work], device);
  const ready = join(world.home, "device.ready");
  world.spawn(["runtime", "start", "--collaborator", "--ready-file", ready], device);
  await until("the runtime", () => existsSync(ready));

  const keyFile = join(world.home, "peer.key");
  writeFileSync(keyFile, `${world.key}\n`, { mode: 0o600 });
  await world.attache(["delegations", "allow", "--peer", peer, "--key-file", keyFile]);
  await world.attache(["delegations", "allow", "--folder", folder]);

  const started = await daemon.delegate(folder, "cat a.txt; echo new > a.txt; echo more > b.txt", {
    to: peer,
    description: "edit",
  });
  assert.deepEqual([started.description, started.peer_url, started.workspace_dir], ["edit", peer, folder]);
  const states = await collect(daemon.watch(started.delegation_id));
  const ended = states.at(-1)!;
  assert.equal(ended.status, "completed", JSON.stringify(ended.result));
  assert.equal(ended.result?.final_summary?.trim(), "old");
  assert.equal(new Set(states.map((state) => state.revision)).size, states.length);
  assert.deepEqual(
    [readFileSync(join(folder, "a.txt"), "utf8"), readFileSync(join(folder, "b.txt"), "utf8")],
    ["new\n", "more\n"],
  );
  assert.deepEqual(ended.changes?.changed_paths.map(({ path, change }) => [path, change]).sort(), [
    ["a.txt", "modified"],
    ["b.txt", "added"],
  ]);
  assert.match(await daemon.diff(ended.delegation_id), /-old\n\+new/);
  const reverted = await daemon.revert(ended.delegation_id);
  assert.deepEqual([reverted.restored.sort(), reverted.kept], [["a.txt", "b.txt"], []]);
  assert.deepEqual([readFileSync(join(folder, "a.txt"), "utf8"), existsSync(join(folder, "b.txt"))], ["old\n", false]);

  writeExamples();
  assert.match(
    await Example.run(world, "delegate.mjs", [folder, peer]),
    /^completed \[ 'hello.txt' \]\n[\s\S]*\+hello/,
  );

  const long = await daemon.delegate(folder, "sleep 600", { to: peer, access_mode: "ro", ttl_seconds: 120 });
  await until("the work", async () => (await daemon.get(long.delegation_id)).status === "running");
  await daemon.cancel(long.delegation_id);
  assert.equal((await daemon.wait(long.delegation_id)).status, "cancelled");
  assert.deepEqual(
    (await daemon.list()).map(({ status }) => status),
    ["cancelled", "completed", "completed"],
  );
});

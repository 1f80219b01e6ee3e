// Delegates folders of this machine through its delegation daemon (AWCP), over the daemon's Unix socket.
import { request } from "node:http";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import type { AccessMode, DelegationOutcome, DelegationStatus, FolderChanges } from "./api.js";
import { AttacheError, HubError, errno } from "./errors.js";
import type { RequestOptions } from "./http.js";

export interface DelegateOptions extends RequestOptions {
  /** The agent's URL, for example `https://hub.example.org/a2a/builder`. */
  to: string;
  /** What people see in lists. Default: the start of the prompt. */
  description?: string;
  /** Read and write (`rw`) or only read (`ro`). Default: as in policy.toml. */
  access_mode?: AccessMode;
  ttl_seconds?: number;
  session_id?: string;
  /** Show only these paths, in the syntax of a .gitignore. */
  include?: string[];
  exclude?: string[];
  /** A file with the key for the agent, if policy.toml names none. */
  key_file?: string;
  /** The agent works in a copy, and a person applies its changes: `attache delegations apply`. */
  staged?: boolean;
}

/** The copy that the agent of a staged delegation works in. */
export interface StagedCopyStatus {
  /** Changed paths that are neither applied nor discarded. */
  unapplied: number;
  bytes: number;
  kept_until?: string | null;
  warned_at?: string | null;
  removed_at?: string | null;
}

export interface Delegation {
  delegation_id: string;
  status: DelegationStatus;
  description: string;
  peer_url: string;
  workspace_dir: string;
  session_id?: string | null;
  access_mode: AccessMode;
  ttl_seconds: number;
  created_at: string;
  started_at?: string | null;
  expires_at?: string | null;
  ended_at?: string | null;
  /** Why it doesn't proceed yet. */
  waits_for?: string | null;
  remote_mount_point?: string | null;
  task_id?: string | null;
  progress?: string | null;
  /** Counts changes. */
  revision: number;
  result?: DelegationOutcome | null;
  changes?: FolderChanges | null;
  staged?: StagedCopyStatus | null;
}

export interface RevertResult {
  restored: string[];
  kept: Array<{ path: string; reason: string; conflict?: boolean; versions?: string[] }>;
}

export interface DaemonHealth {
  version: string;
  pid: number;
  ssh?: string | null;
  live: number;
}

const ENDED = new Set<DelegationStatus>(["completed", "error", "cancelled", "expired"]);
const WAIT_MS = 20_000;
const REQUEST_TIMEOUT_MS = 30_000;
/** Comparing or reverting the changes of a lease reads many files. */
const LONG_REQUEST_TIMEOUT_MS = 600_000;

/** The daemon of this machine: `attache daemon`, which `attache delegate` starts too. */
export class DelegationDaemon {
  readonly socket: string;

  /** `home` is the daemon's folder. Default: `$AWCP_HOME`, or `~/.AWCP`. */
  constructor({ home }: { home?: string } = {}) {
    this.socket = join(home ?? process.env["AWCP_HOME"] ?? join(homedir(), ".AWCP"), "daemon.sock");
  }

  /**
   * Lets an agent on another machine work in a folder of this one. With `wait`, returns when the delegation has ended,
   * whether it was completed or not. A request that may have arrived isn't sent again: the error is `outcome_unknown`.
   */
  async delegate(
    folder: string,
    prompt: string,
    { signal, to, description, wait, ...more }: DelegateOptions & { wait?: boolean },
  ): Promise<Delegation> {
    const about = description ?? prompt.split("\n", 1)[0]!.slice(0, 80);
    const body = { ...more, prompt, description: about, peer_url: to, workspace_dir: resolve(folder) };
    const started = (await this.#ask("POST", "/delegations", { body, signal })) as Delegation;
    return wait ? this.wait(started.delegation_id, { signal }) : started;
  }

  async get(delegation: string, options: RequestOptions = {}): Promise<Delegation> {
    return (await this.#ask("GET", `/delegations/${delegation}`, options)) as Delegation;
  }

  async list(options: RequestOptions = {}): Promise<Delegation[]> {
    return ((await this.#ask("GET", "/delegations", options)) as { delegations: Delegation[] }).delegations;
  }

  /** The delegation after each change, up to its end. */
  async *watch(delegation: string, { signal }: RequestOptions = {}): AsyncGenerator<Delegation> {
    for (let after = 0; ;) {
      const path = `/delegations/${delegation}?after=${after}&wait_ms=${WAIT_MS}`;
      const current = (await this.#ask("GET", path, { signal })) as Delegation;
      if (current.revision > after) yield current;
      if (ENDED.has(current.status)) return;
      after = current.revision;
    }
  }

  /** Waits until it has ended. */
  async wait(delegation: string, options: RequestOptions = {}): Promise<Delegation> {
    let last: Delegation | undefined;
    for await (const current of this.watch(delegation, options)) last = current;
    return last!;
  }

  /** Revokes the access at once. */
  async cancel(delegation: string, options: RequestOptions = {}): Promise<Delegation> {
    return (await this.#ask("POST", `/delegations/${delegation}/cancel`, options)) as Delegation;
  }

  /** What changed in the folder, as a unified diff. */
  async diff(delegation: string, options: RequestOptions = {}): Promise<string> {
    return (
      (await this.#ask("GET", `/delegations/${delegation}/diff`, {
        ...options,
        timeoutMs: LONG_REQUEST_TIMEOUT_MS,
      })) as { text: string }
    ).text;
  }

  /** Puts back what the lease changed. `take` selects a version of the files that were also edited here. */
  async revert(
    delegation: string,
    { signal, ...body }: { paths?: string[]; take?: "before" | "mine" } & RequestOptions = {},
  ): Promise<RevertResult> {
    return (await this.#ask("POST", `/delegations/${delegation}/revert`, {
      body,
      signal,
      timeoutMs: LONG_REQUEST_TIMEOUT_MS,
    })) as RevertResult;
  }

  async health(options: RequestOptions = {}): Promise<DaemonHealth> {
    return (await this.#ask("GET", "/health", options)) as DaemonHealth;
  }

  /** Each request has its own connection: with a kept one, a restart of the daemon would leave its outcome unknown. */
  #ask(method: string, path: string, given: { body?: unknown; timeoutMs?: number } & RequestOptions): Promise<unknown> {
    const { body, signal, timeoutMs = REQUEST_TIMEOUT_MS + WAIT_MS } = given;
    const text = body === undefined ? undefined : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const headers =
        text === undefined ? {} : { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
      const asked = request({
        socketPath: this.socket,
        method,
        path: `/v1${path}`,
        headers,
        agent: false,
        signal,
        timeout: timeoutMs,
      });
      const fail = (error: Error) => reject(signal?.aborted ? signal.reason : this.#unanswered(error));
      asked.once("timeout", () => asked.destroy(new Error("no answer in time")));
      asked.once("error", fail);
      asked.once("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.once("error", fail);
        response.once("end", () => {
          try {
            const answer = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
            const status = response.statusCode ?? 0;
            if (status >= 200 && status < 300) resolve(answer);
            else reject(new HubError(status, answer));
          } catch {
            fail(new Error("its answer isn't JSON"));
          }
        });
      });
      asked.end(text);
    });
  }

  #unanswered(error: Error): AttacheError {
    if (["ENOENT", "ECONNREFUSED"].includes(errno(error) ?? "")) {
      return new AttacheError("unreachable", `No daemon is running at ${this.socket}.`, {
        hint: "Start it with `attache daemon`, and leave it running. `attache delegate` starts it too; this package doesn't.",
        cause: error,
      });
    }
    const hint = "It may have carried out the request: check `attache delegations` before you retry.";
    return new AttacheError("outcome_unknown", `The daemon at ${this.socket} didn't answer: ${error.message}.`, {
      hint,
      cause: error,
    });
  }
}

// What a hub keeps besides calls: agents, runs, conversations, and approvals.
import type {
  Account,
  AccountRequest,
  AddMessageRequest,
  Conversation,
  ConversationMessage,
  CreateConversationRequest,
  CreateRunRequest,
  DecisionRequest,
  Event,
  Operations,
  PairingCodeResponse,
  PermissionGrant,
  PermissionRequest,
  RegisterAgent,
  RegisteredAgent,
  Run,
} from "./api.js";
import { runId } from "./errors.js";
import { follow } from "./follow.js";
import type { HubConnection, RequestOptions } from "./http.js";
import { Paged } from "./paged.js";

type Query<K extends keyof Operations> = Operations[K] extends { query: infer Q }
  ? Omit<Q, "cursor"> & RequestOptions
  : never;

const TERMINAL = new Set(["task.completed", "task.failed", "task.cancelled"]);
const ENDED = new Set(["completed", "failed", "cancelled"]);

/** The permanent accounts that devices and programs work for. */
export class Agents {
  constructor(readonly hub: HubConnection) {}

  list({ signal, ...query }: Query<"GET /api/v1/agent-accounts"> = {}): Paged<Account> {
    return new Paged(async (cursor) => {
      const page = await this.hub.request("GET /api/v1/agent-accounts", { query: { ...query, cursor }, signal });
      return { items: page.agent_accounts, next: page.next_cursor };
    });
  }

  /** By name or id, as everywhere. */
  get(agent: string, options: RequestOptions = {}): Promise<Account> {
    return this.hub.request("GET /api/v1/agent-accounts/{agent}", { path: { agent }, ...options });
  }

  create(body: AccountRequest & { name: string }, options: RequestOptions = {}): Promise<Account> {
    return this.hub.request("POST /api/v1/agent-accounts", { body, ...options });
  }

  update(agent: string, body: AccountRequest, options: RequestOptions = {}): Promise<Account> {
    return this.hub.request("PATCH /api/v1/agent-accounts/{agent}", {
      path: { agent },
      body,
      isRepeatable: true,
      ...options,
    });
  }

  archive(agent: string, options: RequestOptions = {}): Promise<Account> {
    return this.hub.request("DELETE /api/v1/agent-accounts/{agent}", {
      path: { agent },
      isRepeatable: true,
      ...options,
    });
  }

  /** Creates the agent if there is none with this name, and returns a new key for it. An earlier key stops working. */
  register(
    agent: string,
    { signal, ...more }: Omit<RegisterAgent, "agent_id"> & RequestOptions = {},
  ): Promise<RegisteredAgent> {
    // If the response is lost, the key in it is lost too. Registering again replaces it.
    return this.hub.request("POST /api/a2a/register", {
      body: { agent_id: agent, ...more },
      isRepeatable: true,
      signal,
    });
  }

  /** A code that pairs one device with the agent. */
  pairingCode(agent: string, options: RequestOptions = {}): Promise<PairingCodeResponse> {
    return this.hub.request("POST /api/v1/agent-accounts/{agent}/pairing-codes", { path: { agent }, ...options });
  }
}

/** Runs: every detail of what a call is made of. All methods also take a call's id. */
export class Runs {
  constructor(readonly hub: HubConnection) {}

  list({ signal, ...query }: Query<"GET /api/v1/task-runs"> = {}): Paged<Run> {
    return new Paged(async (cursor) => {
      const page = await this.hub.request("GET /api/v1/task-runs", { query: { ...query, cursor }, signal });
      return { items: page.task_runs, next: page.next_cursor };
    });
  }

  get(run: string, options: RequestOptions = {}): Promise<Run> {
    return this.hub.request("GET /api/v1/task-runs/{run}", { path: { run: runId(run) }, ...options });
  }

  /** A retry after a lost response makes no second run. */
  create(body: CreateRunRequest, options: RequestOptions = {}): Promise<Run> {
    const { idempotency_key: key, ...rest } = body;
    return this.hub.request("POST /api/v1/task-runs", { body: rest, idempotencyKey: key ?? undefined, ...options });
  }

  /** A run that has ended stays as it is. */
  cancel(run: string, { reason, signal }: { reason?: string } & RequestOptions = {}): Promise<Run> {
    return this.hub.request("POST /api/v1/task-runs/{run}/cancel", {
      path: { run: runId(run) },
      body: { reason },
      isRepeatable: true,
      signal,
    });
  }

  async delete(run: string, options: RequestOptions = {}): Promise<void> {
    await this.hub.request("DELETE /api/v1/task-runs/{run}", { path: { run: runId(run) }, ...options });
  }

  /** Every event of a run, once and in order, over as many connections as it takes, until the run has ended. */
  async *events(run: string, { after = 0, signal }: { after?: number } & RequestOptions = {}): AsyncGenerator<Event> {
    const stream = follow(this.hub, {
      path: `/api/v1/task-runs/${encodeURIComponent(runId(run))}/events`,
      after,
      signal,
      isLast: (message) => TERMINAL.has(message.event),
      hasEnded: async () => ENDED.has((await this.get(run, { signal })).status),
    });
    for await (const message of stream) yield JSON.parse(message.data) as Event;
  }
}

/** Conversations group runs that share their context, messages and files. */
export class Conversations {
  constructor(readonly hub: HubConnection) {}

  list({ signal, ...query }: Query<"GET /api/v1/conversations"> = {}): Paged<Conversation> {
    return new Paged(async (cursor) => {
      const page = await this.hub.request("GET /api/v1/conversations", { query: { ...query, cursor }, signal });
      return { items: page.conversations, next: page.next_cursor };
    });
  }

  get(conversation: string, options: RequestOptions = {}): Promise<Conversation> {
    return this.hub.request("GET /api/v1/conversations/{conversation}", { path: { conversation }, ...options });
  }

  create({ signal, ...body }: CreateConversationRequest & RequestOptions = {}): Promise<Conversation> {
    return this.hub.request("POST /api/v1/conversations", { body, signal });
  }

  async delete(conversation: string, options: RequestOptions = {}): Promise<void> {
    await this.hub.request("DELETE /api/v1/conversations/{conversation}", { path: { conversation }, ...options });
  }

  messages(
    conversation: string,
    { signal, ...query }: Query<"GET /api/v1/conversations/{conversation}/messages"> = {},
  ): Paged<ConversationMessage> {
    return new Paged(async (cursor) => {
      const path = { conversation };
      const page = await this.hub.request("GET /api/v1/conversations/{conversation}/messages", {
        path,
        query: { ...query, cursor },
        signal,
      });
      return { items: page.messages, next: page.next_cursor };
    });
  }

  addMessage(
    conversation: string,
    { signal, ...body }: AddMessageRequest & RequestOptions,
  ): Promise<ConversationMessage> {
    return this.hub.request("POST /api/v1/conversations/{conversation}/messages", {
      path: { conversation },
      body,
      signal,
    });
  }
}

/** What agents ask people before they do something risky. Their texts are untrusted: show them as inert text. */
export class Approvals {
  constructor(readonly hub: HubConnection) {}

  /** Those that wait for a decision, unless `state` says otherwise. */
  list({
    signal,
    state = "pending",
    ...query
  }: Query<"GET /api/v1/permission-requests"> = {}): Paged<PermissionRequest> {
    return new Paged(async (cursor) => {
      const page = await this.hub.request("GET /api/v1/permission-requests", {
        query: { ...query, state, cursor },
        signal,
      });
      return { items: page.permission_requests, next: page.next_cursor };
    });
  }

  get(permission: string, options: RequestOptions = {}): Promise<PermissionRequest> {
    return this.hub.request("GET /api/v1/permission-requests/{permission}", { path: { permission }, ...options });
  }

  /** Deciding the same again changes nothing. A request that someone else decided is refused with `already_decided`. */
  decide(permission: string, { signal, ...body }: DecisionRequest & RequestOptions): Promise<PermissionRequest> {
    return this.hub.request("POST /api/v1/permission-requests/{permission}/decision", {
      path: { permission },
      body,
      isRepeatable: true,
      signal,
    });
  }

  approve(
    permission: string,
    more: Omit<DecisionRequest, "approved"> & RequestOptions = {},
  ): Promise<PermissionRequest> {
    return this.decide(permission, { ...more, approved: true });
  }

  deny(permission: string, more: Omit<DecisionRequest, "approved"> & RequestOptions = {}): Promise<PermissionRequest> {
    return this.decide(permission, { ...more, approved: false });
  }

  grants({ signal, ...query }: Query<"GET /api/v1/permission-grants"> = {}): Paged<PermissionGrant> {
    return new Paged(async (cursor) => {
      const page = await this.hub.request("GET /api/v1/permission-grants", { query: { ...query, cursor }, signal });
      return { items: page.permission_grants, next: page.next_cursor };
    });
  }

  revokeGrant(grant: string, options: RequestOptions = {}): Promise<PermissionGrant> {
    return this.hub.request("DELETE /api/v1/permission-grants/{grant}", {
      path: { grant },
      isRepeatable: true,
      ...options,
    });
  }
}

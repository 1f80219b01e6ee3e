-- The foundation: tenants, agents, devices, runs, the log and what runs leave behind.
-- Throughput follows the number of B-tree writes per call, so every index here earns its place:
-- a whole life of a run (create, claim, complete) makes nine.

-- Single numbers: `running_floor` (no running run has a smaller task_runs.id), `chunks_before` (chunks of runs that
-- ended before this time are gone), `agent_runs_upto` (task_runs up to this id are in agent_runs).
create table meta (
    key text primary key,
    value integer not null
) without rowid;

create table tenants (
    no integer primary key,
    id blob not null unique,
    name text not null,
    created integer not null,
    -- Log rows up to this seq were removed by retention; the chain goes on from this hash.
    log_floor integer not null default 0,
    log_floor_hash blob not null
);

-- Life-cycle event, audit record and feed item in one row, chained by hash per tenant.
-- The key is the tenant's number in the upper 19 bits and the seq in the lower 44: appending to a table that is ordered by
-- an integer costs half of what it costs with (tenant, seq).
create table log (
    key integer primary key,
    at integer not null,
    actor text not null,
    type text not null,
    run blob,
    run_seq integer,
    data text not null,
    hash blob not null,
    seq integer as (key & 0xfffffffffff) virtual
);

create table agent_accounts (
    id blob primary key,
    tenant blob not null,
    name text not null,
    description text,
    instructions text,
    skills text not null,
    a2a text,
    created integer not null,
    archived integer
) without rowid;
create unique index agent_accounts_name on agent_accounts (tenant, name) where archived is null;

create table agent_runtimes (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    agent blob not null,
    token blob not null unique,
    state integer not null,
    online integer not null,
    device_name text,
    labels text not null,
    attached integer not null,
    heartbeat integer,
    ended integer
);
create unique index agent_runtimes_active on agent_runtimes (agent) where state = 0;

-- A code that a person made (agent known from the start) or a device shows (poll known, agent at confirmation).
create table pairing_codes (
    code blob primary key,
    poll blob,
    tenant blob,
    agent blob,
    device_name text,
    labels text,
    address text,
    expires integer not null,
    state integer not null
) without rowid;
create unique index pairing_codes_poll on pairing_codes (poll) where poll is not null;

create table api_keys (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    kind integer not null,
    name text not null,
    role text not null,
    secret blob not null unique,
    created integer not null,
    expires integer,
    revoked integer
);

-- The single execution truth. An update costs by the number of columns, so what no statement looks at by itself is packed.
create table task_runs (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    agent blob not null,
    status integer not null,
    priority integer not null,
    -- Pending: when it expires. Running: when the lease ends.
    until integer,
    created integer not null,
    ended integer,
    -- Null: the run is a conversation of its own.
    conversation blob,
    parent blob,
    -- The caller's key and request, hashed to 16 bytes each; the writer keeps the map of the last day in memory.
    idempotency blob,
    -- Epoch, attempts, limits, newest seq, claim, waits, digest of the outcome, and where the run's life-cycle events stand
    -- in the log.
    state blob not null,
    -- What was asked, as JSON.
    request text not null,
    usage text,
    result text
);
create index task_runs_queue on task_runs (agent, priority desc, id) where status = 0;
create index task_runs_unsuccessful on task_runs (status, id) where status >= 3;
create index task_runs_conversation on task_runs (conversation, id) where conversation is not null;
create index task_runs_parent on task_runs (parent, id) where parent is not null;

-- The runs of each agent, for lists. The sweep fills it in bulk up to `agent_runs_upto`, because an index would cost
-- every creation a page of its own; lists look through the few newer runs themselves.
create table agent_runs (
    agent blob not null,
    run integer not null,
    primary key (agent, run)
) without rowid;

-- What only the run's own stream shows: progress, chunks, thoughts, log lines, tool calls.
create table chunks (
    run integer not null,
    seq integer not null,
    at integer not null,
    type text not null,
    data text not null,
    primary key (run, seq)
) without rowid;

create table conversations (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    title text,
    metadata text,
    created integer not null
);

create table messages (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    conversation blob not null,
    role integer not null,
    author text not null,
    text text not null,
    metadata text,
    created integer not null
);
create index messages_conversation on messages (conversation, id);

create table artifacts (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    workspace blob not null,
    name text not null,
    media_type text not null,
    size integer not null,
    blake3 blob not null,
    created integer not null
);
create index artifacts_workspace on artifacts (workspace, id);

-- Which run produced (0) or consumed (1) which artifact, in the order in which they said so.
create table artifact_edges (
    no integer primary key,
    artifact integer not null,
    kind integer not null,
    run blob not null
);
create index artifact_edges_artifact on artifact_edges (artifact, kind, no);

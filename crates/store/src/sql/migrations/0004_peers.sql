-- Outside A2A agents, and the tasks that they do for runs.

-- What makes an account an outside agent.
create table peers (
    no integer primary key,
    agent blob not null unique,
    tenant blob not null,
    url text not null,
    -- The credential, sealed by the hub.
    sealed blob,
    -- The card that is trusted.
    pin_digest blob,
    pin_card text,
    pinned integer,
    -- The card that waits for the owner's trust.
    offered_digest blob,
    offered_card text,
    offered integer,
    problem text
);

create table peer_tasks (
    no integer primary key,
    run blob not null unique,
    agent blob not null,
    epoch integer not null,
    url text not null,
    message_id text not null,
    peer_task_id text,
    peer_context_id text,
    -- Its state, in the peer's own words.
    native_status text,
    recovery text,
    sent integer not null,
    updated integer not null
);
create index peer_tasks_peer on peer_tasks (agent, peer_task_id, no) where peer_task_id is not null;

-- What a runtime says it understands, a JSON array.
alter table agent_runtimes add column extensions text;

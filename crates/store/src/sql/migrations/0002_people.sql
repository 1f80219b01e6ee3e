-- People, what they may spend, and whom runs call back.

create table users (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    name text not null,
    role text not null,
    -- A hash with its salt and parameters.
    password text,
    created integer not null,
    removed integer
);
create unique index users_name on users (tenant, name) where removed is null;

-- The access rules in force.
create table access_rules (
    tenant blob primary key,
    text text not null,
    version integer not null,
    changed integer not null,
    changed_by text not null
) without rowid;

-- Whom a key acts for; its scopes with a space between them, null for all.
alter table api_keys add column user blob;
alter table api_keys add column scopes text;
create index api_keys_user on api_keys (user, no) where user is not null;

alter table agent_accounts add column owner blob;
alter table conversations add column user blob;
-- Without an index: it would cost every run of a user one B-tree write more.
alter table task_runs add column user blob;

-- The limits of a day. An empty user is everybody, an empty agent is every agent.
create table quotas (
    tenant blob not null,
    user blob not null,
    agent blob not null,
    calls integer,
    tokens integer,
    micro_usd integer,
    primary key (tenant, user, agent)
) without rowid;

-- What ended runs used. The writer sums it up in memory and writes the sums down every now and then.
-- An empty user is nobody in particular. Numbers are 64 bits without a sign.
create table usage_days (
    tenant blob not null,
    day integer not null,
    user blob not null,
    agent blob not null,
    calls integer not null,
    failed integer not null,
    tokens integer not null,
    micro_usd integer not null,
    reported integer not null,
    estimated integer not null,
    unknown integer not null,
    duration_ms integer not null,
    primary key (tenant, day, user, agent)
) without rowid;
-- The runs whose end stands in the log up to this seq are in usage_days; a start adds the others.
alter table tenants add column usage_upto integer not null default 0;

-- The outbox of webhooks.
create table deliveries (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    run blob not null,
    -- Null: it tells of the run's end.
    permission blob,
    url text not null,
    state text not null,
    attempts integer not null default 0,
    next integer,
    last_at integer,
    last_status integer,
    last_error text,
    created integer not null,
    delivered integer
);
create index deliveries_run on deliveries (run, no);
create index deliveries_due on deliveries (next) where state = 'pending';
create index deliveries_failed on deliveries (no) where state = 'failed';

-- Delegations as the daemons that lend folders publish them.
create table delegations (
    no integer primary key,
    uid blob not null unique,
    tenant blob not null,
    owner text not null,
    status text not null,
    -- All that is shown of it, as the daemon said it.
    shown text not null,
    cancel_requested integer not null,
    updated integer not null
);
create index delegations_tenant on delegations (tenant, no);

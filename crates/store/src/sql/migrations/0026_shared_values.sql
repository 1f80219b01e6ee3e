-- Short-lived values that nodes share: login links, secrets of a handover, reports of devices.
create table shared_values (
    no integer primary key,
    kind text not null,
    name text not null,
    tenant blob not null,
    holder text not null,
    value blob not null,
    expires integer not null
);
create unique index shared_values_name on shared_values (kind, name);
create index shared_values_holder on shared_values (kind, tenant, holder, no);
create index shared_values_expires on shared_values (expires);

-- Who is told of a run's changes over A2A, and the messages that bring input.

create table push_configs (
    no integer primary key,
    run integer not null,
    id text not null,
    url text not null,
    -- The subscriber's token and credentials, sealed by the hub.
    sealed blob,
    -- In which version of A2A it is told: 10 or 3.
    version integer not null,
    created integer not null
);
create unique index push_configs_id on push_configs (run, id);

-- Of a push: its config, and the row of the run's stream that it tells of.
alter table deliveries add column config text;
alter table deliveries add column seq integer;

alter table asks add column message text;
alter table inputs add column message text;

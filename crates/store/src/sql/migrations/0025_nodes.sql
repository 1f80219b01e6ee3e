-- The nodes that serve this database together. Without others a hub has no row here.
create table nodes (
    no integer primary key,
    id blob not null unique,
    beats integer not null default 0
);
-- What one node does for all of them.
create table node_leases (
    name text not null primary key,
    node blob not null
);
-- The node of the newest connection.
alter table channels add column node blob;
-- The node that makes the next attempt.
alter table deliveries add column node blob;
create index deliveries_leased on deliveries (node) where node is not null;

-- Where people get notifications, and which delivery goes there. `seq` of such a delivery is a row of the tenant's log.
create table notification_targets (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    service text not null,
    name text not null,
    user blob,
    -- The key or session that it ends with.
    key blob not null,
    origin text not null,
    -- A digest of the complete address.
    address blob not null,
    -- The complete address and its secrets, sealed by the hub.
    sealed blob not null,
    choices text not null,
    created integer not null
);
create index notification_targets_tenant on notification_targets (tenant, no);
alter table deliveries add column target blob;
create index deliveries_notified on deliveries (tenant, seq) where target is not null;

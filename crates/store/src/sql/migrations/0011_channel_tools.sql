-- The same list of tools is kept once. Channels of before keep theirs in `tools`.
create table channel_tools (
    no integer primary key,
    hash blob not null unique,
    text text not null
);
alter table channels add column tools_no integer;

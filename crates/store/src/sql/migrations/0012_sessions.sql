-- A session ends with the key or session that opened it. Who opened the sessions of before is unknown, so they end here.
alter table api_keys add column opener blob;
alter table api_keys add column address text;
create index api_keys_opener on api_keys (opener, no) where opener is not null;
update api_keys set revoked = created where kind = 1 and revoked is null;

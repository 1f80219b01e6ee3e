-- A standing approval ends with the person and the key that made it. Those of before are known by the key in `created_by`.
alter table permission_grants add column user blob;
alter table permission_grants add column key blob;
update permission_grants set key = (select k.id from api_keys k where 'key:key_' || lower(hex(k.id)) = created_by),
    user = (select k.user from api_keys k where 'key:key_' || lower(hex(k.id)) = created_by);
update permission_grants set key = (select k.opener from api_keys k where k.id = permission_grants.key)
    where key in (select id from api_keys where kind = 1);
create index permission_grants_user on permission_grants (user, no) where revoked is null and user is not null;
create index permission_grants_key on permission_grants (key, no) where revoked is null and key is not null;
-- A call to a private agent: an approval counts once, whatever is disclosed.
alter table permission_requests add column private_agent integer not null default 0;

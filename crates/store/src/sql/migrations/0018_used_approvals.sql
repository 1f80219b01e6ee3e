-- The run that an approval started: it starts no other, however long its run lasts.
alter table permission_requests add column used_by blob;

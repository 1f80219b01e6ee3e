-- What a person is shown of a permission request beside its input: a diff, and what the agent does not tell (a JSON array).
alter table permission_requests add column diff text;
alter table permission_requests add column undisclosed text;

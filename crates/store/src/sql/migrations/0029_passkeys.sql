-- Passkeys of people, in the order in which they were added, and the sessions that were opened with them.
create table passkeys (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    user blob not null,
    name text not null,
    -- The authenticator's id of it.
    credential blob not null unique,
    -- A COSE key.
    public_key blob not null,
    counter integer not null,
    created integer not null,
    used integer
);
create index passkeys_user on passkeys (user, no);
alter table api_keys add column passkey blob;
create index api_keys_passkey on api_keys (passkey, no) where passkey is not null;
-- What an approval of an agent's requests needs, as `ApprovalConfirmation`.
alter table agent_accounts add column confirm_approvals text;

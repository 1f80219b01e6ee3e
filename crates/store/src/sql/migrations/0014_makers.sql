-- A pairing code is worth something only as long as the key that made it is. Who made those of before is unknown, so they end
-- here; they would have lived ten minutes.
alter table pairing_codes add column maker blob;
update pairing_codes set expires = 0 where state < 2;
-- An outside agent's key is the agent's. Those of before were a person's: they end here, and the agent registers again.
alter table api_keys add column agent blob;
create index api_keys_agent on api_keys (agent, no) where agent is not null;
update api_keys set revoked = created where revoked is null and kind = 0 and name glob 'outside agent agt_*';

-- A database as version 1 wrote it: an agent, its device, and a run that has ended, one that runs, and one that waits.
insert into tenants (no, id, name, created, log_floor, log_floor_hash)
    values (1, x'018bcfe568007a0d92016999e47689da', 'home', 1700000000000, 0, x'0000000000000000000000000000000000000000000000000000000000000000');
insert into log (key, at, actor, type, data, hash)
    values (17592186044417, 1700000000000, 'system', 'tenant.created', '{"name":"home"}', x'8c5a56d463f99078abc9b9774885c956becc24f942f0e36688aec02165ac9e21');
insert into log (key, at, actor, type, data, hash)
    values (17592186044418, 1700000000000, 'system', 'agent.created', '{"agent_id":"agt_018bcfe5680075748d2b8c1903faf7ca","name":"builder"}', x'8b7e9f4480f6a657bfc6a3b09f6bb8a17b9fbd47f86d30cab15c65e3a1eb1c83');
insert into log (key, at, actor, type, data, hash)
    values (17592186044419, 1700000000000, 'runtime:rtm_018bcfe568007886a658150083100ef2', 'runtime.attached', '{"agent_id":"agt_018bcfe5680075748d2b8c1903faf7ca","runtime_id":"rtm_018bcfe568007886a658150083100ef2","device_name":null}', x'6175b664f30b4520ab1ea30f5c1253ba6b61d46705647c9b9b3a7a3ec0fbc194');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044420, 1700000000000, 'system', 'task.created', x'018bcfe5680078eeb5236d55773c2932', 1, '{"agent_id":"agt_018bcfe5680075748d2b8c1903faf7ca","task_type":"chat"}', x'80bce125b5f7ec88ccd42ef213f78b20a85a5245cb156aa91f67e0459d91b69d');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044421, 1700000000000, 'system', 'task.created', x'018bcfe568007e7382b6311814eeba92', 1, '{"agent_id":"agt_018bcfe5680075748d2b8c1903faf7ca","task_type":"chat"}', x'05135c86d2550b6af0289652836006fffd7bce7fa647a30c039aa3abdbc05eb9');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044422, 1700000000000, 'system', 'task.created', x'018bcfe5680076f6aaade7cb9232074b', 1, '{"agent_id":"agt_018bcfe5680075748d2b8c1903faf7ca","task_type":"chat"}', x'ac4a3f9aa9ccc58a98bb238548756bd4b09895a767430371208bc3cf171073b3');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044423, 1700000000000, 'runtime:rtm_018bcfe568007886a658150083100ef2', 'task.claimed', x'018bcfe5680078eeb5236d55773c2932', 2, '{"runtime_id":"rtm_018bcfe568007886a658150083100ef2","epoch":1,"attempt":1}', x'29b52a96a87db2ea503a3bdbf16cec9ff59841fa22128e876a3dd08d1b9274de');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044424, 1700000000000, 'runtime:rtm_018bcfe568007886a658150083100ef2', 'task.claimed', x'018bcfe568007e7382b6311814eeba92', 2, '{"runtime_id":"rtm_018bcfe568007886a658150083100ef2","epoch":1,"attempt":1}', x'746e94a4b3ec6c9fa2df77cbf8b5ffd2502b46916819e202d53075e10341297d');
insert into log (key, at, actor, type, run, run_seq, data, hash)
    values (17592186044425, 1700000000000, 'runtime:rtm_018bcfe568007886a658150083100ef2', 'task.completed', x'018bcfe5680078eeb5236d55773c2932', 3, '{"usage":{"tokens":7,"cost_usd":0.01}}', x'c484f181ccae2d953f222b42d8c2daa4992673924f5a1596f708cdb1bcb49d4e');
insert into agent_accounts (id, tenant, name, skills, created)
    values (x'018bcfe5680075748d2b8c1903faf7ca', x'018bcfe568007a0d92016999e47689da', 'builder', '[]', 1700000000000);
insert into agent_runtimes (no, id, tenant, agent, kind, token, state, online, labels, attached)
    values (1, x'018bcfe568007886a658150083100ef2', x'018bcfe568007a0d92016999e47689da', x'018bcfe5680075748d2b8c1903faf7ca', 0, x'0101010101010101010101010101010101010101010101010101010101010101', 0, 0, '{}', 1700000000000);
insert into task_runs (id, uid, tenant, agent, status, priority, created, ended, state, request, usage, result)
    values (1, x'018bcfe5680078eeb5236d55773c2932', x'018bcfe568007a0d92016999e47689da', x'018bcfe5680075748d2b8c1903faf7ca', 2, 0, 1700000000000, 1700000000000, x'010103e0a712e0a712030000000000020001018bcfe568007886a658150083100ef280d095ffbc3101ec46637a68daca54a4420ad9a234e801030104020703090000', '{"task_type":"chat","caller":"system","input":{"text":"hi"}}', '{"tokens":7,"cost_usd":0.01}', '{}');
insert into task_runs (id, uid, tenant, agent, status, priority, until, created, state, request, usage)
    values (2, x'018bcfe568007e7382b6311814eeba92', x'018bcfe568007a0d92016999e47689da', x'018bcfe5680075748d2b8c1903faf7ca', 1, 0, 1700000030000, 1700000000000, x'010103e0a712e0a712020000000000020001018bcfe568007886a658150083100ef280d095ffbc310002010502080000', '{"task_type":"chat","caller":"system","input":{"text":"hi"}}', '{"tokens":5}');
insert into task_runs (id, uid, tenant, agent, status, priority, until, created, state, request)
    values (3, x'018bcfe5680076f6aaade7cb9232074b', x'018bcfe568007a0d92016999e47689da', x'018bcfe5680075748d2b8c1903faf7ca', 0, 0, 1700000300000, 1700000000000, x'000003e0a712e0a712010000000000000000000101060000', '{"task_type":"chat","caller":"system","input":{"text":"hi"}}');

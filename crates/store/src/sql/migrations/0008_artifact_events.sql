-- Where a run's artifacts stand among its chunks: an outline shows them without reading the rest. Other chunks do not pay for it.
create index chunks_artifacts on chunks (run, seq) where type = 'artifact.changed';

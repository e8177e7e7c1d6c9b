-- Since layout 10: state of the cache before the launches of a collection, `hot` or `cold`. Collections of earlier
-- layouts had a hot cache. Samples of different states are never pooled or compared.
ALTER TABLE collections ADD COLUMN cache TEXT NOT NULL DEFAULT 'hot' CHECK (cache IN ('hot', 'cold'));

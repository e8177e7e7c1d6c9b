-- Since layout 3: why a collection was begun, what it was predicted to take, and all devices of a gang, as JSON.
ALTER TABLE collections ADD COLUMN purpose TEXT NOT NULL DEFAULT 'measure';
ALTER TABLE collections ADD COLUMN predicted_s REAL;
ALTER TABLE collections ADD COLUMN gang TEXT;

-- Since layout 7: SHA-256 of the compressed evidence of a collection. Collections of earlier layouts, and those whose evidence
-- could not be written, have none.
ALTER TABLE collections ADD COLUMN archive TEXT;

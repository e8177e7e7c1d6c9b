-- Since layout 4: the software of each collection. The digest identifies the fingerprint, which is JSON. Collections of
-- earlier layouts have none: their software is unknown.
CREATE TABLE software (
    digest      TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL
) STRICT;
ALTER TABLE collections ADD COLUMN software TEXT REFERENCES software;

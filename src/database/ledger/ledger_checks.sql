-- Since layout 2: what the vendor's code says of the call of a case. The digest tells whether the call is
-- still that one.
CREATE TABLE checks (
    case_id  TEXT PRIMARY KEY,
    digest   TEXT NOT NULL,
    software TEXT NOT NULL,
    verdict  TEXT NOT NULL,
    judge    TEXT NOT NULL,
    message  TEXT NOT NULL,
    at_ns    INTEGER NOT NULL
) STRICT;

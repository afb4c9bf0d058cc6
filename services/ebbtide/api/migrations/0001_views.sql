-- Views of the log for people: they may be dropped at any time and are rebuilt from it.
CREATE SCHEMA IF NOT EXISTS api;

-- One row: how far the views are, under which fold, and how many jobs are in each phase by workspace.
CREATE TABLE IF NOT EXISTS api.progress (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    fold integer NOT NULL,
    epoch bigint NOT NULL,
    position bigint NOT NULL,
    counts json NOT NULL
);

-- A job as people see it. Columns are what is searched by; body is the whole row.
CREATE TABLE IF NOT EXISTS api.jobs (
    id text PRIMARY KEY,
    workspace text NOT NULL,
    name text NOT NULL,
    actor text NOT NULL,
    submitted bigint NOT NULL,
    phase text NOT NULL,
    alive boolean NOT NULL,
    body json NOT NULL,
    spec json NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS jobs_submitted ON api.jobs (submitted);
CREATE INDEX IF NOT EXISTS jobs_workspace ON api.jobs (workspace, submitted);
CREATE INDEX IF NOT EXISTS jobs_phase ON api.jobs (phase, submitted);
CREATE INDEX IF NOT EXISTS jobs_name ON api.jobs (name, submitted);
CREATE INDEX IF NOT EXISTS jobs_actor ON api.jobs (actor, submitted);
CREATE INDEX IF NOT EXISTS jobs_alive ON api.jobs (submitted) WHERE alive;

-- Nodes and tokens, whole: few, and always held in memory.
CREATE TABLE IF NOT EXISTS api.things (
    kind text NOT NULL,
    id text NOT NULL,
    body json NOT NULL,
    PRIMARY KEY (kind, id)
);

-- name: progress
SELECT fold, epoch, position, counts FROM api.progress

-- name: load_jobs
SELECT body, spec FROM api.jobs WHERE alive ORDER BY submitted

-- name: load_things
SELECT kind, body FROM api.things

-- name: reset
WITH jobs AS (DELETE FROM api.jobs), things AS (DELETE FROM api.things)
INSERT INTO api.progress (fold, epoch, position, counts) VALUES ($1, $2, 0, '{}')
ON CONFLICT (only_row) DO UPDATE SET fold = excluded.fold, epoch = excluded.epoch, position = 0, counts = '{}'

-- name: save
-- One statement, so one round trip: nothing is kept unless this batch moves the position forward.
WITH moved AS (
    UPDATE api.progress SET position = $3, counts = $4
    WHERE fold = $1 AND epoch = $2 AND position < $3
    RETURNING position
), things AS (
    INSERT INTO api.things (kind, id, body)
    SELECT given.kind, given.id, given.body
    FROM unnest($5::text[], $6::text[], $7::json[]) AS given (kind, id, body)
    WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body
), jobs AS (
    INSERT INTO api.jobs (id, workspace, name, actor, submitted, phase, alive, body, spec)
    SELECT given.id, given.workspace, given.name, given.actor, given.submitted, given.phase, given.alive,
           given.body, given.spec
    FROM unnest($8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::boolean[],
                $15::json[], $16::json[])
         AS given (id, workspace, name, actor, submitted, phase, alive, body, spec)
    WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (id) DO UPDATE
    SET phase = excluded.phase, alive = excluded.alive, body = excluded.body
)
SELECT EXISTS (SELECT 1 FROM moved)

-- name: job
SELECT body, spec FROM api.jobs WHERE id = $1

-- name: page
-- Empty arguments do not choose. A custom plan is made for each call, so the fitting index is used.
SELECT body FROM api.jobs
WHERE ($1 = '' OR workspace = $1)
  AND (cardinality($2::text[]) = 0 OR phase = ANY ($2::text[]))
  AND ($3 = '' OR name = $3)
  AND ($4 = '' OR actor = $4)
  AND ($5 = 0 OR submitted < $5)
ORDER BY submitted DESC
LIMIT $6

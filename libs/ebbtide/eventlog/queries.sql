-- What Python asks of the log's schema; names as in sql.py.

-- name: head
SELECT epoch, position, level FROM log.head WHERE only_row;

-- name: append
SELECT * FROM log.append(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23
);

-- name: read
SELECT
    epoch, position, stream, version, event_id::text, at, workspace, actor, cause, service,
    read_to, decided_at, rules, trace, type, body
FROM log.events
WHERE position > $1
ORDER BY position
LIMIT $2;

-- name: read_stream
SELECT
    epoch, position, stream, version, event_id::text, at, workspace, actor, cause, service,
    read_to, decided_at, rules, trace, type, body
FROM log.events
WHERE stream = $1
ORDER BY stream, version;

-- name: checkpoint
SELECT revision, epoch, position FROM log.services WHERE service = $1;

-- name: load_snapshots
SELECT s.epoch, s.position, s.digest, s.body
FROM log.snapshots AS s
JOIN log.head AS h ON h.only_row AND h.epoch = s.epoch
WHERE s.service = $1 AND s.fold_version = $2
ORDER BY s.position DESC;

-- name: save_snapshot
INSERT INTO log.snapshots (service, epoch, position, fold_version, digest, body)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (service, epoch, position) DO UPDATE SET
    fold_version = excluded.fold_version, digest = excluded.digest, body = excluded.body;

-- name: drop_snapshots
DELETE FROM log.snapshots
WHERE service = $1 AND (epoch, position) NOT IN (
    SELECT epoch, position FROM log.snapshots
    WHERE service = $1
    ORDER BY epoch DESC, position DESC
    LIMIT $2
);

-- name: raise_epoch
SELECT head_epoch, head_position FROM log.raise_epoch();

-- name: ensure_partitions
SELECT log.ensure_partitions($1, $2);

-- name: lock_migrations
SELECT pg_advisory_lock(hashtext('ebbtide migrations'));

-- name: make_migrations
CREATE SCHEMA IF NOT EXISTS migrations;
CREATE TABLE IF NOT EXISTS migrations.applied (
    schema text NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schema, number)
);

-- name: list_migrations
SELECT number, digest FROM migrations.applied WHERE schema = $1 ORDER BY number;

-- name: record_migration
INSERT INTO migrations.applied (schema, number, name, digest) VALUES ($1, $2, $3, $4);

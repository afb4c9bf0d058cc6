-- The log: one order of events, the streams that decisions rest on, and how far each service decided.
-- Positions are gapless because they are given under a lock on the one row of head.

SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '60s';

CREATE SCHEMA log;

-- Rows that every append rewrites get room beside them, so that the rewrite touches no index and the
-- chain of old versions stays short.
CREATE TABLE log.head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch bigint NOT NULL,
    position bigint NOT NULL,
    at timestamptz NOT NULL,
    level bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO log.head (epoch, position, at, level) VALUES (1, 0, 'epoch', 1);

CREATE TABLE log.streams (
    stream text PRIMARY KEY,
    version bigint NOT NULL,
    last_position bigint NOT NULL,
    closed boolean NOT NULL
) WITH (fillfactor = 70);

-- No unique index on (stream, version): it would have to hold the position, by which the table is
-- parted. The row in streams, written under the lock on head, is what makes a version unique.
CREATE TABLE log.events (
    position bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    event_id uuid NOT NULL,
    at timestamptz NOT NULL,
    workspace text NOT NULL,
    actor text NOT NULL,
    cause text NOT NULL,
    service text NOT NULL,
    read_to bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    rules bigint NOT NULL,
    trace text NOT NULL
) PARTITION BY RANGE (position);

CREATE INDEX events_by_stream ON log.events (stream, version);

-- Which positions have a partition: first <= position < past.
CREATE TABLE log.partitions (
    first bigint PRIMARY KEY,
    past bigint NOT NULL
);

CREATE TABLE log.services (
    service text PRIMARY KEY,
    revision bigint NOT NULL,
    epoch bigint NOT NULL,
    position bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE log.snapshots (
    service text NOT NULL,
    epoch bigint NOT NULL,
    position bigint NOT NULL,
    fold_version bigint NOT NULL,
    digest bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (service, epoch, position)
);

-- Compressing a large picture costs the server more than the disk it saves.
ALTER TABLE log.snapshots ALTER COLUMN body SET STORAGE EXTERNAL;

-- Make partitions of `size` positions until `wanted` has one; give the first position without one.
-- A partition is attached, not created in place: that locks out neither readers nor appends.
CREATE FUNCTION log.ensure_partitions(wanted bigint, size bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    first_free bigint;
    name text;
BEGIN
    SELECT coalesce(max(past), 1) INTO first_free FROM log.partitions;
    IF first_free > wanted THEN
        RETURN first_free;
    END IF;
    LOCK TABLE log.partitions IN SHARE ROW EXCLUSIVE MODE;
    SELECT coalesce(max(past), 1) INTO first_free FROM log.partitions;
    WHILE first_free <= wanted LOOP
        name := format('events_%s', first_free);
        EXECUTE format('CREATE TABLE log.%I (LIKE log.events INCLUDING DEFAULTS)', name);
        EXECUTE format(
            'ALTER TABLE log.events ATTACH PARTITION log.%I FOR VALUES FROM (%s) TO (%s)',
            name, first_free, first_free + size
        );
        INSERT INTO log.partitions (first, past) VALUES (first_free, first_free + size);
        first_free := first_free + size;
    END LOOP;
    RETURN first_free;
END
$$;

-- Record what several services decided, each with a verdict of its own, in one statement.
--
-- Arrays of one prefix run in parallel: batches (one per call of a service), events (with the number of
-- their unit, counted from 1 through all batches) and guards. The caller gathers only batches that do
-- not look at what another one of them writes; so all are compared with the streams as they stand here.
--
-- Nobody waits for the client between lock and commit. Whoever calls this inside a transaction of its
-- own and falls asleep loses the session after idle_in_transaction_session_timeout.
--
-- verdicts: 0 recorded, 1 of another history, 2 the revision is not the service's.
CREATE FUNCTION log.append(
    batch_services text[],
    batch_revisions bigint[],
    batch_epochs bigint[],
    batch_read_tos bigint[],
    unit_batches bigint[],
    guard_units bigint[],
    guard_streams text[],
    guard_read_tos bigint[],
    event_units bigint[],
    event_streams text[],
    event_expected bigint[],
    event_closes boolean[],
    event_types text[],
    event_bodies text[],
    event_ids uuid[],
    event_workspaces text[],
    event_actors text[],
    event_causes text[],
    event_services text[],
    event_read_tos bigint[],
    event_decided_ats timestamptz[],
    event_rules bigint[],
    event_traces text[],
    OUT head_epoch bigint,
    OUT head_position bigint,
    OUT stamp timestamptz,
    OUT verdicts bigint[],
    OUT revisions bigint[],
    OUT dropped bigint[],
    OUT versions bigint[]
)
LANGUAGE plpgsql AS $$
DECLARE
    count_recorded bigint;
    last_at timestamptz;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
    SELECT epoch, position, at INTO head_epoch, head_position, last_at FROM log.head WHERE only_row FOR UPDATE;
    stamp := greatest(last_at, clock_timestamp());

    SELECT
        array_agg(
            CASE
                WHEN b.epoch <> head_epoch OR b.read_to > head_position THEN 1
                WHEN b.revision <> coalesce(s.revision, 0) THEN 2
                ELSE 0
            END ORDER BY b.number
        ),
        array_agg(coalesce(s.revision, 0) ORDER BY b.number)
    INTO verdicts, revisions
    FROM unnest(batch_services, batch_revisions, batch_epochs, batch_read_tos)
        WITH ORDINALITY AS b (service, revision, epoch, read_to, number)
    LEFT JOIN log.services AS s ON s.service = b.service;

    SELECT array_agg(refused.unit) INTO dropped
    FROM (
        SELECT e.unit
        FROM unnest(event_units, event_streams, event_expected) AS e (unit, stream, expected)
        LEFT JOIN log.streams AS s ON s.stream = e.stream
        WHERE s.closed OR e.expected <> coalesce(s.version, 0)
    ) AS refused;
    IF cardinality(guard_units) > 0 THEN
        SELECT dropped || array_agg(g.unit) INTO dropped
        FROM unnest(guard_units, guard_streams, guard_read_tos) AS g (unit, stream, read_to)
        JOIN log.streams AS s ON s.stream = g.stream
        WHERE s.last_position > g.read_to;
    END IF;
    IF verdicts && ARRAY[1::bigint, 2::bigint] THEN
        SELECT dropped || array_agg(u.unit) INTO dropped
        FROM unnest(unit_batches) WITH ORDINALITY AS u (batch, unit)
        WHERE verdicts[u.batch] <> 0;
    END IF;
    dropped := coalesce(dropped, '{}');

    WITH said AS MATERIALIZED (
        SELECT
            e.*,
            head_position + row_number() OVER (ORDER BY e.number) AS position,
            coalesce(s.version, 0) + row_number() OVER (PARTITION BY e.stream ORDER BY e.number) AS version
        FROM unnest(
            event_units, event_streams, event_closes, event_types, event_bodies, event_ids, event_workspaces,
            event_actors, event_causes, event_services, event_read_tos, event_decided_ats, event_rules,
            event_traces
        ) WITH ORDINALITY AS e (
            unit, stream, closes, type, body, event_id, workspace,
            actor, cause, service, read_to, decided_at, rules,
            trace, number
        )
        LEFT JOIN log.streams AS s ON s.stream = e.stream
        WHERE e.unit <> ALL (dropped)
    ),
    recorded AS (
        INSERT INTO log.events (
            position, epoch, stream, version, type, body, event_id, at, workspace,
            actor, cause, service, read_to, decided_at, rules, trace
        )
        SELECT
            position, head_epoch, stream, version, type, body, event_id, stamp, workspace,
            actor, cause, service, read_to, decided_at, rules, trace
        FROM said
    ),
    moved AS (
        INSERT INTO log.streams AS s (stream, version, last_position, closed)
        SELECT stream, max(version), max(position), bool_or(closes) FROM said GROUP BY stream
        ON CONFLICT (stream) DO UPDATE SET
            version = excluded.version, last_position = excluded.last_position, closed = excluded.closed
    )
    SELECT array_agg(version ORDER BY position), count(*) INTO versions, count_recorded FROM said;

    INSERT INTO log.services AS s (service, revision, epoch, position)
    SELECT b.service, b.revision + 1, b.epoch, b.read_to
    FROM unnest(batch_services, batch_revisions, batch_epochs, batch_read_tos, verdicts)
        AS b (service, revision, epoch, read_to, verdict)
    WHERE b.revision IS NOT NULL AND b.verdict = 0
    ON CONFLICT (service) DO UPDATE SET
        revision = excluded.revision, epoch = excluded.epoch, position = excluded.position;

    IF count_recorded > 0 THEN
        UPDATE log.head SET position = head_position + count_recorded, at = stamp WHERE only_row;
        PERFORM pg_notify('ebbtide_log', (head_position + count_recorded)::text);
    END IF;
END
$$;

-- Begin a new history at the present head; what was decided in the old one can be recorded no more.
CREATE FUNCTION log.raise_epoch(OUT head_epoch bigint, OUT head_position bigint)
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE log.head SET epoch = epoch + 1 WHERE only_row
    RETURNING epoch, position INTO head_epoch, head_position;
    PERFORM pg_notify('ebbtide_log', head_position::text);
END
$$;

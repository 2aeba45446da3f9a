"""The SQL of the floors. A statement is a transaction: both sides run in autocommit."""

SCHEMA = """
CREATE TABLE task (
    id uuid PRIMARY KEY,
    state text NOT NULL,
    text text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX task_due ON task (created_at) WHERE state = 'submitted';
CREATE TABLE event (
    task_id uuid NOT NULL,
    seq integer NOT NULL,
    kind text NOT NULL,
    payload jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, seq)
);
"""

SUBMIT = """
WITH new AS (INSERT INTO task (id, state, text) VALUES (%s, 'submitted', %s) RETURNING id)
INSERT INTO event (task_id, seq, kind, payload) SELECT id, 1, 'status', '{"state": "submitted"}' FROM new
"""

ANSWER = """
SELECT task.state, event.payload->>'text'
FROM task JOIN event ON event.task_id = task.id AND event.kind = 'artifact' WHERE task.id = %s
"""

WORK = """
WITH mine AS (
    UPDATE task SET state = 'working', updated_at = now() WHERE id = %s AND state = 'submitted'
    RETURNING id, text
), noted AS (
    INSERT INTO event (task_id, seq, kind, payload) SELECT id, 2, 'status', '{"state": "working"}' FROM mine
)
SELECT id, text FROM mine
"""

ARTIFACT = """
INSERT INTO event (task_id, seq, kind, payload) VALUES (%s, 3, 'artifact', jsonb_build_object('text', %s))
"""

FINISH = """
WITH mine AS (
    UPDATE task SET state = 'completed', updated_at = now() WHERE id = %s AND state = 'working' RETURNING id
)
INSERT INTO event (task_id, seq, kind, payload) SELECT id, 4, 'status', '{"state": "completed"}' FROM mine
"""

CLAIM = """
WITH next AS (
    SELECT id FROM task WHERE state = 'submitted' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED
), mine AS (
    UPDATE task SET state = 'working', updated_at = now() FROM next WHERE task.id = next.id
    RETURNING task.id, task.text
), noted AS (
    INSERT INTO event (task_id, seq, kind, payload) SELECT id, 2, 'status', '{"state": "working"}' FROM mine
)
SELECT id, text FROM mine
"""

# Finishing one and claiming the next share a commit.
FINISH_AND_CLAIM = CLAIM.replace(
    "WITH next AS",
    """WITH done AS (
    UPDATE task SET state = 'completed', updated_at = now() WHERE id = %s AND state = 'working' RETURNING id
), told AS (
    INSERT INTO event (task_id, seq, kind, payload) SELECT id, 4, 'status', '{"state": "completed"}' FROM done
), next AS""",
)

-- rules.list(after, limit, owner, tier, endpoint, enabled, part of the name, state; null where it does not matter): by name
SELECT name, data, draft, owner, version, created_at, updated_at, updated_by
FROM rules
WHERE ($1::text IS NULL OR name > $1)
  AND ($3::text IS NULL OR owner = $3)
  AND ($4::text IS NULL OR data -> 'match' -> 'tiers' ? $4)
  AND ($5::text IS NULL OR data -> 'match' -> 'endpoints' ? $5)
  AND ($6::boolean IS NULL OR enabled = $6)
  AND ($7::text IS NULL OR strpos(lower(name), lower($7)) > 0)
  AND CASE $8::text
          WHEN 'enforced' THEN enabled AND action <> 'log'
          WHEN 'shadow' THEN enabled AND action = 'log'
          WHEN 'disabled' THEN NOT enabled
          WHEN 'draft' THEN draft IS NOT NULL
          ELSE true
      END
ORDER BY name
LIMIT $2;

-- rules.get(name): the rule, or no row
SELECT name, data, draft, owner, version, created_at, updated_at, updated_by FROM rules WHERE name = $1;

-- rules.alike(name): the rule of that name whatever its letter case, or no row
SELECT name FROM rules WHERE lower(name) = lower($1);

-- rules.published_beside(name): how many others are published
SELECT count(*) AS many FROM rules WHERE data IS NOT NULL AND name <> $1;

-- rules.with_id(id): the rule with that id whatever its letter case, or no row
SELECT name FROM rules WHERE lower(id) = lower($1);

-- rules.drafts(): every rule with a draft
SELECT name, data, draft, owner, version, created_at, updated_at, updated_by
FROM rules
WHERE draft IS NOT NULL
ORDER BY position, name COLLATE "C";

-- rules.put(who, rows as JSON): makes or changes rules; the rules as they are then
INSERT INTO rules AS stored (name, data, draft, owner, position, updated_by)
SELECT given ->> 'name', given -> 'data', given -> 'draft', given ->> 'owner',
       (SELECT coalesce(max(position), 0) FROM rules) + ordinality, $1
FROM jsonb_array_elements($2) WITH ORDINALITY AS rows (given, ordinality)
ON CONFLICT (name) DO UPDATE SET
    data = excluded.data, draft = excluded.draft, owner = excluded.owner,
    version = stored.version + 1, updated_at = now(), updated_by = excluded.updated_by
RETURNING name, data, draft, owner, version, created_at, updated_at, updated_by;

-- rules.rename(rows as JSON: name, new, id): nothing; rules have other names, and the ids that they had
UPDATE rules
SET name = given ->> 'new', data = rules.data || renamed, draft = rules.draft || renamed
FROM jsonb_array_elements($1) AS rows (given),
     LATERAL (SELECT jsonb_build_object('name', given ->> 'new', 'id', given ->> 'id') AS renamed) AS with_id
WHERE name = given ->> 'name';

-- rules.delete(names): takes rules away; what users and keys have in place of their limits stays, and is dormant
DELETE FROM rules WHERE name = ANY ($1);

-- rules.last_owners(names): the owner that each of these rules had when it was last deleted
SELECT DISTINCT ON (name) name, before ->> 'owner' AS owner
FROM changes
WHERE kind = 'rule' AND name = ANY ($1) AND after IS NULL AND before ? 'data'
ORDER BY name, id DESC;

-- rules.add_changes(who, rows as JSON): the records of changes, in order; number and name of each
INSERT INTO changes (who, kind, name, verb, before, after)
SELECT $1, given ->> 'kind', given ->> 'name', given ->> 'verb', given -> 'before', given -> 'after'
FROM jsonb_array_elements($2) WITH ORDINALITY AS rows (given, ordinality)
ORDER BY ordinality
RETURNING id, name;

-- rules.add_versions(rows as JSON): what rules are from now on
INSERT INTO rule_versions (rule, change, data)
SELECT given ->> 'rule', (given ->> 'change')::bigint, given -> 'data'
FROM jsonb_array_elements($1) AS rows (given);

-- rules.catch_up(change): writes down as a version whatever was written into the table by hand
INSERT INTO rule_versions (rule, change, data)
SELECT coalesce(now.id, last.rule), $1, now.data
FROM (SELECT id, data FROM rules WHERE data IS NOT NULL) AS now
FULL JOIN (SELECT DISTINCT ON (rule) rule, data FROM rule_versions ORDER BY rule, change DESC) AS last
    ON last.rule = now.id
WHERE now.data IS DISTINCT FROM last.data;

-- rules.known_id(name): the id of a rule of that name; of one that is gone, the id it had
SELECT coalesce((SELECT id FROM rules WHERE name = $1),
                (SELECT rule FROM rule_versions WHERE data ? 'id' AND data ->> 'name' = $1 ORDER BY change DESC LIMIT 1),
                $1) AS id;

-- rules.history(id): every form it had, the newest first
SELECT change, at, who, data
FROM rule_versions JOIN changes ON changes.id = change
WHERE rule = $1
ORDER BY change DESC;

-- rules.version(id, change): what it was from that change on, or no row
SELECT data FROM rule_versions WHERE rule = $1 AND change = $2;

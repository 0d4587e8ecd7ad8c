-- Events come in the order of their time. Where an index has them in that order, PostgreSQL fills its pages; against it,
-- it cuts them in halves, and an event takes a fifth more of its time. The newest are found first either way.
-- (The old ones go last: until then everybody can read.)
CREATE INDEX events_by_user_in_time ON events (user_id, at);
CREATE INDEX events_by_rule_in_time ON events (rule, at);
CREATE INDEX events_by_decision_in_time ON events (decision, at);
DROP INDEX IF EXISTS events_by_user, events_by_rule, events_by_decision;
ALTER INDEX events_by_user_in_time RENAME TO events_by_user;
ALTER INDEX events_by_rule_in_time RENAME TO events_by_rule;
ALTER INDEX events_by_decision_in_time RENAME TO events_by_decision;

-- Events come in the order of their time. Where an index has them in that order, PostgreSQL fills its pages; against it,
-- it cuts them in halves, which takes a third more of the time and of the space. The newest are found first either way.
DROP INDEX events_by_user, events_by_rule, events_by_decision;
CREATE INDEX events_by_user ON events (user_id, at);
CREATE INDEX events_by_rule ON events (rule, at);
CREATE INDEX events_by_decision ON events (decision, at);

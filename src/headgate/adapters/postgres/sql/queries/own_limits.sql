-- own_limits.rules(names): those of these rules that are published
SELECT name, data FROM rules WHERE name = ANY ($1::text[]) AND data IS NOT NULL;

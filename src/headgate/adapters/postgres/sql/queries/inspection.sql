-- inspection.server(): what the server says about itself, and how its clock stands
SELECT current_setting('server_version') AS version,
       clock_timestamp() AS now,
       pg_is_in_recovery() AS is_standby,
       current_setting('server_encoding') AS encoding,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_connections')::integer AS max_connections,
       current_user AS role,
       current_database() AS database;

-- inspection.forbidden(tables): those of these tables that this role may not read and write
SELECT name
FROM unnest($1::text[]) AS name
WHERE to_regclass(quote_ident(name)) IS NOT NULL
  AND NOT (has_table_privilege(quote_ident(name), 'SELECT')
           AND has_table_privilege(quote_ident(name), 'INSERT')
           AND has_table_privilege(quote_ident(name), 'UPDATE')
           AND has_table_privilege(quote_ident(name), 'DELETE'))
ORDER BY name;

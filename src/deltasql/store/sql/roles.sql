-- Roles with the least privileges to read, write and publish the log. Grant one of them to an account, for example:
--   grant deltasql_writer to etl;
-- No role can change committed rows of the log: writers insert rows, and the mirror updates its status.
do $$
declare role text;
begin
    foreach role in array array['deltasql_reader', 'deltasql_writer', 'deltasql_mirror'] loop
        if not exists (select from pg_roles where rolname = role) then
            execute format('create role %I nologin', role);
        end if;
        execute format('grant usage on schema %I to %I', current_schema(), role);
        execute format('grant select on all tables in schema %I to %I', current_schema(), role);
    end loop;
end $$;

grant insert on dl_tables, dl_transactions, dl_table_versions, dl_add_files, dl_remove_files, dl_cdc_files, dl_borrowed_files,
    dl_partitions, dl_partition_files, dl_column_bounds, dl_metadata_updates, dl_protocol_updates, dl_txn_actions, dl_domain_metadata,
    dl_mirror_status, dl_writes to deltasql_writer;
grant delete on dl_writes to deltasql_writer;
grant update (started_at) on dl_writes to deltasql_writer;
grant update (current_version, shape_version, head_commit_id, shape_commit_id, num_files, committed_at, properties, dropped_at) on dl_tables to deltasql_writer;
grant usage on sequence dl_commit_ids to deltasql_writer;

grant insert, update on dl_mirror_status to deltasql_mirror;
grant update (manifest, snapshot) on dl_transactions to deltasql_mirror, deltasql_writer;
grant update (status, json_written, checkpoint_written, error_message, retry_count, last_attempt_at)
    on dl_mirror_status to deltasql_writer;

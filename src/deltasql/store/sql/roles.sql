-- Roles with the least privileges to read, write and publish the log. Grant one of them to an account, for example:
--   grant deltasql_writer to etl;
-- No role writes to a table: the functions do, and they keep the rules of the log.
do $$
declare role text;
begin
    foreach role in array array['deltasql_reader', 'deltasql_writer', 'deltasql_mirror'] loop
        if not exists (select from pg_roles where rolname = role) then
            execute format('create role %I nologin', role);
        end if;
        execute format('grant usage on schema %I to %I', current_schema(), role);
        execute format('grant select on all tables in schema %I to %I', current_schema(), role);
        execute format('revoke all on dl_grantees, dl_grants, dl_transactions from %I', role);
        execute format('grant select (txn_id, committed_at, committer, author, message, num_tables, tables, manifest)
            on dl_transactions to %I', role);
    end loop;
end $$;

grant execute on function dl_place, dl_is_confined, dl_visible_keys, dl_sees_transaction, dl_table_key, dl_applied
    to deltasql_reader, deltasql_writer, deltasql_mirror;

grant execute on function dl_draw_commit_ids, dl_find_files, dl_lock_heads, dl_stage_adds, dl_stage_removes, dl_stage_cdc,
    dl_stage_partitions, dl_commit, dl_store_bounds, dl_may, dl_require_in, dl_create_table, dl_table_exists, dl_location_used,
    dl_drop_table, dl_begin_write, dl_end_write, dl_forget_writes to deltasql_writer;

-- Writers publish their own commits.
grant execute on function dl_mirror_succeeded, dl_mirror_failed, dl_mirror_reopen, dl_mirror_retry, dl_mirror_checkpoint,
    dl_mirror_cleaned, dl_mirror_give_up, dl_last_manifest, dl_manifest_written to deltasql_writer, deltasql_mirror;

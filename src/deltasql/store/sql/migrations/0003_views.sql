-- What people ask the log, by name and version instead of by key and commit id.

create view dl_history as
select t.table_id, t.namespace, t.name, v.version, v.committed_at, v.committer, v.operation,
       v.operation_parameters, v.is_blind_append, v.num_adds, v.num_removes, v.txn_id, v.commit_info
from dl_table_versions v
join dl_tables t using (table_key);

-- Every file with the version that added it and the one, if any, that removed it: a snapshot at version V is
-- "added_version <= V and (removed_version is null or removed_version > V)".
create view dl_files as
select t.table_id, t.namespace, t.name, v.version as added_version, rv.version as removed_version,
       a.path, a.size, a.modification_time, a.partition_values, a.stats, a.data_change, a.deletion_vector
from dl_add_files a
join dl_tables t using (table_key)
join dl_table_versions v on v.commit_id = a.commit_id
left join dl_remove_files r
  on r.table_key = a.table_key and r.add_commit_id = a.commit_id and r.add_ord = a.ord
left join dl_table_versions rv on rv.commit_id = r.commit_id;

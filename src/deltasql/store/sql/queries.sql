-- identity --
-- The system identifier of the server and the name of the database.
select (select system_identifier from pg_control_system()), current_database()

-- backend --
-- The server process of this connection, which identifies it if its last reply is lost.
select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()

-- lake --
-- The identity of the lake, the place where it lives, and the place of this database.
select lake_id, place, directory, dl_place() as here from dl_lake

-- lake_confirm --
-- Record that the lake lives in this database.
update dl_lake set place = dl_place(), directory = coalesce(%(directory)s, directory)

-- lake_settle --
-- Record the directory of an embedded lake that has none yet.
update dl_lake set directory = %(directory)s where directory is null

-- terminate_backend --
-- Terminate a server process that lost its client. Returns no row once the process has ended.
select pg_terminate_backend(pid) from pg_stat_activity where pid = %(pid)s and backend_start = %(started)s

-- has_migrations --
-- Whether the schema has deltasql tables. The schema may not exist yet. This reads the catalogue table, because a lookup by
-- name may use a cache that another session has made stale.
select exists (select from pg_tables where schemaname = %(schema)s and tablename = 'dl_migrations') as found

-- migration_level --
-- The number of the last migration that was applied.
select coalesce(max(number), 0) as level from dl_migrations

-- lock_migrations --
-- Let one process migrate at a time.
select pg_advisory_xact_lock(%(lock)s)

-- record_migration --
-- Record a migration, in the transaction that applies it.
insert into dl_migrations (number, name) values (%(number)s, %(name)s)

-- commit_ids --
-- The first of 64 new commit ids.
select dl_draw_commit_ids() as first

-- commit --
-- Commit to all tables: see dl_commit.
select table_key, version, committed_at from dl_commit(%(txn_id)s, %(author)s, %(message)s, %(tables)s)

-- find_files --
-- The rows of dl_add_files for some paths.
select path, path_gen, commit_id, ord, removed_by, deletion_vector from dl_find_files(%(table_key)s, %(paths)s)

-- heads --
-- The current versions of some tables, without a lock.
select table_key, current_version from dl_tables
where table_key = any(%(keys)s) and dropped_at is null order by table_key

-- lock_heads --
-- The current versions of some tables, locked in key order so that overlapping transactions cannot deadlock.
select table_key, current_version from dl_lock_heads(%(keys)s)

-- timeouts --
-- Set the timeouts of the current transaction.
select set_config('statement_timeout', %(statement)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement)s, true)

-- session_timeout --
-- Set the transaction timeout of a session (PostgreSQL 17 and later).
select set_config('transaction_timeout', %(transaction)s, false)

-- transaction_timeout --
-- Set the transaction timeout of the current transaction (PostgreSQL 17 and later).
select set_config('transaction_timeout', %(transaction)s, true)

-- committed_here --
-- Which of some transactions have committed to a table.
select txn_id from dl_table_versions where table_key = %(table_key)s and txn_id = any(%(txn_ids)s)

-- winners --
-- Every version after the one that was read.
select v.version, v.operation, coalesce(v.author, v.committer) as committer, v.txn_id, v.is_blind_append, v.has_metadata, v.has_protocol,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features,
       case when v.has_domain then array(select d.domain from dl_domain_metadata d
            where d.table_key = v.table_key and d.version = v.version) end as domains,
       case when v.has_txn then (select json_object_agg(x.app_id, x.txn_version) from dl_txn_actions x
            where x.table_key = v.table_key and x.version = v.version) end as txns
from dl_table_versions v
left join dl_protocol_updates p on v.has_protocol and p.table_key = v.table_key and p.version = v.version
where v.table_key = %(table_key)s and v.version > %(read)s
order by v.version

-- winner_adds --
-- The files that winners added, with new rows or with rearranged ones.
select v.version, a.path, a.partition_values, a.stats, a.data_change
from dl_table_versions v
join dl_add_files a on a.table_key = v.table_key and a.commit_id = v.commit_id
where v.table_key = %(table_key)s and v.version > %(read)s

-- winner_removes --
-- The files that winners removed.
select v.version, r.path, r.data_change
from dl_table_versions v
join dl_remove_files r on r.table_key = v.table_key and r.commit_id = v.commit_id
where v.table_key = %(table_key)s and v.version > %(read)s and not r.superseded

-- version_of_commit --
-- The version of a commit id.
select version from dl_table_versions where commit_id = %(commit_id)s

-- transactions --
-- The transactions that committed to more than one table, newest first.
select txn_id, committed_at, committer, author, message from dl_transactions order by committed_at desc, txn_id limit %(limit)s

-- transaction_tables --
-- The tables of some transactions.
select v.txn_id, d.namespace || '.' || d.name as name, v.version, v.operation, v.committed_at, v.committer,
    v.author, v.commit_info, d.location
from dl_table_versions v join dl_tables d using (table_key)
where v.txn_id = any(%(txn_ids)s) order by name

-- committed --
-- The versions that a transaction committed, no row if it did not commit.
select t.table_id, v.table_key, v.version, v.committed_at
from dl_table_versions v join dl_tables t using (table_key)
where v.txn_id = %(txn_id)s

-- stage_adds --
-- Insert added files of a large commit: see dl_stage_adds.
select dl_stage_adds(%(table_key)s, %(commit_id)s, %(first)s, {arrays})

-- stage_removes --
-- Insert removed files of a large commit: see dl_stage_removes.
select dl_stage_removes(%(table_key)s, %(commit_id)s, {arrays})

-- stage_cdc --
-- Insert change data files of a large commit: see dl_stage_cdc.
select dl_stage_cdc(%(table_key)s, %(commit_id)s, {arrays})

-- stage_partitions --
-- Insert the files of a large commit by partition.
select dl_stage_partitions(%(table_key)s, %(commit_id)s)

-- store_bounds --
-- Insert the bounds of the columns of a large commit.
select dl_store_bounds(%(table_key)s, %(commit_id)s, %(paths)s, %(bounds)b)

-- create_table --
-- Insert a table. Its version 0 follows in the same transaction.
select dl_create_table(%(table_id)s, %(namespace)s, %(name)s, %(location)s) as table_key

-- location_used --
-- Whether a table, dropped or not, has this location.
select dl_location_used(%(location)s) as exists

-- head --
-- The current version of a table. Its other state is unchanged as long as shape_commit_id is the same.
select current_version, head_commit_id, shape_commit_id, num_files from dl_tables
where table_id = %(table_id)s and dropped_at is null

-- tables --
-- All tables that are not dropped.
select t.table_key, t.table_id, t.namespace, t.name, t.location, t.current_version, t.num_files, t.created_at,
       t.committed_at, t.properties
from dl_tables t where t.dropped_at is null order by t.namespace, t.name

-- current_versions --
-- The current versions of all tables, from one snapshot.
select table_id, current_version, head_commit_id from dl_tables where dropped_at is null

-- table_names --
-- All table names, to suggest one.
select namespace || '.' || name from dl_tables where dropped_at is null

-- state --
-- A table with its metadata and protocol at a version, by name in any case or by id, in one round trip.
select t.table_key, t.table_id, t.namespace, t.name as table_name, t.location, t.current_version, t.num_files,
       t.created_at, t.committed_at, m.metadata_id, m.name, m.description, m.format_provider, m.format_options, m.schema_string,
       m.partition_columns, m.configuration, m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.extra as protocol_extra,
       t.head_commit_id, t.shape_commit_id
from dl_tables t
left join lateral (select * from dl_metadata_updates x where x.table_key = t.table_key
    and x.version <= coalesce(%(version)s, t.current_version) order by x.version desc limit 1) m on true
left join lateral (select * from dl_protocol_updates x where x.table_key = t.table_key
    and x.version <= coalesce(%(version)s, t.current_version) order by x.version desc limit 1) p on true
where t.table_key = (select dl_table_key(%(table_id)s, %(namespace)s, %(name)s))

-- history --
-- The commits of a table, newest first.
select version, committed_at, operation, operation_parameters, committer, author, txn_id, read_version, isolation_level,
       is_blind_append, num_adds, num_removes, commit_info
from dl_table_versions where table_key = %(table_key)s order by version desc limit %(limit)s

-- version_at --
-- The last version that was committed at or before a time, and the times of the first and the last commit.
select (select version from dl_table_versions where table_key = %(table_key)s and committed_at <= %(at)s
        order by version desc limit 1) as version,
       (select committed_at from dl_table_versions where table_key = %(table_key)s order by version limit 1) as first,
       (select committed_at from dl_table_versions where table_key = %(table_key)s
        order by version desc limit 1) as last

-- versions_at --
-- The versions of all tables at a time.
select t.table_id, t.namespace, t.name, (select v.version from dl_table_versions v
    where v.table_key = t.table_key and v.committed_at <= %(at)s order by v.version desc limit 1) as version
from dl_tables t where t.dropped_at is null order by t.namespace, t.name

-- partitions --
-- The distinct partitions of a table.
select partition_key, partition_values from dl_partitions where table_key = %(table_key)s

-- drop_table --
-- Drop a table. Its log stays.
select dl_drop_table(%(table_key)s, %(purge)s) as dropped

-- in_recovery --
-- Whether this server is a standby.
select pg_is_in_recovery() as in_recovery

-- applied --
-- For each table with application transactions: how many of them are applied, and by which version.
select x.key, d.applied, d.version, jsonb_array_length(x.txns) as given
from jsonb_to_recordset(%(tables)s::jsonb) as x (key int, txns jsonb)
cross join lateral dl_applied(x.key, x.txns) d

-- txn_version --
-- The last transaction number of an application on a table.
select txn_version from dl_txn_actions where table_key = %(table_key)s and app_id = %(app_id)s
order by version desc limit 1

-- arrow_head --
-- The current version that the rest of this read-only transaction sees.
select current_version, num_files, shape_commit_id from dl_tables where table_key = {table_key}

-- arrow_identity --
-- The transaction that committed a version. It shows whether a cache belongs to this history.
select txn_id::text from dl_table_versions where table_key = {table_key} and version = {version}

-- arrow_live --
-- The live files.
select {columns} from dl_add_files a
where a.table_key = {table_key} and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_live_in --
-- The live files in some partitions.
select {columns} from dl_partition_files p
cross join unnest(p.ords) as o (ord)
join dl_add_files a on a.table_key = {table_key} and a.commit_id = p.commit_id and a.ord = o.ord
where p.table_key = {table_key} and p.partition_key = any ({keys}::bigint[])
  and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_live_at --
-- The files that were live at a version.
select {columns} from dl_add_files a
join dl_table_versions v on v.table_key = {table_key} and v.commit_id = a.commit_id and v.version <= {version}
where a.table_key = {table_key} and not exists (select from dl_remove_files r
    join dl_table_versions w on w.table_key = {table_key} and w.commit_id = r.commit_id and w.version <= {version}
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_live_of --
-- Those of some files, given by commit and ord, that are live.
select {columns} from unnest({commits}::bigint[], {ords}::int[]) as w (commit_id, ord)
join dl_add_files a on a.table_key = {table_key} and a.commit_id = w.commit_id and a.ord = w.ord
where not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_live_commits --
-- The live files of some commits.
select {columns} from dl_add_files a
where a.table_key = {table_key} and a.commit_id = any ({commits}::bigint[])
  and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_commits --
-- Every commit that added files.
select commit_id, num_adds from dl_table_versions where table_key = {table_key} and num_adds > 0

-- arrow_bounds --
-- The typed bounds of some columns.
select commit_id, column_path, bounds from dl_column_bounds
where table_key = {table_key} and column_path = any ({paths}::text[])

-- arrow_added_after --
-- The files that were added after a version and are live.
select {columns} from dl_table_versions v
join dl_add_files a on a.table_key = v.table_key and a.commit_id = v.commit_id
where v.table_key = {table_key} and v.version > {version} and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_removed_after --
-- The files that were removed after a version.
select r.add_commit_id as commit_id, r.add_ord as ord from dl_table_versions v
join dl_remove_files r on r.table_key = v.table_key and r.commit_id = v.commit_id
where v.table_key = {table_key} and v.version > {version} and r.add_commit_id is not null

-- begin_write --
-- Record that a transaction writes files of a table.
select dl_begin_write(%(txn_id)s, %(table_key)s)

-- end_write --
-- Record that a transaction no longer writes files.
select dl_end_write(%(txn_id)s)

-- all_paths --
-- The paths of all files that the log of a table names, and their deletion vectors.
select path, deletion_vector from dl_add_files where table_key = %(table_key)s
union select path, null from dl_cdc_files where table_key = %(table_key)s

-- forget_writes --
-- Delete the records of all writers of a table, because its files are deleted.
select dl_forget_writes(%(table_key)s)

-- lock_mirror --
-- Let one publisher at a time publish a table. The lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended(current_schema() || %(kind)s, %(table_key)s))

-- try_lock_mirror --
-- Take the same lock, or return false without waiting.
select pg_try_advisory_xact_lock(hashtextextended(current_schema() || %(kind)s, %(table_key)s)) as locked

-- lock_checkpoint --
-- Let one process at a time write checkpoints of a table. The lock ends with the session.
select pg_advisory_lock(hashtextextended(current_schema() || %(kind)s, %(table_key)s))

-- try_lock_checkpoint --
-- Take the same lock, or return false without waiting.
select pg_try_advisory_lock(hashtextextended(current_schema() || %(kind)s, %(table_key)s))

-- mirror_tables --
-- Every table with the values that publishing needs.
select table_key, table_id, namespace || '.' || name as name, location, properties, current_version
from dl_tables where dropped_at is null and (%(table_key)s::int is null or table_key = %(table_key)s)
order by table_key

-- mirror_waiting --
-- The tables with unpublished versions, and the seconds until the next attempt on the first of these versions.
select t.table_key, t.table_id, t.namespace || '.' || t.name as name, t.location, t.properties, t.current_version,
    first.retry_count > 0 as tried,
    case when first.retry_count = 0 or first.last_attempt_at is null then 0
        else extract(epoch from first.last_attempt_at - clock_timestamp())::float8
            + least(%(longest)s, %(base)s * power(2, first.retry_count - 1)) end as seconds
from dl_tables t
cross join lateral (select m.retry_count, m.last_attempt_at from dl_mirror_status m
    where m.table_key = t.table_key and m.status <> 'SUCCESS' order by m.version limit 1) first
where t.dropped_at is null
order by t.table_key

-- mirror_open --
-- The unpublished versions of a table, in order.
select m.version, m.retry_count, v.version is not null and (m.version = 0 or exists (select from dl_mirror_status p
        where p.table_key = m.table_key and p.version = m.version - 1)) as has_predecessor,
    m.retry_count = 0 or m.last_attempt_at is null or m.last_attempt_at
    + make_interval(secs => least(%(longest)s, %(base)s * power(2, m.retry_count - 1))) <= clock_timestamp() as due,
    coalesce((select max(c.version) from dl_mirror_status c
        where c.table_key = m.table_key and c.checkpoint_written), -1) as checkpoint
from dl_mirror_status m
left join dl_table_versions v on v.table_key = m.table_key and v.version = m.version
where m.table_key = %(table_key)s and m.status <> 'SUCCESS' order by m.version limit %(limit)s

-- mirror_head --
-- The current version of a table, dropped or not.
select current_version from dl_tables where table_key = %(table_key)s

-- mirror_give_up --
-- Mark all versions of a table as published, because the table is dropped.
select dl_mirror_give_up(%(table_key)s)

-- mirror_extend_timeout --
-- Extend the timeouts of the transaction, so that it survives the writing of a large file. A timer that is running uses a new
-- limit only after it was set to 0.
select set_config(name, '0', true), set_config(name, least(setting::bigint + %(milliseconds)s, 2147483647)::text, true)
from pg_settings where name in ('idle_in_transaction_session_timeout', 'transaction_timeout') and setting <> '0'

-- mirror_succeeded --
-- Mark versions as published.
select dl_mirror_succeeded(%(table_key)s, %(versions)s)

-- mirror_failed --
-- Record a failed attempt. The last attempt changes the status to FAILED.
select status, was from dl_mirror_failed(%(table_key)s, %(version)s, %(error)s, %(final)s, %(attempts)s)

-- mirror_reopen --
-- Mark versions as unpublished, and return those that were published.
select version from dl_mirror_reopen(%(table_key)s, %(versions)s) as version

-- mirror_retry --
-- Make all unpublished versions of a table due now, with no failed attempts.
select dl_mirror_retry(%(table_key)s)

-- mirror_checkpoint --
-- Record that a version has a checkpoint, or the error if it could not be written.
select dl_mirror_checkpoint(%(table_key)s, %(version)s, %(error)s)

-- mirror_transaction --
-- The transaction that committed a version.
select txn_id from dl_table_versions where table_key = %(table_key)s and version = %(version)s

-- mirror_progress --
-- How far a table is published and checkpointed. No row for a dropped table.
select t.current_version,
    coalesce((select m.version - 1 from dl_mirror_status m where m.table_key = t.table_key and m.status <> 'SUCCESS'
        order by m.version limit 1), t.current_version) as published,
    coalesce((select max(m.version) from dl_mirror_status m
        where m.table_key = t.table_key and m.checkpoint_written), -1) as checkpoint
from dl_tables t where t.table_key = %(table_key)s and t.dropped_at is null

-- mirror_status --
-- Per table, or for one table: how far it is published, the age of its oldest unpublished version, and its last error.
select t.table_key, t.table_id, t.namespace || '.' || t.name as name, t.location, t.properties, t.current_version,
    coalesce(o.version - 1, t.current_version) as published, o.version as open_version, o.status, o.retry_count,
    coalesce(o.error_message, (select m.error_message from dl_mirror_status m where m.table_key = t.table_key
        and m.version > c.checkpoint and m.error_message is not null order by m.version desc limit 1)) as error_message,
    o.last_attempt_at, c.checkpoint, extract(epoch from clock_timestamp() - v.committed_at)::float8 as lag_seconds
from dl_tables t
cross join lateral (select coalesce(max(m.version), -1) as checkpoint from dl_mirror_status m
    where m.table_key = t.table_key and m.checkpoint_written) c
left join lateral (select m.version, m.status, m.retry_count, m.error_message, m.last_attempt_at
    from dl_mirror_status m where m.table_key = t.table_key and m.status <> 'SUCCESS' order by m.version limit 1) o on true
left join dl_table_versions v on v.table_key = t.table_key and v.version = o.version
where t.dropped_at is null and (%(table_key)s::int is null or t.table_key = %(table_key)s)
order by t.namespace, t.name

-- mirror_cleaned --
-- Record that the commit files before a version are deleted.
select dl_mirror_cleaned(%(table_key)s, %(version)s)

-- mirror_first_retained --
-- The first version whose commit file was not deleted.
select coalesce(max(version) + 1, 0) as version from dl_mirror_status
where table_key = %(table_key)s and status = 'SUCCESS' and not json_written

-- mirror_notify --
-- Wake the reconcilers that wait.
select pg_notify('deltasql_mirror', %(table_key)s::text)

-- mirror_listen --
-- Wait for notifications of commits.
listen deltasql_mirror

-- logged_versions --
-- The commits of some versions, each with the tables of its transaction.
select v.version, v.commit_id, v.committed_at, v.commit_info, v.in_commit_timestamp, v.num_adds, v.num_removes,
    v.has_metadata, v.has_protocol, v.has_txn, v.has_domain, t.tables
from dl_table_versions v left join dl_transactions t using (txn_id)
where v.table_key = %(table_key)s and v.version = any(%(versions)s) order by v.version

-- logged_adds --
-- The files that commits added, in their order.
select commit_id, path, size, modification_time, partition_values, data_change, stats, tags, deletion_vector,
    base_row_id, default_row_commit_version, clustering_provider, extra
from dl_add_files where table_key = %(table_key)s and commit_id = any(%(commits)s) order by commit_id, ord

-- logged_removes --
-- The files that commits removed, in their order. Superseded files are not published.
select commit_id, path, deletion_timestamp, data_change, extended_file_metadata, partition_values, size, stats, tags,
    deletion_vector, base_row_id, default_row_commit_version, extra
from dl_remove_files where table_key = %(table_key)s and commit_id = any(%(commits)s) and not superseded
order by commit_id, ord

-- logged_cdc --
-- The change data files of commits, in their order.
select commit_id, path, size, partition_values, tags, extra
from dl_cdc_files where table_key = %(table_key)s and commit_id = any(%(commits)s) order by commit_id, ord

-- logged_metadata --
-- The metadata that versions set.
select version, metadata_id, name, description, format_provider, format_options, schema_string, partition_columns,
    configuration, created_time, extra as metadata_extra
from dl_metadata_updates where table_key = %(table_key)s and version = any(%(versions)s)

-- logged_protocols --
-- The protocols that versions set.
select version, min_reader_version, min_writer_version, reader_features, writer_features, extra as protocol_extra
from dl_protocol_updates where table_key = %(table_key)s and version = any(%(versions)s)

-- logged_txns --
-- The application transactions of versions.
select version, app_id, txn_version, last_updated, extra
from dl_txn_actions where table_key = %(table_key)s and version = any(%(versions)s)

-- logged_domains --
-- The domain metadata of versions.
select version, domain, configuration, removed, extra
from dl_domain_metadata where table_key = %(table_key)s and version = any(%(versions)s)

-- arrow_tombstones --
-- The files that were removed up to a version and after a time, each once. A file that was added again is left out; only a
-- path with a path_gen can be added again.
select t.path, t.deletion_timestamp, t.extended_file_metadata, t.partition_values, t.size, t.deletion_vector,
    t.base_row_id, t.default_row_commit_version
from (select distinct on (r.path, r.deletion_vector) r.*
    from dl_remove_files r
    join dl_table_versions w on w.table_key = {table_key} and w.commit_id = r.commit_id and w.version <= {version}
    where r.table_key = {table_key} and not r.superseded and r.deletion_timestamp > {after}
    order by r.path, r.deletion_vector, w.version desc) t
where not exists (select from dl_add_files a
    join dl_table_versions v on v.table_key = {table_key} and v.commit_id = a.commit_id and v.version <= {version}
    where a.table_key = {table_key} and a.path_gen is not null and a.path = t.path
      and a.deletion_vector is not distinct from t.deletion_vector
      and not exists (select from dl_remove_files r
        join dl_table_versions w on w.table_key = {table_key} and w.commit_id = r.commit_id and w.version <= {version}
        where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord))

-- txns_at --
-- The latest transaction of each application up to a version.
select distinct on (app_id) version, app_id, txn_version, last_updated, extra from dl_txn_actions
where table_key = %(table_key)s and version <= %(version)s order by app_id, version desc

-- domains_at --
-- The latest metadata of each domain up to a version, removed ones included.
select distinct on (domain) version, domain, configuration, removed, extra from dl_domain_metadata
where table_key = %(table_key)s and version <= %(version)s order by domain, version desc

-- manifest_last --
-- The manifest that was published last.
select manifest, snapshot from dl_last_manifest()

-- known_transactions --
-- Those of some transactions that this database has.
select txn_id from dl_transactions where txn_id::text = any (%(txn_ids)s::text[])

-- manifest_open --
-- The next transactions without a manifest, with their tables and whether these are published.
select t.txn_id, t.committed_at, t.author, t.message, d.table_id, d.namespace || '.' || d.name as name, d.location,
    v.version, m.status = 'SUCCESS' as published
from (select txn_id, committed_at, author, message from dl_transactions where manifest is null and tables is not null
      order by committed_at, txn_id limit %(limit)s) t
join dl_table_versions v on v.txn_id = t.txn_id
join dl_tables d on d.table_key = v.table_key
left join dl_mirror_status m on m.table_key = v.table_key and m.version = v.version
order by t.committed_at, t.txn_id, name

-- manifest_written --
-- Record the manifest of a transaction.
select dl_manifest_written(%(txn_id)s, %(manifest)s, %(snapshot)s) as written

-- role --
-- Whether a role owns the log. No row if there is no such role.
select pg_has_role(r.oid, (select relowner from pg_class where oid = 'dl_tables'::regclass), 'member') as owns
from pg_roles r where r.rolname = %(role)s

-- is_member --
-- Whether a role is a member of another one.
select pg_has_role(%(role)s, %(group)s, 'member') as is_member

-- grant --
-- Confine a role, and give it a privilege in a namespace.
with grantee as (insert into dl_grantees (role, role_id) values (%(role)s::text, (select oid from pg_roles where rolname = %(role)s::text))
                 on conflict (role) do update set role_id = excluded.role_id)
insert into dl_grants (role, namespace, privilege) values (%(role)s::text, %(namespace)s, %(privilege)s)
on conflict do nothing returning role

-- revoke --
-- Take a privilege from a role. Returns no row if it did not have it.
delete from dl_grants where role = %(role)s and namespace = %(namespace)s and privilege = %(privilege)s returning role

-- grants --
-- All privileges, and the confined roles that have none.
select r.role, g.namespace, g.privilege, exists (select from pg_roles p where p.rolname = r.role) as role_exists
from dl_grantees r left join dl_grants g using (role)
order by r.role, g.namespace, g.privilege

-- allowed_roots --
-- The locations below which tables may be created.
select allowed_roots from dl_lake

-- allow_roots --
-- Set the locations below which tables may be created.
update dl_lake set allowed_roots = %(roots)s

-- is_confined --
-- Whether this account sees only the namespaces that it was granted.
select dl_is_confined() as is_confined

-- require_in --
-- Raise an error if this account lacks a privilege in a namespace.
select dl_require_in(%(namespace)s, %(privilege)s)

-- table_exists --
-- Whether a table exists, even if this account may not read it.
select dl_table_exists(%(table_id)s) as exists

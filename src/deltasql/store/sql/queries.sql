-- identity --
-- The cluster and the database in it.
select (select system_identifier from pg_control_system()), current_database()

-- backend --
-- Who serves this connection: names it exactly, should its last reply get lost.
select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()

-- backend_gone --
-- End a backend whose client lost it; no row once it is gone.
select pg_terminate_backend(pid) from pg_stat_activity where pid = %(pid)s and backend_start = %(started)s

-- has_migrations --
-- Does this database hold deltasql tables? The schema may not exist yet.
-- Asked of the catalogue as a table: a look-up by name may be answered from a cache that another session made stale.
select exists (select from pg_tables where schemaname = %(schema)s and tablename = 'dl_migrations') as found

-- migration_level --
-- The last migration applied.
select coalesce(max(number), 0) as level from dl_migrations

-- lock_migrations --
-- One process migrates at a time.
select pg_advisory_xact_lock(%(lock)s)

-- create_migrations --
-- Where the migrations that were applied are recorded.
create table dl_migrations (
    number     int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
)

-- record_migration --
-- In the transaction that applies it.
insert into dl_migrations (number, name) values (%(number)s, %(name)s)

-- commit_ids --
-- The first of 64 fresh commit ids.
select nextval('dl_commit_ids')

-- commit --
-- The whole commit: see dl_commit.
select table_key, version, committed_at from dl_commit(%(txn_id)s, %(author)s, %(message)s, %(tables)s)

-- find_files --
-- The rows that hold these paths.
select path, path_gen, commit_id, ord, removed_by, deletion_vector from dl_find_files(%(table_key)s, %(paths)s)

-- copy_places --
-- Which files of a commit lie in which partition.
copy dl_partition_files (table_key, commit_id, partition_key, ords) from stdin

-- heads --
-- Current versions, without a lock.
select table_key, current_version from dl_tables
where table_key = any(%(keys)s) and dropped_at is null order by table_key

-- lock_heads --
-- Current versions, locked in key order so that overlapping transactions cannot deadlock.
select table_key, current_version from dl_tables
where table_key = any(%(keys)s) and dropped_at is null order by table_key for update

-- timeouts --
-- The limits of one transaction, kept by the server.
select set_config('statement_timeout', %(statement)s, true), set_config('lock_timeout', %(lock)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement)s, true)

-- session_timeout --
-- How long any transaction of a session may take (PostgreSQL 17 and later).
select set_config('transaction_timeout', %(transaction)s, false)

-- transaction_timeout --
-- The same for the transaction as a whole (PostgreSQL 17 and later).
select set_config('transaction_timeout', %(transaction)s, true)

-- committed_here --
-- Which of these transactions have committed to a table.
select txn_id from dl_table_versions where table_key = %(table_key)s and txn_id = any(%(txn_ids)s)

-- lock_locations --
-- One table is created at a time, so that the check for overlapping locations holds.
select pg_advisory_xact_lock(%(lock)s)

-- winners --
-- Every version after the one that was read.
select v.version, v.operation, v.committer, v.txn_id, v.is_blind_append, v.has_metadata, v.has_protocol,
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
-- The files that winners added with new rows.
select v.version, a.path, a.partition_values, a.stats, a.data_change
from dl_table_versions v
join dl_add_files a on a.table_key = v.table_key and a.commit_id = v.commit_id
where v.table_key = %(table_key)s and v.version > %(read)s and a.data_change

-- winner_removes --
-- The files that winners removed.
select v.version, r.path, r.data_change
from dl_table_versions v
join dl_remove_files r on r.table_key = v.table_key and r.commit_id = v.commit_id
where v.table_key = %(table_key)s and v.version > %(read)s and not r.superseded

-- version_of_commit --
-- The version that a commit id became.
select version, operation, committer, txn_id from dl_table_versions where commit_id = %(commit_id)s

-- committed --
-- What a transaction wrote, if it landed.
select t.table_id, v.table_key, v.version, v.committed_at
from dl_table_versions v join dl_tables t using (table_key)
where v.txn_id = %(txn_id)s

-- insert_table --
-- Register a table; its version 0 follows in the same transaction.
insert into dl_tables (table_id, namespace, name, location) values (%(table_id)s, %(namespace)s, %(name)s, %(location)s)
returning table_key

-- overlapping --
-- A live table whose files would mix with those of a new location.
select namespace || '.' || name as name, location from dl_tables
where dropped_at is null and (location = %(location)s or starts_with(location, %(location)s || '/')
    or starts_with(%(location)s, location || '/'))
limit 1

-- location_used --
-- Has any table, dropped ones included, lived here?
select exists (select from dl_tables where location = %(location)s)

-- head --
-- A table's head alone: the rest of its state is known as long as shape_version is the same.
select current_version, shape_version, num_files from dl_tables
where table_id = %(table_id)s and dropped_at is null

-- tables --
-- All tables that are not dropped.
select t.table_key, t.table_id, t.namespace, t.name, t.location, t.current_version, t.num_files, t.created_at,
       t.committed_at, t.properties
from dl_tables t where t.dropped_at is null order by t.namespace, t.name

-- table_names --
-- For suggestions.
select namespace || '.' || name from dl_tables where dropped_at is null

-- state --
-- A table's head with its current metadata and protocol, found by name or id in one round trip.
select t.table_key, t.table_id, t.namespace, t.name as table_name, t.location, t.current_version, t.num_files,
       t.created_at, t.committed_at, m.metadata_id, m.name, m.description, m.format_provider, m.format_options, m.schema_string,
       m.partition_columns, m.configuration, m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.extra as protocol_extra,
       t.shape_version
from dl_tables t
left join lateral (select * from dl_metadata_updates x where x.table_key = t.table_key
    and x.version <= coalesce(%(version)s, t.current_version) order by x.version desc limit 1) m on true
left join lateral (select * from dl_protocol_updates x where x.table_key = t.table_key
    and x.version <= coalesce(%(version)s, t.current_version) order by x.version desc limit 1) p on true
where t.dropped_at is null
  and (t.table_id = %(table_id)s or (t.namespace = %(namespace)s and t.name = %(name)s))

-- history --
-- Commits, newest first.
select version, committed_at, operation, operation_parameters, committer, txn_id, read_version, isolation_level,
       is_blind_append, num_adds, num_removes, commit_info
from dl_table_versions where table_key = %(table_key)s order by version desc limit %(limit)s

-- version_at --
-- The last version committed at or before a moment, and the span that the table covers.
select (select version from dl_table_versions where table_key = %(table_key)s and committed_at <= %(at)s
        order by version desc limit 1) as version,
       (select committed_at from dl_table_versions where table_key = %(table_key)s order by version limit 1) as first,
       (select committed_at from dl_table_versions where table_key = %(table_key)s
        order by version desc limit 1) as last

-- versions_at --
-- The versions of all tables at a moment.
select t.table_id, t.namespace, t.name, (select v.version from dl_table_versions v
    where v.table_key = t.table_key and v.committed_at <= %(at)s order by v.version desc limit 1) as version
from dl_tables t where t.dropped_at is null order by t.namespace, t.name

-- partitions --
-- The distinct partitions of a table.
select partition_key, partition_values from dl_partitions where table_key = %(table_key)s

-- drop_table --
-- Take a table out of the catalogue; its log stays.
update dl_tables set dropped_at = clock_timestamp() where table_key = %(table_key)s and dropped_at is null

-- txn_version --
-- How far an application has come.
select txn_version from dl_txn_actions where table_key = %(table_key)s and app_id = %(app_id)s
order by version desc limit 1

-- arrow_head --
-- The version that the rest of this read-only transaction sees.
select current_version, num_files, shape_version from dl_tables where table_key = {table_key}

-- arrow_identity --
-- Which transaction wrote a version: a cache of another history is thrown away.
select txn_id::text from dl_table_versions where table_key = {table_key} and version = {version}

-- arrow_adds --
-- Every file that was ever added. The measure that a snapshot is held against.
select {columns} from dl_add_files a where a.table_key = {table_key}

-- arrow_live --
-- The files that are live now.
select {columns} from dl_add_files a
where a.table_key = {table_key} and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_live_in --
-- The files that are live now in some partitions.
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
-- The live files among some: which of them, by commit and place.
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
-- The files added after a version and still live.
select {columns} from dl_table_versions v
join dl_add_files a on a.table_key = v.table_key and a.commit_id = v.commit_id
where v.table_key = {table_key} and v.version > {version} and not exists (select from dl_remove_files r
    where r.table_key = {table_key} and r.add_commit_id = a.commit_id and r.add_ord = a.ord)

-- arrow_removed_after --
-- The files removed after a version.
select r.add_commit_id as commit_id, r.add_ord as ord from dl_table_versions v
join dl_remove_files r on r.table_key = v.table_key and r.commit_id = v.commit_id
where v.table_key = {table_key} and v.version > {version} and r.add_commit_id is not null

-- The live files of a table
select path, size, partition_values
from deltasql.dl_files
where namespace = 'shop' and name = 'orders' and removed_version is null
order by path;

-- The live files of a table at version 7
select path, size, partition_values
from deltasql.dl_files
where namespace = 'shop' and name = 'orders'
  and added_version <= 7 and (removed_version is null or removed_version > 7)
order by path;

-- The files that a version added and removed
select case when added_version = 7 then 'added' else 'removed' end as change, path, size
from deltasql.dl_files
where namespace = 'shop' and name = 'orders' and (added_version = 7 or removed_version = 7)
order by change, path;

-- Who committed what in the last 24 hours
select committed_at, committer, namespace || '.' || name as "table", version, operation, num_adds, num_removes
from deltasql.dl_history
where committed_at > now() - interval '24 hours'
order by committed_at desc;

-- The changes of the latest transaction, in all its tables
select namespace || '.' || name as "table", version, operation, num_adds, num_removes
from deltasql.dl_history
where txn_id = (select txn_id from deltasql.dl_transactions order by committed_at desc limit 1)
order by 1;

-- The size of each table
select namespace || '.' || name as "table", count(*) as files, pg_size_pretty(sum(size)) as size,
       pg_size_pretty(avg(size)) as average_file
from deltasql.dl_files
where removed_version is null
group by namespace, name
order by sum(size) desc;

-- The tables with the most small files, which OPTIMIZE would merge
select namespace || '.' || name as "table", count(*) as small_files, pg_size_pretty(sum(size)) as size
from deltasql.dl_files
where removed_version is null and size < 16 * 1024 * 1024
group by namespace, name
having count(*) > 1
order by count(*) desc
limit 20;

-- The files and bytes of each partition of a table
select partition_values, count(*) as files, sum(size) as bytes
from deltasql.dl_files
where namespace = 'shop' and name = 'orders' and removed_version is null
group by partition_values
order by partition_values;

-- Unpublished versions, how long they have waited, and why
select t.namespace || '.' || t.name as "table", m.version, m.status, now() - v.committed_at as lag,
       m.retry_count, m.error_message
from deltasql.dl_mirror_status m
join deltasql.dl_tables t using (table_key)
join deltasql.dl_table_versions v using (table_key, version)
where m.status <> 'SUCCESS' and t.dropped_at is null
order by lag desc;

-- How far each table is published
select t.namespace || '.' || t.name as "table", t.current_version,
       coalesce(min(m.version) filter (where m.status <> 'SUCCESS') - 1, t.current_version) as published_version,
       max(m.version) filter (where m.checkpoint_written) as checkpoint_version
from deltasql.dl_tables t
left join deltasql.dl_mirror_status m using (table_key)
where t.dropped_at is null
group by t.table_key
order by 1;

-- Multi-table transactions whose manifest is not published yet
select txn_id, committed_at, author, tables
from deltasql.dl_transactions
where manifest is null
order by committed_at;

-- The versions that changed the schema or the properties of a table
select m.version, v.committed_at, v.operation, m.schema_string, m.configuration
from deltasql.dl_metadata_updates m
join deltasql.dl_table_versions v using (table_key, version)
join deltasql.dl_tables t using (table_key)
where t.namespace = 'shop' and t.name = 'orders'
order by m.version;

-- The progress of each streaming application
select distinct on (t.table_key, x.app_id) t.namespace || '.' || t.name as "table", x.app_id, x.txn_version, x.version
from deltasql.dl_txn_actions x
join deltasql.dl_tables t using (table_key)
order by t.table_key, x.app_id, x.version desc;

-- Transactions that are writing files now
select w.txn_id, t.namespace || '.' || t.name as "table", now() - w.started_at as running_for
from deltasql.dl_writes w
join deltasql.dl_tables t using (table_key)
order by w.started_at;

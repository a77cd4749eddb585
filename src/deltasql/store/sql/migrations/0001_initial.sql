-- The schema of deltasql: the transaction logs of all tables. Later changes are further numbered files in this directory.
--
-- A commit first inserts its file rows under a commit_id, before any table is locked. dl_commit then locks the tables, gives each
-- of them its next version, and links that version to the commit_id in dl_table_versions. The rows of a commit become visible
-- when its database transaction commits. File rows are never updated or deleted.
--
-- Only the owner of the schema writes to its tables. All other accounts call functions, which run as the owner (security definer)
-- and keep the rules of the log: see "Access". The functions keep this search path, with temporary objects last, so that nobody
-- can put objects of their own before those of the schema.
select set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

create table dl_migrations (
    number     int primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
);

comment on table dl_migrations is 'One row per migration that was applied to this schema.';
comment on column dl_migrations.number is 'The number of the migration, from 1 without gaps. The highest number is the schema level.';
comment on column dl_migrations.name is 'The name of the migration.';
comment on column dl_migrations.applied_at is 'The time when the migration was applied.';

create table dl_lake (
    lake_id    uuid not null default gen_random_uuid(),
    place      text not null,
    directory  text,
    allowed_roots text[],
    created_at timestamptz not null default clock_timestamp(),
    is_only    boolean primary key default true check (is_only)
);

comment on table dl_lake is 'One row: the identity of the lake.';
comment on column dl_lake.lake_id is 'The id of the lake. The file _deltasql_owner.json at the location of each table has it too.';
comment on column dl_lake.place is 'The server, the database and the schema in which the lake lives (dl_place). A copy of the database is in another place.';
comment on column dl_lake.directory is 'The directory of an embedded server.';
comment on column dl_lake.allowed_roots is 'The locations below which tables may be created. It is null if every location is allowed.';
comment on column dl_lake.created_at is 'The time when the lake was created.';
comment on column dl_lake.is_only is 'Always true, so that there is one row.';

create function dl_place() returns text language sql stable set search_path from current as $$
    select concat_ws('/', (select system_identifier from pg_control_system()),
        (select oid from pg_database where datname = current_database()), 'dl_lake'::regclass::oid)
$$;

comment on function dl_place is 'Return what identifies the server, the database and this schema.';

insert into dl_lake (place) values (dl_place());

-- Each client takes 64 ids at a time. They begin with the time, so that no id is drawn again after the database was restored from
-- a backup; the sequence tells apart clients that draw in the same microsecond.
create sequence dl_commit_ids;

create function dl_draw_commit_ids() returns bigint language sql security definer set search_path from current as $$
    select ((extract(epoch from clock_timestamp()) - 1577836800) * 1000000)::bigint * 4096 + (nextval('dl_commit_ids') % 64) * 64
$$;

comment on function dl_draw_commit_ids is 'Return the first of 64 commit ids that were never drawn before.';


-- Tables, transactions and versions

create table dl_tables (
    table_key       int generated always as identity,
    table_id        uuid not null,
    namespace       text not null,
    name            text not null,
    location        text not null,
    current_version bigint not null default -1,
    shape_version   bigint not null default -1,
    head_commit_id  bigint not null default -1,
    shape_commit_id bigint not null default -1,
    num_files       bigint not null default 0,
    committed_at    timestamptz,
    created_at      timestamptz not null default clock_timestamp(),
    dropped_at      timestamptz,
    properties      jsonb not null default '{}',
    constraint dl_tables_pkey primary key (table_key),
    constraint dl_tables_table_id_key unique (table_id),
    constraint dl_tables_version_check check (current_version >= -1)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create unique index dl_tables_name_key on dl_tables (lower(namespace), lower(name)) where dropped_at is null;
create unique index dl_tables_location_key on dl_tables (location) where dropped_at is null;

comment on table dl_tables is 'One row per table. Every commit locks the rows of its tables and updates them.';
comment on column dl_tables.table_key is 'The internal key of the table, used by all other dl_* tables.';
comment on column dl_tables.table_id is 'The public id of the table. It stays the same for the life of the table.';
comment on column dl_tables.namespace is 'The first part of the table name, for example shop in shop.orders.';
comment on column dl_tables.name is 'The second part of the table name, for example orders in shop.orders.';
comment on column dl_tables.location is 'The directory that holds the data files and _delta_log.';
comment on column dl_tables.current_version is 'The latest committed version. It is -1 until version 0 is committed.';
comment on column dl_tables.shape_version is 'The last version that changed the metadata or the protocol.';
comment on column dl_tables.head_commit_id is 'The commit of the current version. Unlike the version, it is never used again after the database was restored from a backup.';
comment on column dl_tables.shape_commit_id is 'The commit of shape_version.';
comment on column dl_tables.num_files is 'The number of live files at the current version.';
comment on column dl_tables.committed_at is 'The time of the latest commit.';
comment on column dl_tables.created_at is 'The time when the table was created.';
comment on column dl_tables.dropped_at is 'The time when the table was dropped. It is null for a table that exists. The log of a dropped table is kept.';
comment on column dl_tables.properties is 'The table properties at the current version, a copy of the latest configuration in dl_metadata_updates.';

create table dl_transactions (
    txn_id       uuid not null,
    committed_at timestamptz not null,
    committer    text not null,
    author       text,
    message      text,
    num_tables   int not null,
    tables       text,
    manifest     bigint,
    snapshot     text,
    constraint dl_transactions_pkey primary key (txn_id)
);

create unique index dl_transactions_manifest on dl_transactions (manifest) where manifest is not null;
create index dl_transactions_open on dl_transactions (committed_at) where manifest is null and tables is not null;
create index dl_transactions_committed_at on dl_transactions (committed_at);

comment on table dl_transactions is 'One row per transaction that committed to more than one table. The same txn_id is in dl_table_versions for each of its tables; a transaction on one table is only there.';
comment on column dl_transactions.txn_id is 'The id of the transaction.';
comment on column dl_transactions.committed_at is 'The time of the commit, the same in all its tables.';
comment on column dl_transactions.committer is 'The account that committed the transaction (session_user).';
comment on column dl_transactions.author is 'The author given by the caller.';
comment on column dl_transactions.message is 'The message given by the caller.';
comment on column dl_transactions.num_tables is 'The number of tables that got a new version.';
comment on column dl_transactions.tables is 'The new version of each table by table name, as JSON.';
comment on column dl_transactions.manifest is 'The number of the published manifest. It is null until the manifest is published.';
comment on column dl_transactions.snapshot is 'The consistent versions of all tables that the manifest lists, as JSON. Roles read it with dl_last_manifest.';

create table dl_table_versions (
    table_key        int not null,
    version          bigint not null,
    commit_id        bigint not null,
    txn_id           uuid not null,
    committed_at     timestamptz not null,
    committer        text not null,
    author           text,
    operation        text not null,
    operation_parameters text,
    read_version     bigint,
    isolation_level  text,
    is_blind_append  boolean not null,
    data_change      boolean not null,
    has_metadata     boolean not null,
    has_protocol     boolean not null,
    has_txn          boolean not null,
    has_domain       boolean not null,
    num_adds         int not null,
    num_removes      int not null,
    commit_info      text not null,
    in_commit_timestamp boolean not null default false,
    constraint dl_table_versions_pkey primary key (table_key, version),
    constraint dl_table_versions_commit_id_key unique (commit_id)
);

create index dl_table_versions_txn_id on dl_table_versions (txn_id);

comment on table dl_table_versions is 'One row per version of a table.';
comment on column dl_table_versions.table_key is 'The table (dl_tables.table_key).';
comment on column dl_table_versions.version is 'The version number, from 0 without gaps.';
comment on column dl_table_versions.commit_id is 'The id that the file rows of this version carry in dl_add_files, dl_remove_files and dl_cdc_files.';
comment on column dl_table_versions.txn_id is 'The transaction that committed the version.';
comment on column dl_table_versions.committed_at is 'The time of the commit. Within a table, later versions have later times.';
comment on column dl_table_versions.committer is 'The account that committed the version (session_user). Nobody can give another one.';
comment on column dl_table_versions.author is 'The author given by the caller.';
comment on column dl_table_versions.operation is 'The name of the operation, for example WRITE, MERGE or OPTIMIZE.';
comment on column dl_table_versions.operation_parameters is 'The parameters of the operation, as JSON.';
comment on column dl_table_versions.read_version is 'The version that the transaction read before it committed.';
comment on column dl_table_versions.isolation_level is 'The isolation level that the commit was checked with.';
comment on column dl_table_versions.is_blind_append is 'Whether the commit only added files without reading the table.';
comment on column dl_table_versions.data_change is 'Whether the commit changed rows. It is false when rows were only rearranged into other files.';
comment on column dl_table_versions.has_metadata is 'Whether the version has a row in dl_metadata_updates.';
comment on column dl_table_versions.has_protocol is 'Whether the version has a row in dl_protocol_updates.';
comment on column dl_table_versions.has_txn is 'Whether the version has rows in dl_txn_actions.';
comment on column dl_table_versions.has_domain is 'Whether the version has rows in dl_domain_metadata.';
comment on column dl_table_versions.num_adds is 'The number of files that the version added.';
comment on column dl_table_versions.num_removes is 'The number of files that the version removed.';
comment on column dl_table_versions.commit_info is 'The commitInfo action of the version, as JSON.';
comment on column dl_table_versions.in_commit_timestamp is 'Whether the published commit contains its time. Such times are whole milliseconds and increase with every version.';


-- Files

-- A file whose name contains the token of the transaction that adds it is new by construction and has no path_gen. Any other
-- path may already be in the table, or may be added again later: path_gen counts how often the path was added.
create table dl_add_files (
    table_key         int not null,
    ord               int not null,
    commit_id         bigint not null,
    size              bigint not null,
    modification_time bigint not null,
    partition_key     bigint,
    data_change       boolean not null,
    path_gen          smallint,
    path              text collate "C" not null,
    partition_values  text not null,
    stats             text,
    tags              text,
    deletion_vector   text,
    base_row_id       bigint,
    default_row_commit_version bigint,
    clustering_provider text,
    extra             text,
    constraint dl_add_files_pkey primary key (table_key, commit_id, ord),
    constraint dl_add_files_size_check check (size >= 0)
) with (autovacuum_vacuum_insert_scale_factor = 0.05);

-- Finds a path in a table, at 8 bytes a file. Files that are new by construction are not in this index.
create unique index dl_add_files_path_key on dl_add_files
    (hashtextextended(path, (table_key::bigint << 16) | path_gen)) where path_gen is not null;

comment on table dl_add_files is 'One row per file that a commit added (Delta''s add action). A file is live until a row of dl_remove_files refers to it.';
comment on column dl_add_files.table_key is 'The table (dl_tables.table_key).';
comment on column dl_add_files.ord is 'The position of the file in its commit, from 0.';
comment on column dl_add_files.commit_id is 'The commit that added the file (dl_table_versions.commit_id).';
comment on column dl_add_files.size is 'The size of the file in bytes.';
comment on column dl_add_files.modification_time is 'The time when the file was written, in milliseconds since 1970-01-01 UTC.';
comment on column dl_add_files.partition_key is 'The partition of the file (dl_partitions.partition_key). It is null in a table without partition columns.';
comment on column dl_add_files.data_change is 'Whether the file brought new rows. It is false when rows were only rearranged.';
comment on column dl_add_files.path_gen is 'How often the path was added to the table before. It is null for a file whose name contains the id of the transaction that added it.';
comment on column dl_add_files.path is 'The path of the file, relative to the table location, or an absolute URI.';
comment on column dl_add_files.partition_values is 'The value of each partition column, as JSON in Delta''s text form.';
comment on column dl_add_files.stats is 'The statistics of the file (row count, minima, maxima, null counts), as JSON exactly as the writer gave it.';
comment on column dl_add_files.tags is 'The tags of the file, as JSON.';
comment on column dl_add_files.deletion_vector is 'The deletion vector that marks deleted rows of the file, as JSON.';
comment on column dl_add_files.base_row_id is 'Row tracking: the id of the first row of the file.';
comment on column dl_add_files.default_row_commit_version is 'Row tracking: the version that first added the rows of the file.';
comment on column dl_add_files.clustering_provider is 'The clustering implementation that wrote the file.';
comment on column dl_add_files.extra is 'Fields of the action that this release does not know, as JSON.';

create table dl_borrowed_files (
    table_key int not null,
    txn_id    uuid not null,
    constraint dl_borrowed_files_pkey primary key (table_key, txn_id)
);

comment on table dl_borrowed_files is 'One row per uncommitted transaction whose files another transaction added to a table, for example a retry that reused the files. The first transaction can no longer commit to the table, because its files would be in the table twice.';
comment on column dl_borrowed_files.table_key is 'The table (dl_tables.table_key).';
comment on column dl_borrowed_files.txn_id is 'The transaction that can no longer commit to the table.';

create table dl_remove_files (
    table_key          int not null,
    ord                int not null,
    commit_id          bigint not null,
    add_commit_id      bigint,
    add_ord            int,
    deletion_timestamp bigint,
    data_change        boolean not null,
    superseded         boolean not null default false,
    extended_file_metadata boolean,
    path               text collate "C" not null,
    partition_values   text,
    size               bigint,
    stats              text,
    tags               text,
    deletion_vector    text,
    base_row_id        bigint,
    default_row_commit_version bigint,
    extra              text,
    constraint dl_remove_files_pkey primary key (table_key, commit_id, ord),
    constraint dl_remove_files_add_key unique (table_key, add_commit_id, add_ord)
);

comment on table dl_remove_files is 'One row per file that a commit removed (Delta''s remove action). Each row of dl_add_files is removed at most once.';
comment on column dl_remove_files.table_key is 'The table (dl_tables.table_key).';
comment on column dl_remove_files.ord is 'The position of the file in its commit, from 0.';
comment on column dl_remove_files.commit_id is 'The commit that removed the file (dl_table_versions.commit_id).';
comment on column dl_remove_files.add_commit_id is 'The commit that added the file (dl_add_files.commit_id).';
comment on column dl_remove_files.add_ord is 'The position of the file in the commit that added it (dl_add_files.ord).';
comment on column dl_remove_files.deletion_timestamp is 'The time of the removal, in milliseconds since 1970-01-01 UTC.';
comment on column dl_remove_files.data_change is 'Whether the removal deleted rows. It is false when rows were only rearranged.';
comment on column dl_remove_files.superseded is 'Whether the same commit added the same path again. Such a row is internal and is not published.';
comment on column dl_remove_files.extended_file_metadata is 'Whether partition_values, size and tags are filled in.';
comment on column dl_remove_files.path is 'The path of the file, as in dl_add_files.';
comment on column dl_remove_files.partition_values is 'The value of each partition column, as JSON in Delta''s text form.';
comment on column dl_remove_files.size is 'The size of the file in bytes.';
comment on column dl_remove_files.stats is 'The statistics of the file, as JSON.';
comment on column dl_remove_files.tags is 'The tags of the file, as JSON.';
comment on column dl_remove_files.deletion_vector is 'The deletion vector that the removed file had, as JSON.';
comment on column dl_remove_files.base_row_id is 'Row tracking: the id of the first row of the file.';
comment on column dl_remove_files.default_row_commit_version is 'Row tracking: the version that first added the rows of the file.';
comment on column dl_remove_files.extra is 'Fields of the action that this release does not know, as JSON.';

create table dl_cdc_files (
    table_key        int not null,
    ord              int not null,
    commit_id        bigint not null,
    size             bigint not null,
    path             text collate "C" not null,
    partition_values text not null,
    tags             text,
    extra            text,
    constraint dl_cdc_files_pkey primary key (table_key, commit_id, ord)
);

comment on table dl_cdc_files is 'One row per change data file (Delta''s cdc action). Change data files hold the changed rows of a commit for the change data feed.';
comment on column dl_cdc_files.table_key is 'The table (dl_tables.table_key).';
comment on column dl_cdc_files.ord is 'The position of the file in its commit, from 0.';
comment on column dl_cdc_files.commit_id is 'The commit that the changes belong to (dl_table_versions.commit_id).';
comment on column dl_cdc_files.size is 'The size of the file in bytes.';
comment on column dl_cdc_files.path is 'The path of the file, relative to the table location.';
comment on column dl_cdc_files.partition_values is 'The value of each partition column, as JSON in Delta''s text form.';
comment on column dl_cdc_files.tags is 'The tags of the file, as JSON.';
comment on column dl_cdc_files.extra is 'Fields of the action that this release does not know, as JSON.';


-- Indexes on files, used to prune them

create table dl_partitions (
    table_key        int not null,
    partition_key    bigint not null,
    partition_values text not null,
    constraint dl_partitions_pkey primary key (table_key, partition_key)
);

comment on table dl_partitions is 'One row per distinct partition of a table. Predicates on partition columns are evaluated on these rows, and the files are then found by partition_key.';
comment on column dl_partitions.table_key is 'The table (dl_tables.table_key).';
comment on column dl_partitions.partition_key is 'A 63-bit hash of partition_values.';
comment on column dl_partitions.partition_values is 'The value of each partition column, as JSON in Delta''s text form.';

create table dl_partition_files (
    table_key     int not null,
    partition_key bigint not null,
    commit_id     bigint not null,
    ords          int[] not null,
    constraint dl_partition_files_pkey primary key (table_key, partition_key, commit_id)
);

comment on table dl_partition_files is 'One row per commit and partition: the files of the commit in that partition. An index entry per file would cost a large commit as much as the files themselves.';
comment on column dl_partition_files.table_key is 'The table (dl_tables.table_key).';
comment on column dl_partition_files.partition_key is 'The partition (dl_partitions.partition_key).';
comment on column dl_partition_files.commit_id is 'The commit that added the files (dl_add_files.commit_id).';
comment on column dl_partition_files.ords is 'The positions of the files in the commit (dl_add_files.ord).';

create table dl_column_bounds (
    table_key   int not null,
    commit_id   bigint not null,
    column_path text not null,
    bounds      bytea not null,
    constraint dl_column_bounds_pkey primary key (table_key, column_path, commit_id)
);
alter table dl_column_bounds alter column bounds set storage external;

comment on table dl_column_bounds is 'One row per column of a large commit: the minima and maxima of the column over all files of the commit, so that files are pruned without parsing JSON. The rows are written after the commit and are optional.';
comment on column dl_column_bounds.table_key is 'The table (dl_tables.table_key).';
comment on column dl_column_bounds.commit_id is 'The commit that added the files (dl_add_files.commit_id).';
comment on column dl_column_bounds.column_path is 'The path of the column, as a JSON array of names.';
comment on column dl_column_bounds.bounds is 'The bounds in file order, in Arrow''s IPC format.';


-- Metadata

create table dl_metadata_updates (
    table_key         int not null,
    version           bigint not null,
    metadata_id       text not null,
    name              text,
    description       text,
    format_provider   text not null,
    format_options    text not null,
    schema_string     text not null,
    partition_columns text[] not null,
    configuration     text not null,
    created_time      bigint,
    extra             text,
    constraint dl_metadata_updates_pkey primary key (table_key, version)
);

comment on table dl_metadata_updates is 'One row per version that changed the schema or the properties of a table (Delta''s metaData action). The row with the highest version applies.';
comment on column dl_metadata_updates.table_key is 'The table (dl_tables.table_key).';
comment on column dl_metadata_updates.version is 'The version that changed the metadata.';
comment on column dl_metadata_updates.metadata_id is 'The id field of the action.';
comment on column dl_metadata_updates.name is 'The name that the writer gave the table.';
comment on column dl_metadata_updates.description is 'The description that the writer gave the table.';
comment on column dl_metadata_updates.format_provider is 'The format of the data files: parquet.';
comment on column dl_metadata_updates.format_options is 'The options of the format, as JSON.';
comment on column dl_metadata_updates.schema_string is 'The schema of the table, as JSON in Delta''s form.';
comment on column dl_metadata_updates.partition_columns is 'The names of the partition columns.';
comment on column dl_metadata_updates.configuration is 'The properties of the table, as JSON.';
comment on column dl_metadata_updates.created_time is 'The time when the metadata was created, in milliseconds since 1970-01-01 UTC.';
comment on column dl_metadata_updates.extra is 'Fields of the action that this release does not know, as JSON.';

create table dl_protocol_updates (
    table_key          int not null,
    version            bigint not null,
    min_reader_version int not null,
    min_writer_version int not null,
    reader_features    text[],
    writer_features    text[],
    extra              text,
    constraint dl_protocol_updates_pkey primary key (table_key, version)
);

comment on table dl_protocol_updates is 'One row per version that changed the protocol of a table (Delta''s protocol action). The row with the highest version applies.';
comment on column dl_protocol_updates.table_key is 'The table (dl_tables.table_key).';
comment on column dl_protocol_updates.version is 'The version that changed the protocol.';
comment on column dl_protocol_updates.min_reader_version is 'The reader version that a client must support.';
comment on column dl_protocol_updates.min_writer_version is 'The writer version that a client must support.';
comment on column dl_protocol_updates.reader_features is 'The table features that a reader must support.';
comment on column dl_protocol_updates.writer_features is 'The table features that a writer must support.';
comment on column dl_protocol_updates.extra is 'Fields of the action that this release does not know, as JSON.';

create table dl_txn_actions (
    table_key    int not null,
    app_id       text not null,
    version      bigint not null,
    txn_version  bigint not null,
    last_updated bigint,
    extra        text,
    constraint dl_txn_actions_pkey primary key (table_key, app_id, version)
);

comment on table dl_txn_actions is 'One row per application transaction that a version recorded (Delta''s txn action), which makes writes of an application idempotent. The row with the highest version of each app_id applies.';
comment on column dl_txn_actions.table_key is 'The table (dl_tables.table_key).';
comment on column dl_txn_actions.app_id is 'The id of the application.';
comment on column dl_txn_actions.version is 'The version of the table that recorded the application transaction.';
comment on column dl_txn_actions.txn_version is 'The number that the application gave its transaction.';
comment on column dl_txn_actions.last_updated is 'The time that the application gave, in milliseconds since 1970-01-01 UTC.';
comment on column dl_txn_actions.extra is 'Fields of the action that this release does not know, as JSON.';

create table dl_domain_metadata (
    table_key     int not null,
    domain        text not null,
    version       bigint not null,
    configuration text not null,
    removed       boolean not null,
    extra         text,
    constraint dl_domain_metadata_pkey primary key (table_key, domain, version)
);

comment on table dl_domain_metadata is 'One row per change of a metadata domain (Delta''s domainMetadata action). The row with the highest version of each domain applies.';
comment on column dl_domain_metadata.table_key is 'The table (dl_tables.table_key).';
comment on column dl_domain_metadata.domain is 'The name of the domain.';
comment on column dl_domain_metadata.version is 'The version that changed the domain.';
comment on column dl_domain_metadata.configuration is 'The configuration of the domain, a text that only the domain interprets.';
comment on column dl_domain_metadata.removed is 'Whether the version removed the domain.';
comment on column dl_domain_metadata.extra is 'Fields of the action that this release does not know, as JSON.';


-- Publishing and writing

create table dl_mirror_status (
    table_key          int not null,
    version            bigint not null,
    status             text not null default 'PENDING',
    json_written       boolean not null default false,
    checkpoint_written boolean not null default false,
    error_message      text,
    retry_count        int not null default 0,
    last_attempt_at    timestamptz,
    constraint dl_mirror_status_pkey primary key (table_key, version),
    constraint dl_mirror_status_check check (status in ('PENDING', 'SUCCESS', 'FAILED'))
) with (fillfactor = 70);

create index dl_mirror_status_open on dl_mirror_status (table_key, version) where status <> 'SUCCESS';
create index dl_mirror_status_checkpoint on dl_mirror_status (table_key, version) where checkpoint_written;

comment on table dl_mirror_status is 'One row per version: the outbox of the mirror. The commit of a version inserts the row; publishing the version to _delta_log updates it.';
comment on column dl_mirror_status.table_key is 'The table (dl_tables.table_key).';
comment on column dl_mirror_status.version is 'The version to publish.';
comment on column dl_mirror_status.status is 'PENDING until the version is published, then SUCCESS. FAILED after mirror.max_retry_attempts failed attempts or a conflict; retries continue.';
comment on column dl_mirror_status.json_written is 'Whether the commit file is in _delta_log. It is set back to false when log retention deletes the file.';
comment on column dl_mirror_status.checkpoint_written is 'Whether a checkpoint of the version was written.';
comment on column dl_mirror_status.error_message is 'The error of the last failed attempt. It is null after a successful one.';
comment on column dl_mirror_status.retry_count is 'The number of failed attempts.';
comment on column dl_mirror_status.last_attempt_at is 'The time of the last attempt.';

-- Staged rows are part of the table as soon as their database transaction commits, so they may not be committed without a version.
-- dl_commit deletes the row that announces them; a transaction that leaves one cannot commit.
create table dl_staged (
    commit_id      bigint primary key,
    table_key      int not null,
    num_adds       int not null,
    num_removes    int not null,
    num_superseded int not null
);

comment on table dl_staged is 'One row per large commit that has staged its files and has no version yet. The rows are never visible to other transactions.';
comment on column dl_staged.commit_id is 'The commit (dl_add_files.commit_id).';
comment on column dl_staged.table_key is 'The table (dl_tables.table_key).';
comment on column dl_staged.num_adds is 'The number of files that the commit adds.';
comment on column dl_staged.num_removes is 'The number of files that the commit removes.';
comment on column dl_staged.num_superseded is 'The number of files that the commit adds again.';

create table dl_writes (
    txn_id     uuid not null,
    table_key  int not null references dl_tables,
    writer     text not null default session_user,
    started_at timestamptz not null default clock_timestamp(),
    primary key (txn_id, table_key)
);

comment on table dl_writes is 'One row per transaction that is writing files of a table. The names of the files contain the transaction id, and cleaning up orphaned files skips them.';
comment on column dl_writes.txn_id is 'The transaction that writes the files.';
comment on column dl_writes.table_key is 'The table (dl_tables.table_key).';
comment on column dl_writes.writer is 'The account of the transaction (session_user).';
comment on column dl_writes.started_at is 'The time when the transaction last started to write. An old row belongs to a writer that stopped without ending its transaction.';


-- Access
--
-- An account that is a member of a role in dl_grantees is confined: it reads and writes only in the namespaces that it was granted.
-- Any other account works on all namespaces. The rules look at session_user, which SET ROLE does not change. A confined account
-- stays confined when its last grant is revoked.

create table dl_grantees (
    role    text primary key,
    role_id oid not null
);

comment on table dl_grantees is 'One row per role that works only in the namespaces that it was granted.';
comment on column dl_grantees.role is 'The name of the role.';
comment on column dl_grantees.role_id is 'The id of the role (pg_roles.oid). A role that was renamed stays confined by its id, without the privileges of its old name.';

create table dl_grants (
    role      text not null references dl_grantees on delete cascade,
    namespace text not null,
    privilege text not null,
    constraint dl_grants_pkey primary key (role, namespace, privilege),
    constraint dl_grants_privilege_check check (privilege in ('read', 'write', 'purge'))
);

comment on table dl_grants is 'One row per privilege of a role in a namespace.';
comment on column dl_grants.role is 'The name of the role.';
comment on column dl_grants.namespace is 'The namespace in lower case, empty for all namespaces.';
comment on column dl_grants.privilege is 'read, write or purge. Each of them includes read.';

create function dl_is_confined() returns boolean language plpgsql stable security definer set search_path from current as $$
begin
    if not exists (select from dl_grantees) then
        return false;
    end if;
    return not pg_has_role(session_user, (select relowner from pg_class where oid = 'dl_tables'::regclass), 'member')
        and exists (select from dl_grantees g join pg_roles r on r.rolname = g.role or r.oid = g.role_id
                    where pg_has_role(session_user, r.oid, 'member'));
end $$;

comment on function dl_is_confined is 'Return whether this account works only in the namespaces that it was granted.';

create function dl_may(p_namespace text, p_privilege text) returns boolean
language plpgsql stable security definer set search_path from current as $$
begin
    return not dl_is_confined() or exists (select from dl_grants g join pg_roles r on r.rolname = g.role
        where g.namespace in ('', lower(p_namespace)) and (g.privilege = p_privilege or p_privilege = 'read')
          and pg_has_role(session_user, r.oid, 'member'));
end $$;

comment on function dl_may is 'Return whether this account has a privilege in a namespace.';

create function dl_visible_keys() returns setof int
language plpgsql stable security definer set search_path from current as $$
begin
    return query select t.table_key from dl_tables t
        where t.namespace in (select n.namespace from (select distinct d.namespace from dl_tables d) n
                              where dl_may(n.namespace, 'read'));
end $$;

comment on function dl_visible_keys is 'Return the tables that this account may read, by dl_tables.table_key.';

create function dl_sees_transaction(p_txn_id uuid) returns boolean
language plpgsql stable security definer set search_path from current as $$
begin
    return not exists (select from dl_table_versions v join dl_tables t using (table_key)
                       where v.txn_id = p_txn_id and not dl_may(t.namespace, 'read'));
end $$;

comment on function dl_sees_transaction is 'Return whether this account may read all tables of a transaction.';

create function dl_require_in(p_namespace text, p_privilege text) returns void language plpgsql stable as $$
begin
    if not dl_may(p_namespace, p_privilege) then
        raise exception '% may not % in namespace %', session_user, p_privilege, p_namespace
            using errcode = 'insufficient_privilege',
                hint = format('the owner of the lake can allow it: deltasql grant %s ON NAMESPACE %s TO %s',
                              p_privilege, p_namespace, session_user);
    end if;
end $$;

comment on function dl_require_in is 'Raise an error if this account lacks a privilege in a namespace.';

create function dl_require(p_table_key int, p_privilege text) returns void language plpgsql stable as $$
declare namespace text;
begin
    if dl_is_confined() then
        select t.namespace into namespace from dl_tables t where t.table_key = p_table_key;
        if namespace is null or not dl_may(namespace, 'read') then
            raise exception 'a table does not exist' using errcode = 'DL404', detail = jsonb_build_array(p_table_key)::text;
        end if;
        perform dl_require_in(namespace, p_privilege);
    end if;
end $$;

comment on function dl_require is 'Raise an error if this account lacks a privilege on a table.';

create function dl_table_key(p_table_id uuid, p_namespace text, p_name text) returns int
language plpgsql stable security definer set search_path from current as $$
declare found record;
begin
    if p_table_id is not null then
        select t.table_key, t.namespace into found from dl_tables t where t.table_id = p_table_id and t.dropped_at is null;
    else
        select t.table_key, t.namespace into found from dl_tables t
        where lower(t.namespace) = lower(p_namespace) and lower(t.name) = lower(p_name) and t.dropped_at is null;
    end if;
    return case when dl_may(found.namespace, 'read') then found.table_key end;
end $$;

comment on function dl_table_key is 'Return the key of a table by its id or its name, null if it does not exist or this account may not read it.';

-- The owner of the schema is not subject to these policies. The conditions in parentheses are evaluated once per query.
do $$
declare name text;
begin
    foreach name in array array['dl_tables', 'dl_table_versions', 'dl_add_files', 'dl_remove_files', 'dl_cdc_files',
        'dl_borrowed_files', 'dl_partitions', 'dl_partition_files', 'dl_column_bounds', 'dl_metadata_updates',
        'dl_protocol_updates', 'dl_txn_actions', 'dl_domain_metadata', 'dl_mirror_status', 'dl_staged', 'dl_writes'] loop
        execute format('alter table %I enable row level security', name);
        execute format('create policy %I on %I for select using (not (select dl_is_confined())
            or table_key = any (array(select dl_visible_keys())))', name || '_read', name);
    end loop;
end $$;

alter table dl_transactions enable row level security;
create policy dl_transactions_read on dl_transactions for select
    using (not (select dl_is_confined()) or dl_sees_transaction(txn_id));



-- Views: the log by table name and version instead of table_key and commit_id

create view dl_history with (security_barrier) as
select t.table_id, t.namespace, t.name, v.version, v.committed_at, v.committer, v.author, v.operation,
       v.operation_parameters, v.is_blind_append, v.num_adds, v.num_removes, v.txn_id, v.commit_info
from dl_table_versions v
join dl_tables t using (table_key)
where not (select dl_is_confined()) or t.table_key = any (array(select dl_visible_keys()));

comment on view dl_history is 'One row per version of a table, with the name of the table.';
comment on column dl_history.table_id is 'The public id of the table.';
comment on column dl_history.namespace is 'The first part of the table name.';
comment on column dl_history.name is 'The second part of the table name.';
comment on column dl_history.version is 'The version number.';
comment on column dl_history.committed_at is 'The time of the commit.';
comment on column dl_history.committer is 'The account that committed the version.';
comment on column dl_history.author is 'The author given by the caller.';
comment on column dl_history.operation is 'The name of the operation.';
comment on column dl_history.operation_parameters is 'The parameters of the operation, as JSON.';
comment on column dl_history.is_blind_append is 'Whether the commit only added files without reading the table.';
comment on column dl_history.num_adds is 'The number of files that the version added.';
comment on column dl_history.num_removes is 'The number of files that the version removed.';
comment on column dl_history.txn_id is 'The transaction that committed the version.';
comment on column dl_history.commit_info is 'The commitInfo action of the version, as JSON.';

create view dl_files with (security_barrier) as
select t.table_id, t.namespace, t.name, v.version as added_version, rv.version as removed_version,
       a.path, a.size, a.modification_time, a.partition_values, a.stats, a.data_change, a.deletion_vector
from dl_add_files a
join dl_tables t using (table_key)
join dl_table_versions v on v.table_key = a.table_key and v.commit_id = a.commit_id
left join dl_remove_files r
  on r.table_key = a.table_key and r.add_commit_id = a.commit_id and r.add_ord = a.ord
left join dl_table_versions rv on rv.table_key = r.table_key and rv.commit_id = r.commit_id
where not (select dl_is_confined()) or t.table_key = any (array(select dl_visible_keys()));

comment on view dl_files is 'One row per file, with the version that added it and the version that removed it. The files at version V are those with added_version <= V and (removed_version is null or removed_version > V).';
comment on column dl_files.table_id is 'The public id of the table.';
comment on column dl_files.namespace is 'The first part of the table name.';
comment on column dl_files.name is 'The second part of the table name.';
comment on column dl_files.added_version is 'The version that added the file.';
comment on column dl_files.removed_version is 'The version that removed the file. It is null for a live file.';
comment on column dl_files.path is 'The path of the file, relative to the table location, or an absolute URI.';
comment on column dl_files.size is 'The size of the file in bytes.';
comment on column dl_files.modification_time is 'The time when the file was written, in milliseconds since 1970-01-01 UTC.';
comment on column dl_files.partition_values is 'The value of each partition column, as JSON in Delta''s text form.';
comment on column dl_files.stats is 'The statistics of the file, as JSON.';
comment on column dl_files.data_change is 'Whether the file brought new rows.';
comment on column dl_files.deletion_vector is 'The deletion vector that marks deleted rows of the file, as JSON.';


-- Functions

-- A name with a transaction token leads to the commit of that transaction. The rows of any other path have path_gen 0, 1, 2, …,
-- and the search ends at the first number without a row. The index is on a hash, so the stored path is compared too: a row of
-- another path with the same hash is returned with a null commit_id, because its path_gen is taken.
create function dl_find_files(p_table_key int, p_paths text[])
returns table (path text, path_gen smallint, commit_id bigint, ord int, removed_by bigint, deletion_vector text)
language plpgsql stable rows 100 security definer set search_path from current as $$
#variable_conflict use_column
begin
    perform dl_require(p_table_key, 'read');
    return query with recursive by_hash as (
        select p.path, a.path = p.path and a.table_key = p_table_key as is_same, 0 as gen, a.commit_id, a.ord, a.deletion_vector
        from unnest(p_paths) as p (path)
        join dl_add_files a
          on hashtextextended(a.path, (a.table_key::bigint << 16) | a.path_gen)
           = hashtextextended(p.path collate "C", p_table_key::bigint << 16) and a.path_gen is not null
        union all
        select h.path, a.path = h.path and a.table_key = p_table_key, h.gen + 1, a.commit_id, a.ord, a.deletion_vector
        from by_hash h
        join dl_add_files a
          on hashtextextended(a.path, (a.table_key::bigint << 16) | a.path_gen)
           = hashtextextended(h.path collate "C", (p_table_key::bigint << 16) | (h.gen + 1))
         and a.path_gen is not null
    ),
    with_token as materialized (
        select p.path collate "C" as path, (token.groups)[1]::uuid as txn_id
        from unnest(p_paths) as p (path)
        cross join lateral regexp_matches(p.path, '-tx([0-9a-f]{32})', 'g') as token (groups)
        where p.path like '%-tx%'
    ),
    of_their_commits as materialized (
        select a.path, a.commit_id, a.ord, a.deletion_vector
        from (select distinct txn_id from with_token) w
        join dl_table_versions v on v.txn_id = w.txn_id and v.table_key = p_table_key
        join dl_add_files a on a.table_key = p_table_key and a.commit_id = v.commit_id and a.path_gen is null
    ),
    files as (
        select h.path, h.gen::smallint as path_gen,
               case when h.is_same then h.commit_id end as commit_id, case when h.is_same then h.ord end as ord,
               case when h.is_same then h.deletion_vector end as deletion_vector
        from by_hash h
        union all
        select c.path, null, c.commit_id, c.ord, c.deletion_vector
        from of_their_commits c where c.path in (select w.path from with_token w)
    )
    select f.path, f.path_gen, f.commit_id, f.ord, r.commit_id, f.deletion_vector
    from files f
    left join dl_remove_files r
      on r.table_key = p_table_key and r.add_commit_id = f.commit_id and r.add_ord = f.ord;
end $$;

comment on function dl_find_files is 'Return the rows of dl_add_files for some paths of a table, each with the commit that removed the file.';

create function dl_check_paths(p_paths text[]) returns void language plpgsql stable as $$
declare path text;
begin
    -- Nearly all paths are harmless, and that is seen at once.
    if E'\n' || array_to_string(p_paths, E'\n', '/../') !~ '[:%\\]|\.\.|//|\n([/_\n]|$)' then
        return;
    end if;
    select p into path from unnest(p_paths) as p
    where p is null or p ~* ('^($|/|%2f|\\|_delta_log(/|%2f|$)|[a-z%][a-z0-9%+.-]*:)|//|(/|%2f){2}'
        || '|(^|/|%2f|\\|%5c)(\.|%2e){2}(/|%2f|\\|%5c|$)')
    limit 1;
    if found then
        raise exception 'a file is outside of the table: %', path using errcode = 'DL422';
    end if;
end $$;

comment on function dl_check_paths is 'Raise an error if a path is not relative to the table or leads out of it.';

create function dl_check_removes(p_table_key int, p_commit_ids bigint[], p_ords int[], p_paths text[]) returns void
language plpgsql stable as $$
declare path text;
begin
    select r.path into path from unnest(p_commit_ids, p_ords, p_paths) as r (commit_id, ord, path)
    where not exists (select from dl_add_files a where a.table_key = p_table_key and a.commit_id = r.commit_id
                      and a.ord = r.ord and a.path = r.path)
    limit 1;
    if found then
        raise exception 'the commit removes a file that is not in the table: %', path using errcode = 'DL422';
    end if;
end $$;

comment on function dl_check_removes is 'Raise an error if a removed file does not refer to the row that added it.';

create function dl_stage(p_tables jsonb) returns void language plpgsql as $$
begin
    if p_tables @? '$[*].adds[*][6] ? (@.type() != "string" || @ like_regex "^$|^_|/$|^/|//|[.][.]|[:%]|\\\\")'
       or p_tables @? '$[*].cdc[*][2] ? (@.type() != "string" || @ like_regex "^$|/$|^/|//|[.][.]|[:%]|\\\\")' then
        if p_tables @? '$[*].adds[*][6] ? (@.type() != "string")' or p_tables @? '$[*].cdc[*][2] ? (@.type() != "string")' then
            raise exception 'a path is a text' using errcode = 'DL422';
        end if;
        perform dl_check_paths(array(
            select f->>6 from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'adds') f
            union all select f->>2 from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'cdc') f));
    end if;
    insert into dl_add_files (table_key, commit_id, ord, size, modification_time, partition_key, data_change,
        path_gen, path, partition_values, stats, tags, deletion_vector, base_row_id,
        default_row_commit_version, clustering_provider, extra)
    select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, (f->>2)::bigint,
        (f->>3)::bigint, (f->>4)::boolean, (f->>5)::smallint, f->>6, f->>7, f->>8, f->>9, f->>10, (f->>11)::bigint,
        (f->>12)::bigint, f->>13, f->>14
    from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'adds') f where not t ? 'check';
    if p_tables @? '$[*].removes' then
        perform dl_check_removes((t->>'key')::int, array_agg((f->>1)::bigint), array_agg((f->>2)::int), array_agg(f->>7))
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'removes') f group by t->>'key';
        insert into dl_remove_files (table_key, commit_id, ord, add_commit_id, add_ord, deletion_timestamp,
            data_change, superseded, extended_file_metadata, path, partition_values, size, stats, tags,
            deletion_vector, base_row_id, default_row_commit_version, extra)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, (f->>2)::int,
            (f->>3)::bigint, (f->>4)::boolean, (f->>5)::boolean, (f->>6)::boolean, f->>7, f->>8, (f->>9)::bigint,
            f->>10, f->>11, f->>12, (f->>13)::bigint, (f->>14)::bigint, f->>15
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'removes') f where not t ? 'check';
    end if;
    if p_tables @? '$[*].cdc' then
        insert into dl_cdc_files (table_key, commit_id, ord, size, path, partition_values, tags, extra)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, f->>2, f->>3, f->>4, f->>5
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'cdc') f where not t ? 'check';
    end if;
    if p_tables @? '$[*].partitions' then
        insert into dl_partition_files (table_key, commit_id, partition_key, ords)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>3)::bigint, array_agg((f->>0)::int)
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'adds') f
        where f->>3 is not null and not t ? 'check' group by 1, 2, 3;
    end if;
end $$;

comment on function dl_stage is 'Insert the file rows of a small commit, which arrive as JSON in the same round trip as the commit.';

-- A check must see what others committed while it waited for a lock.
create function dl_check_isolation() returns void language plpgsql stable as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the log is written in READ COMMITTED transactions only' using errcode = 'DL422';
    end if;
end $$;

comment on function dl_check_isolation is 'Raise an error in a transaction that may not see what others have committed.';

create function dl_begin_stage(p_table_key int, p_commit_id bigint, p_adds int, p_removes int, p_superseded int) returns void
language plpgsql as $$
begin
    perform dl_require(p_table_key, 'write');
    perform dl_check_isolation();
    insert into dl_staged as d (commit_id, table_key, num_adds, num_removes, num_superseded)
    values (p_commit_id, p_table_key, p_adds, p_removes, p_superseded)
    on conflict (commit_id) do update set num_adds = d.num_adds + p_adds, num_removes = d.num_removes + p_removes,
        num_superseded = d.num_superseded + p_superseded
    where d.table_key = p_table_key;
    if not found or exists (select from dl_table_versions v where v.commit_id = p_commit_id) then
        raise exception 'commit % has a version already, or is one of another table', p_commit_id using errcode = 'DL422';
    end if;
end $$;

create function dl_check_staged() returns trigger language plpgsql security definer set search_path from current as $$
begin
    if exists (select from dl_staged d where d.commit_id = new.commit_id) then
        raise exception 'files of table % were staged and not committed', new.table_key using errcode = 'DL422';
    end if;
    return null;
end $$;

comment on function dl_check_staged is 'Raise an error at the end of a transaction that leaves staged files without a version.';

create constraint trigger dl_staged_committed after insert on dl_staged deferrable initially deferred
    for each row execute function dl_check_staged();

comment on function dl_begin_stage is 'Record that a commit stages files, and raise an error if it has a version already.';

-- A plan for the values would copy the arrays many times, and look up the n-th text of an array in n steps.
create function dl_stage_adds(p_table_key int, p_commit_id bigint, p_first int, p_size bigint[], p_modification_time bigint[],
    p_partition_key bigint[], p_data_change boolean[], p_path_gen smallint[], p_path text[], p_partition_values text[],
    p_stats text[], p_tags text[], p_deletion_vector text[], p_base_row_id bigint[], p_default_row_commit_version bigint[],
    p_clustering_provider text[], p_extra text[])
returns void language plpgsql security definer set search_path from current
set plan_cache_mode = force_generic_plan as $$
begin
    perform dl_begin_stage(p_table_key, p_commit_id, cardinality(p_path), 0, 0);
    perform dl_check_paths(p_path);
    if num_nonnulls(p_data_change, p_path_gen, p_tags, p_deletion_vector, p_base_row_id, p_default_row_commit_version,
                    p_clustering_provider, p_extra) = 0 then -- most commits: each column costs time
        insert into dl_add_files (table_key, commit_id, ord, size, modification_time, partition_key, data_change, path,
            partition_values, stats)
        select p_table_key, p_commit_id, p_first + n - 1, p_size[n], p_modification_time[n], p_partition_key[n], true,
            p_path[n], coalesce(p_partition_values[n], '{}'), p_stats[n]
        from generate_series(1, cardinality(p_path)) as n;
        return;
    end if;
    insert into dl_add_files (table_key, commit_id, ord, size, modification_time, partition_key, data_change, path_gen, path,
        partition_values, stats, tags, deletion_vector, base_row_id, default_row_commit_version, clustering_provider, extra)
    select p_table_key, p_commit_id, p_first + n - 1, p_size[n], p_modification_time[n], p_partition_key[n],
        coalesce(p_data_change[n], true), p_path_gen[n], p_path[n], coalesce(p_partition_values[n], '{}'), p_stats[n],
        p_tags[n], p_deletion_vector[n], p_base_row_id[n], p_default_row_commit_version[n], p_clustering_provider[n],
        p_extra[n]
    from generate_series(1, cardinality(p_path)) as n; -- faster than unnest, which keeps the rows of each array in a store
end $$;

comment on function dl_stage_adds is 'Insert added files of a large commit, one array per column. Null is an array of nulls; for data_change it is true, for partition_values no partition.';

create function dl_stage_removes(p_table_key int, p_commit_id bigint, p_ord int[], p_add_commit_id bigint[], p_add_ord int[],
    p_deletion_timestamp bigint[], p_data_change boolean[], p_superseded boolean[], p_extended_file_metadata boolean[],
    p_path text[], p_partition_values text[], p_size bigint[], p_stats text[], p_tags text[], p_deletion_vector text[],
    p_base_row_id bigint[], p_default_row_commit_version bigint[], p_extra text[])
returns void language plpgsql security definer set search_path from current
set plan_cache_mode = force_generic_plan as $$
declare again constant int := coalesce(cardinality(array_positions(p_superseded, true)), 0);
begin
    perform dl_begin_stage(p_table_key, p_commit_id, 0, cardinality(p_path) - again, again);
    perform dl_check_removes(p_table_key, p_add_commit_id, p_add_ord, p_path);
    insert into dl_remove_files (table_key, commit_id, ord, add_commit_id, add_ord, deletion_timestamp, data_change, superseded,
        extended_file_metadata, path, partition_values, size, stats, tags, deletion_vector, base_row_id,
        default_row_commit_version, extra)
    select p_table_key, p_commit_id, f.*
    from unnest(p_ord, p_add_commit_id, p_add_ord, p_deletion_timestamp, p_data_change, p_superseded, p_extended_file_metadata,
        p_path, p_partition_values, p_size, p_stats, p_tags, p_deletion_vector, p_base_row_id, p_default_row_commit_version,
        p_extra) as f;
end $$;

comment on function dl_stage_removes is 'Insert removed files of a large commit, one array per column.';

create function dl_stage_cdc(p_table_key int, p_commit_id bigint, p_ord int[], p_size bigint[], p_path text[],
    p_partition_values text[], p_tags text[], p_extra text[])
returns void language plpgsql security definer set search_path from current
set plan_cache_mode = force_generic_plan as $$
begin
    perform dl_begin_stage(p_table_key, p_commit_id, 0, 0, 0);
    perform dl_check_paths(p_path);
    insert into dl_cdc_files (table_key, commit_id, ord, size, path, partition_values, tags, extra)
    select p_table_key, p_commit_id, f.* from unnest(p_ord, p_size, p_path, p_partition_values, p_tags, p_extra) as f;
end $$;

comment on function dl_stage_cdc is 'Insert change data files of a large commit, one array per column.';

create function dl_stage_partitions(p_table_key int, p_commit_id bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_begin_stage(p_table_key, p_commit_id, 0, 0, 0);
    insert into dl_partition_files (table_key, commit_id, partition_key, ords)
    select p_table_key, p_commit_id, a.partition_key, array_agg(a.ord)
    from dl_add_files a where a.table_key = p_table_key and a.commit_id = p_commit_id and a.partition_key is not null
    group by a.partition_key;
end $$;

comment on function dl_stage_partitions is 'Insert the files of a large commit by partition, after its last file.';

create function dl_write_details(t jsonb, p_version bigint) returns void language plpgsql as $$
declare k constant int := (t->>'key')::int; action jsonb;
begin
    action := t->'metadata';
    if action is not null then
        insert into dl_metadata_updates (table_key, version, metadata_id, name, description, format_provider,
            format_options, schema_string, partition_columns, configuration, created_time, extra)
        values (k, p_version, action->>'id', action->>'name', action->>'description', action->>'provider',
            action->>'options', action->>'schema',
            array(select jsonb_array_elements_text(action->'partition_columns')), action->>'configuration',
            (action->>'created_time')::bigint, action->>'extra');
        update dl_tables set properties = (action->>'configuration')::jsonb where table_key = k;
    end if;
    action := t->'protocol';
    if action is not null then
        insert into dl_protocol_updates (table_key, version, min_reader_version, min_writer_version,
            reader_features, writer_features, extra)
        values (k, p_version, (action->>'reader')::int, (action->>'writer')::int,
            case when action ? 'reader_features'
                 then array(select jsonb_array_elements_text(action->'reader_features')) end,
            case when action ? 'writer_features'
                 then array(select jsonb_array_elements_text(action->'writer_features')) end,
            action->>'extra');
    end if;
    if t ? 'txns' then
        insert into dl_txn_actions (table_key, version, app_id, txn_version, last_updated, extra)
        select k, p_version, x->>0, (x->>1)::bigint, (x->>2)::bigint, x->>3 from jsonb_array_elements(t->'txns') x;
    end if;
    if t ? 'domains' then
        insert into dl_domain_metadata (table_key, version, domain, configuration, removed, extra)
        select k, p_version, x->>0, x->>1, (x->>2)::boolean, x->>3 from jsonb_array_elements(t->'domains') x;
    end if;
end $$;

comment on function dl_write_details is 'Insert the metadata, protocol, application transactions and metadata domains of a new version.';

-- The partitions nearly always exist already, so this looks before it inserts. The second round verifies that no other partition
-- has the same key.
create function dl_add_partitions(p_table_key int, p_partitions jsonb) returns void language plpgsql as $$
begin
    for i in 1 .. 2 loop
        if jsonb_array_length(p_partitions) = (
            select count(*) from jsonb_array_elements(p_partitions) x
            join dl_partitions p on p.table_key = p_table_key and p.partition_key = (x->>0)::bigint
                and p.partition_values = x->>1) then
            return;
        end if;
        insert into dl_partitions (table_key, partition_key, partition_values)
        select p_table_key, (x->>0)::bigint, x->>1 from jsonb_array_elements(p_partitions) x
        on conflict do nothing;
    end loop;
    raise exception 'two partitions of table % have the same key', p_table_key using errcode = 'DL500';
end $$;

comment on function dl_add_partitions is 'Insert the partitions of a commit that the table does not have yet.';

-- An application transaction is applied if the latest one of its application has the same or a higher number.
create function dl_applied(p_table_key int, p_txns jsonb, out applied bigint, out version bigint)
language sql stable as $$
    select count(*), max(a.version)
    from jsonb_array_elements(p_txns) x
    cross join lateral (select y.txn_version from dl_txn_actions y
        where y.table_key = p_table_key and y.app_id = x->>0 order by y.version desc limit 1) latest
    cross join lateral (select y.version from dl_txn_actions y
        where y.table_key = p_table_key and y.app_id = x->>0 and y.txn_version >= (x->>1)::bigint
        order by y.version limit 1) a
    where latest.txn_version >= (x->>1)::bigint
$$;

comment on function dl_applied is 'Return how many of the given application transactions are already applied to a table, and the version that applied the last of them.';

-- Locks the tables in key order, checks every table, then writes. A table with `check` was only read by the transaction: it is
-- locked and checked like the other tables, but gets no new version. Errors carry their values as JSON in DETAIL:
--   DL207  some of the application transactions were applied before
--   DL208  all of the application transactions were applied before
--   DL300  versions after checked_version exist, and the caller must check them for conflicts under the lock
--   DL301  files must be looked up again, because the transaction that wrote them committed in the meantime
--   DL302  another transaction already added files of this transaction
--   DL404  a table does not exist, or the account may not see it
--   DL409  the table is not at the version that the caller expects
--   DL410  the table does not have the commit that the caller has read, because the database was restored from a backup
-- Other errors: 42501, the account may not write to a table; DL422, the commit is invalid.
create function dl_commit(p_txn_id uuid, p_author text, p_message text, p_tables jsonb)
returns table (table_key int, version bigint, committed_at timestamptz)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    num_tables constant int := jsonb_array_length(p_tables);
    is_confined boolean := false;
    t jsonb; h record; done record; at timestamptz; locked int := 0;
begin
    perform dl_check_isolation();
    if exists (select from dl_grantees) then
        is_confined := dl_is_confined();
    end if;
    if is_confined then -- before anything of the tables is locked or looked up
        perform dl_require((x->>'key')::int, case when x ? 'check' then 'read' else 'write' end)
        from jsonb_array_elements(p_tables) x;
    end if;
    if exists (select from dl_table_versions v where v.txn_id = p_txn_id) then
        raise exception 'transaction % has committed already', p_txn_id using errcode = 'DL422';
    end if;
    if p_tables @? '$[*] ? (exists(@.adds) || exists(@.removes) || exists(@.cdc))' then
        perform dl_stage(p_tables);
    end if;

    for h in select d.table_key, d.current_version, d.shape_version, d.head_commit_id, d.committed_at from dl_tables d
             where d.table_key = any (array(select (x->>'key')::int from jsonb_array_elements(p_tables) x))
               and d.dropped_at is null order by d.table_key for update loop
        t := p_tables->locked;
        locked := locked + 1;
        exit when (t->>'key')::int <> h.table_key;
        at := greatest(at, h.committed_at
            + case when t ? 'in_commit_timestamp' then interval '1 millisecond' else interval '1 microsecond' end);
        if (t->>'read_commit')::bigint <> h.head_commit_id and not exists (select from dl_table_versions v
                where v.commit_id = (t->>'read_commit')::bigint and v.table_key = h.table_key) then
            raise exception 'the table does not have the commit that was read' using errcode = 'DL410',
                detail = jsonb_build_object('key', h.table_key)::text;
        end if;
        if t ? 'check' then
            if h.current_version > (t->>'checked_version')::bigint then
                raise exception 'newer versions must be checked for conflicts' using errcode = 'DL300',
                    detail = jsonb_build_object('key', h.table_key, 'head', h.current_version)::text;
            end if;
            continue;
        end if;
        if t ? 'txns' then
            done := dl_applied(h.table_key, t->'txns');
            if done.applied > 0 then
                raise exception 'application transaction was applied before' using detail =
                        jsonb_build_object('key', h.table_key, 'version', done.version)::text,
                    errcode = case when done.applied = jsonb_array_length(t->'txns') then 'DL208' else 'DL207' end;
            end if;
        end if;
        if t ? 'borrowed' then
            if exists (select from dl_table_versions v where v.table_key = h.table_key
                       and v.txn_id in (select x::uuid from jsonb_array_elements_text(t->'borrowed') x)) then
                raise exception 'the transaction that wrote the files has committed' using errcode = 'DL301';
            end if;
            insert into dl_borrowed_files (table_key, txn_id)
            select h.table_key, x::uuid from jsonb_array_elements_text(t->'borrowed') x on conflict do nothing;
        end if;
        if exists (select from dl_borrowed_files b where b.table_key = h.table_key and b.txn_id = p_txn_id) then
            raise exception 'another transaction added files of this transaction' using errcode = 'DL302',
                detail = jsonb_build_object('key', h.table_key)::text;
        end if;
        if t ? 'expected' then
            if h.current_version + 1 <> (t->>'expected')::bigint then
                raise exception 'the table is not at the expected version' using errcode = 'DL409',
                    detail = jsonb_build_object('key', h.table_key, 'actual', h.current_version)::text;
            end if;
        elsif h.current_version > (t->>'checked_version')::bigint and (h.shape_version > (t->>'checked_version')::bigint
              or not (t->>'is_blind_append')::boolean or t ? 'txns' or t ? 'domains') then
            raise exception 'newer versions must be checked for conflicts' using errcode = 'DL300',
                detail = jsonb_build_object('key', h.table_key, 'head', h.current_version)::text;
        end if;
        if t ?| array['metadata', 'protocol', 'txns', 'domains'] then
            perform dl_write_details(t, h.current_version + 1);
        end if;
        if t ? 'partitions' then
            perform dl_add_partitions(h.table_key, t->'partitions');
        end if;
    end loop;
    -- The time is taken under the locks, so that a later commit always has a later time.
    at := greatest(at, clock_timestamp());
    if locked < num_tables or (t->>'key')::int <> h.table_key then
        raise exception 'a table of this commit does not exist' using errcode = 'DL404',
            detail = (select coalesce(jsonb_agg(x->'key'), '[]') from jsonb_array_elements(p_tables) x where not exists (
                select from dl_tables d where d.table_key = (x->>'key')::int and d.dropped_at is null))::text;
    end if;

    if num_tables > 1 then
        insert into dl_transactions (txn_id, committed_at, committer, author, message, num_tables, tables)
        select p_txn_id, at, session_user, p_author, p_message, count(*),
            jsonb_object_agg(d.namespace || '.' || d.name, d.current_version + 1)
        from jsonb_array_elements(p_tables) x join dl_tables d on d.table_key = (x->>'key')::int
        where not x ? 'check' having count(*) > 1;
    end if;
    return query with requests as (
        select x, (x->>'key')::int as table_key, (x->>'commit')::bigint as commit_id,
            x ?| array['metadata', 'protocol'] as new_shape,
            coalesce(s.num_adds, 0) + coalesce(jsonb_array_length(x->'adds'), 0) as num_adds,
            coalesce(s.num_removes, 0) + case when x ? 'removes' then
                (select count(*) from jsonb_array_elements(x->'removes') f where not (f->>5)::boolean) else 0 end as num_removes,
            coalesce(s.num_superseded, 0) + case when x ? 'removes' then
                (select count(*) from jsonb_array_elements(x->'removes') f where (f->>5)::boolean) else 0 end as num_superseded
        from jsonb_array_elements(p_tables) x
        left join dl_staged s on s.commit_id = (x->>'commit')::bigint and s.table_key = (x->>'key')::int
        where not x ? 'check'
    ), heads as (
        update dl_tables d
        set current_version = d.current_version + 1, committed_at = at,
            num_files = d.num_files + r.num_adds - r.num_removes - r.num_superseded,
            shape_version = case when r.new_shape then d.current_version + 1 else d.shape_version end,
            head_commit_id = r.commit_id,
            shape_commit_id = case when r.new_shape then r.commit_id else d.shape_commit_id end
        from requests r where d.table_key = r.table_key
        returning d.table_key, d.current_version as version, r.x, r.commit_id, r.num_adds, r.num_removes
    ), versions as (
        insert into dl_table_versions (table_key, version, commit_id, txn_id, committed_at, committer, author, operation,
            operation_parameters, read_version, isolation_level, is_blind_append, data_change, has_metadata,
            has_protocol, has_txn, has_domain, in_commit_timestamp, num_adds, num_removes, commit_info)
        select v.table_key, v.version, v.commit_id, p_txn_id, at, session_user, x->>'author', x->>'operation',
            x->>'operation_parameters', (x->>'read_version')::bigint, x->>'isolation_level', (x->>'is_blind_append')::boolean,
            (x->>'data_change')::boolean, x ? 'metadata', x ? 'protocol', x ? 'txns', x ? 'domains',
            x ? 'in_commit_timestamp', v.num_adds, v.num_removes, x->>'commit_info'
        from heads v
    ), outbox as (
        insert into dl_mirror_status (table_key, version) select v.table_key, v.version from heads v
    ), written as (
        delete from dl_writes w where w.txn_id = p_txn_id and w.writer = session_user
    )
    select v.table_key, v.version, at from heads v;
    if p_tables @? '$[*].staged' then
        delete from dl_staged d using jsonb_array_elements(p_tables) x
        where d.commit_id = (x->>'commit')::bigint and d.table_key = (x->>'key')::int and not x ? 'check';
    end if;
end $$;

comment on function dl_commit is 'Commit to one or more tables: lock them, check for conflicts, and write the new versions.';

create function dl_lock_heads(p_table_keys int[]) returns table (table_key int, current_version bigint)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
    return query select d.table_key, d.current_version from dl_tables d
        where d.table_key = any (p_table_keys) and d.dropped_at is null
          and (not (select dl_is_confined()) or d.table_key = any (array(select dl_visible_keys())))
        order by d.table_key for update;
end $$;

comment on function dl_lock_heads is 'Return the current versions of some tables, locked in key order so that overlapping transactions cannot deadlock.';

-- The errors carry their values as JSON in DETAIL:
--   DL411  the location overlaps that of another table
create function dl_create_table(p_table_id uuid, p_namespace text, p_name text, p_location text) returns int
language plpgsql security definer set search_path from current as $$
declare key int; other record; roots constant text[] := (select allowed_roots from dl_lake);
begin
    perform dl_require_in(p_namespace, 'write');
    perform dl_check_isolation();
    if p_location !~ '^(/[^/]+|[A-Za-z]:/[^/]+|memory://[^/]+|[A-Za-z][A-Za-z0-9+.-]*://[^/]*/[^/]+)(/[^/]+)*$'
       or p_location ~ '/\.{1,2}(/|$)|[[:cntrl:]]' or p_location ~* '^file:' then
        raise exception 'a location is a whole path or URL of a folder, without ".", ".." and empty parts: %', p_location
            using errcode = 'DL422';
    end if;
    if roots is not null and not exists (select from unnest(roots) as root
            where p_location = root or starts_with(p_location, rtrim(root, '/') || '/')) then
        raise exception 'location % is outside of the allowed roots (%): give a location below one of them, or add it with deltasql roots',
            p_location, array_to_string(roots, ', ') using errcode = 'DL422';
    end if;
    perform pg_advisory_xact_lock(x'6C6F6361'::int); -- one table at a time, so that the check for overlaps holds
    select t.namespace, t.name, t.location into other from dl_tables t
    where t.dropped_at is null and (t.location = p_location or starts_with(t.location, p_location || '/')
        or starts_with(p_location, t.location || '/'))
    limit 1;
    if found then
        raise exception 'the location overlaps that of another table' using errcode = 'DL411', detail =
            (case when dl_may(other.namespace, 'read')
             then jsonb_build_object('name', other.namespace || '.' || other.name, 'location', other.location)
             else jsonb_build_object('name', 'another table', 'location', p_location) end)::text;
    end if;
    insert into dl_tables (table_id, namespace, name, location) values (p_table_id, p_namespace, p_name, p_location)
    returning table_key into key;
    return key;
end $$;

comment on function dl_create_table is 'Insert a table, and return its key. Its version 0 follows in the same transaction.';

-- A table without version 0 would have no metadata.
create function dl_check_created() returns trigger language plpgsql security definer set search_path from current as $$
begin
    if exists (select from dl_tables t where t.table_key = new.table_key and t.current_version < 0) then
        raise exception 'table %.% has no version 0', new.namespace, new.name using errcode = 'DL422';
    end if;
    return null;
end $$;

comment on function dl_check_created is 'Raise an error at the end of a transaction that creates a table without a version.';

create constraint trigger dl_tables_created after insert on dl_tables deferrable initially deferred
    for each row execute function dl_check_created();

create function dl_table_exists(p_table_id uuid) returns boolean
language plpgsql stable security definer set search_path from current as $$
begin
    return exists (select from dl_tables where table_id = p_table_id and dropped_at is null);
end $$;

comment on function dl_table_exists is 'Return whether a table exists, even if this account may not read it.';

create function dl_location_used(p_location text) returns boolean
language plpgsql stable security definer set search_path from current as $$
begin
    return exists (select from dl_tables where location = p_location);
end $$;

comment on function dl_location_used is 'Return whether a table, dropped or not, has a location.';

create function dl_drop_table(p_table_key int, p_purge boolean) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, case when p_purge then 'purge' else 'write' end);
    update dl_tables set dropped_at = clock_timestamp() where table_key = p_table_key and dropped_at is null;
    return found;
end $$;

comment on function dl_drop_table is 'Drop a table, and return whether it existed. Its log stays.';

create function dl_begin_write(p_txn_id uuid, p_table_key int) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    insert into dl_writes as w (txn_id, table_key) values (p_txn_id, p_table_key)
    on conflict (txn_id, table_key) do update set started_at = clock_timestamp() where w.writer = session_user;
end $$;

comment on function dl_begin_write is 'Record that a transaction writes files of a table.';

create function dl_end_write(p_txn_id uuid) returns void
language plpgsql security definer set search_path from current as $$
begin
    delete from dl_writes where txn_id = p_txn_id and writer = session_user;
end $$;

comment on function dl_end_write is 'Record that a transaction of this account no longer writes files.';

create function dl_forget_writes(p_table_key int) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'purge');
    delete from dl_writes w using dl_tables t
    where w.table_key = p_table_key and t.table_key = p_table_key and t.dropped_at is not null;
end $$;

comment on function dl_forget_writes is 'Delete the records of all writers of a dropped table, because its files are deleted.';

create function dl_store_bounds(p_table_key int, p_commit_id bigint, p_column_paths text[], p_bounds bytea[]) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    if not exists (select from dl_table_versions v where v.commit_id = p_commit_id and v.table_key = p_table_key
                   and v.committer = session_user) then
        raise exception 'the bounds of a commit come from its committer' using errcode = 'DL422';
    end if;
    insert into dl_column_bounds (table_key, commit_id, column_path, bounds)
    select p_table_key, p_commit_id, b.path, b.bounds from unnest(p_column_paths, p_bounds) as b (path, bounds);
end $$;

comment on function dl_store_bounds is 'Insert the bounds of the columns of a large commit, once.';


-- Functions of the mirror

create function dl_mirror_succeeded(p_table_key int, p_versions bigint[]) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    update dl_mirror_status set status = 'SUCCESS', json_written = true, error_message = null, last_attempt_at = clock_timestamp()
    where table_key = p_table_key and version = any (p_versions);
end $$;

comment on function dl_mirror_succeeded is 'Mark versions as published.';

create function dl_mirror_failed(p_table_key int, p_version bigint, p_error text, p_final boolean, p_attempts int,
    out status text, out was text)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
    perform dl_require(p_table_key, 'write');
    select m.status into was from dl_mirror_status m where m.table_key = p_table_key and m.version = p_version for update;
    update dl_mirror_status m set retry_count = m.retry_count + 1, error_message = p_error, last_attempt_at = clock_timestamp(),
        status = case when p_final or m.retry_count + 1 >= p_attempts then 'FAILED' else 'PENDING' end
    where m.table_key = p_table_key and m.version = p_version
    returning m.status into status;
end $$;

comment on function dl_mirror_failed is 'Record a failed attempt, and return the new and the old status. The last attempt changes the status to FAILED.';

create function dl_mirror_reopen(p_table_key int, p_versions bigint[]) returns setof bigint
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    return query with before as (select m.version from dl_mirror_status m
        where m.table_key = p_table_key and m.version = any (p_versions) and m.status = 'SUCCESS'),
    reopened as (insert into dl_mirror_status (table_key, version)
        select v.table_key, v.version from dl_table_versions v where v.table_key = p_table_key and v.version = any (p_versions)
        on conflict (table_key, version) do update set status = 'PENDING', retry_count = 0, last_attempt_at = null)
    select b.version from before b;
end $$;

comment on function dl_mirror_reopen is 'Mark versions as unpublished, and return those that were published.';

create function dl_mirror_retry(p_table_key int) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    update dl_mirror_status set status = 'PENDING', retry_count = 0, last_attempt_at = null
    where table_key = p_table_key and status <> 'SUCCESS' and retry_count > 0;
end $$;

comment on function dl_mirror_retry is 'Make all unpublished versions of a table due now, with no failed attempts.';

create function dl_mirror_checkpoint(p_table_key int, p_version bigint, p_error text) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    update dl_mirror_status set checkpoint_written = checkpoint_written or p_error is null, error_message = p_error
    where table_key = p_table_key and version = p_version;
end $$;

comment on function dl_mirror_checkpoint is 'Record that a version has a checkpoint, or the error if it could not be written.';

create function dl_mirror_cleaned(p_table_key int, p_version bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'write');
    update dl_mirror_status set json_written = false
    where table_key = p_table_key and version < p_version and status = 'SUCCESS' and json_written;
end $$;

comment on function dl_mirror_cleaned is 'Record that the commit files before a version are deleted.';

create function dl_mirror_give_up(p_table_key int) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform dl_require(p_table_key, 'read');
    update dl_mirror_status m set status = 'SUCCESS' from dl_tables t
    where m.table_key = p_table_key and m.status <> 'SUCCESS' and t.table_key = p_table_key and t.dropped_at is not null;
end $$;

comment on function dl_mirror_give_up is 'Mark all versions of a dropped table as published.';

create function dl_last_manifest() returns table (manifest bigint, snapshot text)
language plpgsql stable security definer set search_path from current as $$
#variable_conflict use_column
begin
    if not dl_is_confined() then
        return query select t.manifest, t.snapshot from dl_transactions t where t.manifest is not null
            order by t.manifest desc limit 1;
    end if;
end $$;

comment on function dl_last_manifest is 'Return the manifest that was published last, for accounts that see all tables.';

create function dl_manifest_written(p_txn_id uuid, p_manifest bigint, p_snapshot text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    if dl_is_confined() or p_manifest is distinct from (select coalesce(max(manifest), -1) + 1 from dl_transactions) then
        raise exception 'manifest % is not the next one, or % does not see all tables', p_manifest, session_user
            using errcode = 'DL422';
    end if;
    update dl_transactions set manifest = p_manifest, snapshot = p_snapshot where txn_id = p_txn_id and manifest is null;
    return found;
end $$;

comment on function dl_manifest_written is 'Record the manifest of a transaction, and return whether the transaction had none.';


-- Nobody but the owner may call a function, until roles.sql grants it.
do $$
declare signature text;
begin
    for signature in select p.oid::regprocedure from pg_proc p where p.pronamespace = current_schema()::regnamespace
                     and p.proname like 'dl\_%' loop
        execute format('revoke all on function %s from public', signature);
    end loop;
end $$;

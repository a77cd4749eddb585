-- The log of every table. File rows are append-only and keyed by commit_id, so that they can be copied in before
-- any table is locked; dl_table_versions gives a commit its version. Nothing is visible before COMMIT.

-- Each client takes 64 ids at a time: the value it draws and the 63 after it.
create sequence dl_commit_ids increment by 64;

-- current_version is the head; shape_version the last one that changed metadata or protocol.
create table dl_tables (
    table_key       int generated always as identity,
    table_id        uuid not null,
    namespace       text not null,
    name            text not null,
    location        text not null,
    current_version bigint not null default -1,
    shape_version   bigint not null default -1,
    num_files       bigint not null default 0,
    committed_at    timestamptz,
    created_at      timestamptz not null default clock_timestamp(),
    dropped_at      timestamptz,
    properties      jsonb not null default '{}',
    constraint dl_tables_pkey primary key (table_key),
    constraint dl_tables_table_id_key unique (table_id),
    constraint dl_tables_version_check check (current_version >= -1)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create unique index dl_tables_name_key on dl_tables (namespace, name) where dropped_at is null;
create unique index dl_tables_location_key on dl_tables (location) where dropped_at is null;

create table dl_transactions (
    txn_id       uuid not null,
    committed_at timestamptz not null,
    author       text,
    message      text,
    num_tables   int not null,
    constraint dl_transactions_pkey primary key (txn_id)
);

create table dl_table_versions (
    table_key        int not null,
    version          bigint not null,
    commit_id        bigint not null,
    txn_id           uuid not null,
    committed_at     timestamptz not null,
    committer        text,
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
    constraint dl_table_versions_pkey primary key (table_key, version),
    constraint dl_table_versions_commit_id_key unique (commit_id)
);

create index dl_table_versions_txn_id on dl_table_versions (txn_id);

-- A file whose name carries the token of the transaction that adds it is new by construction and has no path_gen.
-- Any other path may be in the table already, or come back later: path_gen counts how often it was added.
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

-- "Is this path in the table?", at 8 bytes a file. Files that are new by construction do not pay for it.
create unique index dl_add_files_path_key on dl_add_files
    (hashtextextended(path, (table_key::bigint << 16) | path_gen)) where path_gen is not null;

-- Transactions whose files another one added before they committed (a retry that took the files over): such a
-- transaction must not commit any more, or its files would be in the table twice.
create table dl_borrowed_files (
    table_key int not null,
    txn_id    uuid not null,
    constraint dl_borrowed_files_pkey primary key (table_key, txn_id)
);

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

-- The distinct partitions of a table: predicates are decided on these few rows, then files are found by key.
create table dl_partitions (
    table_key        int not null,
    partition_key    bigint not null,
    partition_values text not null,
    constraint dl_partitions_pkey primary key (table_key, partition_key)
);

-- Which files of a commit lie in a partition: a row per commit and partition, where an index entry per file would
-- cost a large commit as much as the files themselves.
create table dl_partition_files (
    table_key     int not null,
    partition_key bigint not null,
    commit_id     bigint not null,
    ords          int[] not null,
    constraint dl_partition_files_pkey primary key (table_key, partition_key, commit_id)
);

-- Typed min/max of one column over all files of a large commit, in file order: pruning without parsing JSON.
create table dl_column_bounds (
    table_key   int not null,
    commit_id   bigint not null,
    column_path text not null,
    bounds      bytea not null,
    constraint dl_column_bounds_pkey primary key (table_key, column_path, commit_id)
);
alter table dl_column_bounds alter column bounds set storage external;

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

create table dl_txn_actions (
    table_key    int not null,
    app_id       text not null,
    version      bigint not null,
    txn_version  bigint not null,
    last_updated bigint,
    extra        text,
    constraint dl_txn_actions_pkey primary key (table_key, app_id, version)
);

create table dl_domain_metadata (
    table_key     int not null,
    domain        text not null,
    version       bigint not null,
    configuration text not null,
    removed       boolean not null,
    extra         text,
    constraint dl_domain_metadata_pkey primary key (table_key, domain, version)
);

-- The outbox: a row per version, written in the transaction that commits it.
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

-- The whole schema, for reading: what the migrations add up to. Written by `make docs`, checked by a test.

CREATE SCHEMA deltasql;

CREATE FUNCTION dl_applied(p_table_key integer, p_txns jsonb, OUT applied bigint, OUT version bigint) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    select count(*), max(a.version)
    from jsonb_array_elements(p_txns) x
    cross join lateral (select y.txn_version from dl_txn_actions y
        where y.table_key = p_table_key and y.app_id = x->>0 order by y.version desc limit 1) latest
    cross join lateral (select y.version from dl_txn_actions y
        where y.table_key = p_table_key and y.app_id = x->>0 and y.txn_version >= (x->>1)::bigint
        order by y.version limit 1) a
    where latest.txn_version >= (x->>1)::bigint
$$;

CREATE FUNCTION dl_commit(p_txn_id uuid, p_author text, p_message text, p_tables jsonb) RETURNS TABLE(table_key integer, version bigint, committed_at timestamp with time zone)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
declare
    num_tables constant int := jsonb_array_length(p_tables);
    t jsonb; h record; done record; at timestamptz; locked int := 0;
begin
    if p_tables @? '$[*].inline' then
        perform dl_stage(p_tables);
    end if;

    for h in select d.table_key, d.current_version, d.shape_version, d.committed_at from dl_tables d
             where d.table_key = any (array(select (x->>'key')::int from jsonb_array_elements(p_tables) x))
               and d.dropped_at is null order by d.table_key for update loop
        t := p_tables->locked;
        locked := locked + 1;
        exit when (t->>'key')::int <> h.table_key;
        at := greatest(at, h.committed_at
            + case when t ? 'in_commit_timestamp' then interval '1 millisecond' else interval '1 microsecond' end);
        if t ? 'check' then
            if h.current_version > (t->>'read')::bigint then
                raise exception 'winners to examine' using errcode = 'DL300',
                    detail = jsonb_build_object('key', h.table_key, 'head', h.current_version)::text;
            end if;
            continue;
        end if;
        if t ? 'txns' then
            done := dl_applied(h.table_key, t->'txns');
            if done.applied > 0 then
                raise exception 'applied before' using detail =
                        jsonb_build_object('key', h.table_key, 'version', done.version)::text,
                    errcode = case when done.applied = jsonb_array_length(t->'txns') then 'DL208' else 'DL207' end;
            end if;
        end if;
        if t ? 'borrowed' then
            if exists (select from dl_table_versions v where v.table_key = h.table_key
                       and v.txn_id in (select x::uuid from jsonb_array_elements_text(t->'borrowed') x)) then
                raise exception 'files of a transaction that committed meanwhile' using errcode = 'DL301';
            end if;
            insert into dl_borrowed_files (table_key, txn_id)
            select h.table_key, x::uuid from jsonb_array_elements_text(t->'borrowed') x on conflict do nothing;
        end if;
        if exists (select from dl_borrowed_files b where b.table_key = h.table_key and b.txn_id = p_txn_id) then
            raise exception 'files of this transaction were added by another one' using errcode = 'DL302',
                detail = jsonb_build_object('key', h.table_key)::text;
        end if;
        if t ? 'expected' then
            if h.current_version + 1 <> (t->>'expected')::bigint then
                raise exception 'version conflict' using errcode = 'DL409',
                    detail = jsonb_build_object('key', h.table_key, 'actual', h.current_version)::text;
            end if;
        elsif h.current_version > (t->>'read')::bigint and (h.shape_version > (t->>'read')::bigint
              or not (t->>'blind')::boolean or t ? 'txns' or t ? 'domains') then
            raise exception 'winners to examine' using errcode = 'DL300',
                detail = jsonb_build_object('key', h.table_key, 'head', h.current_version)::text;
        end if;
        if t ? 'details' then
            perform dl_write_details(t, h.current_version + 1);
        end if;
        if t ? 'partitions' then
            perform dl_note_partitions(h.table_key, t->'partitions');
        end if;
    end loop;
    -- The moment of the commit, taken under the locks: whoever reads the head later reads a later clock.
    at := greatest(at, clock_timestamp());
    if locked < num_tables or (t->>'key')::int <> h.table_key then
        raise exception 'a table of this commit is gone' using errcode = 'DL404',
            detail = (select coalesce(jsonb_agg(x->'key'), '[]') from jsonb_array_elements(p_tables) x where not exists (
                select from dl_tables d where d.table_key = (x->>'key')::int and d.dropped_at is null))::text;
    end if;

    if num_tables > 1 then
        insert into dl_transactions (txn_id, committed_at, author, message, num_tables, tables)
        select p_txn_id, at, p_author, p_message, count(*),
            jsonb_object_agg(d.namespace || '.' || d.name, d.current_version + 1)
        from jsonb_array_elements(p_tables) x join dl_tables d on d.table_key = (x->>'key')::int
        where not x ? 'check' having count(*) > 1;
    end if;
    return query with heads as (
        update dl_tables d
        set current_version = d.current_version + 1, committed_at = at,
            num_files = d.num_files + (x->>'growth')::bigint,
            shape_version = case when x ? 'reshapes' then d.current_version + 1 else d.shape_version end
        from jsonb_array_elements(p_tables) x where d.table_key = (x->>'key')::int and not x ? 'check'
        returning d.table_key, d.current_version as version, x
    ), versions as (
        insert into dl_table_versions (table_key, version, commit_id, txn_id, committed_at, committer, operation,
            operation_parameters, read_version, isolation_level, is_blind_append, data_change, has_metadata,
            has_protocol, has_txn, has_domain, in_commit_timestamp, num_adds, num_removes, commit_info)
        select v.table_key, v.version, (x->>'commit')::bigint, p_txn_id, at, x->>'committer', x->>'operation',
            x->>'parameters', (x->>'seen')::bigint, x->>'isolation', (x->>'blind')::boolean,
            (x->>'data_change')::boolean, x ? 'metadata', x ? 'protocol', x ? 'txns', x ? 'domains',
            x ? 'in_commit_timestamp', (x->>'num_adds')::int, (x->>'num_removes')::int, x->>'info'
        from heads v
    ), outbox as (
        insert into dl_mirror_status (table_key, version) select v.table_key, v.version from heads v
    ), written as (
        delete from dl_writes w where w.txn_id = p_txn_id
    )
    select v.table_key, v.version, at from heads v;
end $_$;

CREATE FUNCTION dl_find_files(p_table_key integer, p_paths text[]) RETURNS TABLE(path text, path_gen smallint, commit_id bigint, ord integer, removed_by bigint, deletion_vector text)
    LANGUAGE sql STABLE ROWS 100
    AS $$
    with recursive probe as (
        select w.path as wanted, a.path as found, 0 as gen, a.commit_id, a.ord, a.deletion_vector
        from unnest(p_paths) as w (path)
        join dl_add_files a
          on hashtextextended(a.path, (a.table_key::bigint << 16) | a.path_gen)
           = hashtextextended(w.path collate "C", p_table_key::bigint << 16) and a.path_gen is not null
        union all
        select p.wanted, a.path, p.gen + 1, a.commit_id, a.ord, a.deletion_vector
        from probe p
        join dl_add_files a
          on hashtextextended(a.path, (a.table_key::bigint << 16) | a.path_gen)
           = hashtextextended(p.wanted collate "C", (p_table_key::bigint << 16) | (p.gen + 1))
         and a.path_gen is not null
    ),
    named as materialized (
        select w.path collate "C" as path, (token.found)[1]::uuid as txn_id
        from unnest(p_paths) as w (path)
        cross join lateral regexp_matches(w.path, '-tx([0-9a-f]{32})', 'g') as token (found)
        where w.path like '%-tx%'
    ),
    their_files as materialized (
        select a.path, a.commit_id, a.ord, a.deletion_vector
        from (select distinct txn_id from named) n
        join dl_table_versions v on v.txn_id = n.txn_id and v.table_key = p_table_key
        join dl_add_files a on a.table_key = p_table_key and a.commit_id = v.commit_id and a.path_gen is null
    ),
    found as (
        select p.wanted as path, p.gen::smallint as path_gen,
               case when p.found = p.wanted then p.commit_id end as commit_id, p.ord, p.deletion_vector
        from probe p
        union all
        select f.path, null, f.commit_id, f.ord, f.deletion_vector
        from their_files f where f.path in (select n.path from named n)
    )
    select f.path, f.path_gen, f.commit_id, f.ord, r.commit_id, f.deletion_vector
    from found f
    left join dl_remove_files r
      on r.table_key = p_table_key and r.add_commit_id = f.commit_id and r.add_ord = f.ord
$$;

CREATE FUNCTION dl_note_partitions(p_table_key integer, p_partitions jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
    raise exception 'two partitions of table % share a key', p_table_key using errcode = 'DL500';
end $$;

CREATE FUNCTION dl_stage(p_tables jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $_$
begin
    insert into dl_add_files (table_key, commit_id, ord, size, modification_time, partition_key, data_change,
        path_gen, path, partition_values, stats, tags, deletion_vector, base_row_id,
        default_row_commit_version, clustering_provider, extra)
    select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, (f->>2)::bigint,
        (f->>3)::bigint, (f->>4)::boolean, (f->>5)::smallint, f->>6, f->>7, f->>8, f->>9, f->>10, (f->>11)::bigint,
        (f->>12)::bigint, f->>13, f->>14
    from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'adds') f;
    if p_tables @? '$[*].removes' then
        insert into dl_remove_files (table_key, commit_id, ord, add_commit_id, add_ord, deletion_timestamp,
            data_change, superseded, extended_file_metadata, path, partition_values, size, stats, tags,
            deletion_vector, base_row_id, default_row_commit_version, extra)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, (f->>2)::int,
            (f->>3)::bigint, (f->>4)::boolean, (f->>5)::boolean, (f->>6)::boolean, f->>7, f->>8, (f->>9)::bigint,
            f->>10, f->>11, f->>12, (f->>13)::bigint, (f->>14)::bigint, f->>15
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'removes') f;
    end if;
    if p_tables @? '$[*].cdc' then
        insert into dl_cdc_files (table_key, commit_id, ord, size, path, partition_values, tags, extra)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::int, (f->>1)::bigint, f->>2, f->>3, f->>4, f->>5
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'cdc') f;
    end if;
    if p_tables @? '$[*].places' then
        insert into dl_partition_files (table_key, commit_id, partition_key, ords)
        select (t->>'key')::int, (t->>'commit')::bigint, (f->>0)::bigint,
            array(select jsonb_array_elements_text(f->1)::int)
        from jsonb_array_elements(p_tables) t, jsonb_array_elements(t->'places') f;
    end if;
end $_$;

CREATE FUNCTION dl_write_details(t jsonb, p_version bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare k constant int := (t->>'key')::int; part jsonb;
begin
    part := t->'metadata';
    if part is not null then
        insert into dl_metadata_updates (table_key, version, metadata_id, name, description, format_provider,
            format_options, schema_string, partition_columns, configuration, created_time, extra)
        values (k, p_version, part->>'id', part->>'name', part->>'description', part->>'provider',
            part->>'options', part->>'schema',
            array(select jsonb_array_elements_text(part->'partition_columns')), part->>'configuration',
            (part->>'created_time')::bigint, part->>'extra');
        update dl_tables set properties = (part->>'configuration')::jsonb where table_key = k;
    end if;
    part := t->'protocol';
    if part is not null then
        insert into dl_protocol_updates (table_key, version, min_reader_version, min_writer_version,
            reader_features, writer_features, extra)
        values (k, p_version, (part->>'reader')::int, (part->>'writer')::int,
            case when part ? 'reader_features'
                 then array(select jsonb_array_elements_text(part->'reader_features')) end,
            case when part ? 'writer_features'
                 then array(select jsonb_array_elements_text(part->'writer_features')) end,
            part->>'extra');
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

CREATE TABLE dl_add_files (
    table_key integer NOT NULL,
    ord integer NOT NULL,
    commit_id bigint NOT NULL,
    size bigint NOT NULL,
    modification_time bigint NOT NULL,
    partition_key bigint,
    data_change boolean NOT NULL,
    path_gen smallint,
    path text NOT NULL COLLATE pg_catalog."C",
    partition_values text NOT NULL,
    stats text,
    tags text,
    deletion_vector text,
    base_row_id bigint,
    default_row_commit_version bigint,
    clustering_provider text,
    extra text,
    CONSTRAINT dl_add_files_size_check CHECK ((size >= 0))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05');

CREATE TABLE dl_borrowed_files (
    table_key integer NOT NULL,
    txn_id uuid NOT NULL
);

CREATE TABLE dl_cdc_files (
    table_key integer NOT NULL,
    ord integer NOT NULL,
    commit_id bigint NOT NULL,
    size bigint NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    partition_values text NOT NULL,
    tags text,
    extra text
);

CREATE TABLE dl_column_bounds (
    table_key integer NOT NULL,
    commit_id bigint NOT NULL,
    column_path text NOT NULL,
    bounds bytea NOT NULL
);
ALTER TABLE ONLY dl_column_bounds ALTER COLUMN bounds SET STORAGE EXTERNAL;

CREATE SEQUENCE dl_commit_ids
    START WITH 1
    INCREMENT BY 64
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE dl_domain_metadata (
    table_key integer NOT NULL,
    domain text NOT NULL,
    version bigint NOT NULL,
    configuration text NOT NULL,
    removed boolean NOT NULL,
    extra text
);

CREATE TABLE dl_remove_files (
    table_key integer NOT NULL,
    ord integer NOT NULL,
    commit_id bigint NOT NULL,
    add_commit_id bigint,
    add_ord integer,
    deletion_timestamp bigint,
    data_change boolean NOT NULL,
    superseded boolean DEFAULT false NOT NULL,
    extended_file_metadata boolean,
    path text NOT NULL COLLATE pg_catalog."C",
    partition_values text,
    size bigint,
    stats text,
    tags text,
    deletion_vector text,
    base_row_id bigint,
    default_row_commit_version bigint,
    extra text
);

CREATE TABLE dl_table_versions (
    table_key integer NOT NULL,
    version bigint NOT NULL,
    commit_id bigint NOT NULL,
    txn_id uuid NOT NULL,
    committed_at timestamp with time zone NOT NULL,
    committer text,
    operation text NOT NULL,
    operation_parameters text,
    read_version bigint,
    isolation_level text,
    is_blind_append boolean NOT NULL,
    data_change boolean NOT NULL,
    has_metadata boolean NOT NULL,
    has_protocol boolean NOT NULL,
    has_txn boolean NOT NULL,
    has_domain boolean NOT NULL,
    num_adds integer NOT NULL,
    num_removes integer NOT NULL,
    commit_info text NOT NULL,
    in_commit_timestamp boolean DEFAULT false NOT NULL
);

CREATE TABLE dl_tables (
    table_key integer NOT NULL,
    table_id uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    location text NOT NULL,
    current_version bigint DEFAULT '-1'::integer NOT NULL,
    shape_version bigint DEFAULT '-1'::integer NOT NULL,
    num_files bigint DEFAULT 0 NOT NULL,
    committed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    dropped_at timestamp with time zone,
    properties jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT dl_tables_version_check CHECK ((current_version >= '-1'::integer))
)
WITH (fillfactor='25', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

CREATE VIEW dl_files AS
 SELECT t.table_id,
    t.namespace,
    t.name,
    v.version AS added_version,
    rv.version AS removed_version,
    a.path,
    a.size,
    a.modification_time,
    a.partition_values,
    a.stats,
    a.data_change,
    a.deletion_vector
   FROM ((((dl_add_files a
     JOIN dl_tables t USING (table_key))
     JOIN dl_table_versions v ON ((v.commit_id = a.commit_id)))
     LEFT JOIN dl_remove_files r ON (((r.table_key = a.table_key) AND (r.add_commit_id = a.commit_id) AND (r.add_ord = a.ord))))
     LEFT JOIN dl_table_versions rv ON ((rv.commit_id = r.commit_id)));

CREATE VIEW dl_history AS
 SELECT t.table_id,
    t.namespace,
    t.name,
    v.version,
    v.committed_at,
    v.committer,
    v.operation,
    v.operation_parameters,
    v.is_blind_append,
    v.num_adds,
    v.num_removes,
    v.txn_id,
    v.commit_info
   FROM (dl_table_versions v
     JOIN dl_tables t USING (table_key));

CREATE TABLE dl_metadata_updates (
    table_key integer NOT NULL,
    version bigint NOT NULL,
    metadata_id text NOT NULL,
    name text,
    description text,
    format_provider text NOT NULL,
    format_options text NOT NULL,
    schema_string text NOT NULL,
    partition_columns text[] NOT NULL,
    configuration text NOT NULL,
    created_time bigint,
    extra text
);

CREATE TABLE dl_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE dl_mirror_status (
    table_key integer NOT NULL,
    version bigint NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    json_written boolean DEFAULT false NOT NULL,
    checkpoint_written boolean DEFAULT false NOT NULL,
    error_message text,
    retry_count integer DEFAULT 0 NOT NULL,
    last_attempt_at timestamp with time zone,
    CONSTRAINT dl_mirror_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'SUCCESS'::text, 'FAILED'::text])))
)
WITH (fillfactor='70');

CREATE TABLE dl_partition_files (
    table_key integer NOT NULL,
    partition_key bigint NOT NULL,
    commit_id bigint NOT NULL,
    ords integer[] NOT NULL
);

CREATE TABLE dl_partitions (
    table_key integer NOT NULL,
    partition_key bigint NOT NULL,
    partition_values text NOT NULL
);

CREATE TABLE dl_protocol_updates (
    table_key integer NOT NULL,
    version bigint NOT NULL,
    min_reader_version integer NOT NULL,
    min_writer_version integer NOT NULL,
    reader_features text[],
    writer_features text[],
    extra text
);

ALTER TABLE dl_tables ALTER COLUMN table_key ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dl_tables_table_key_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE dl_transactions (
    txn_id uuid NOT NULL,
    committed_at timestamp with time zone NOT NULL,
    author text,
    message text,
    num_tables integer NOT NULL,
    tables text,
    manifest bigint,
    together text
);

CREATE TABLE dl_txn_actions (
    table_key integer NOT NULL,
    app_id text NOT NULL,
    version bigint NOT NULL,
    txn_version bigint NOT NULL,
    last_updated bigint,
    extra text
);

CREATE TABLE dl_writes (
    txn_id uuid NOT NULL,
    table_key integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY dl_add_files
    ADD CONSTRAINT dl_add_files_pkey PRIMARY KEY (table_key, commit_id, ord);

ALTER TABLE ONLY dl_borrowed_files
    ADD CONSTRAINT dl_borrowed_files_pkey PRIMARY KEY (table_key, txn_id);

ALTER TABLE ONLY dl_cdc_files
    ADD CONSTRAINT dl_cdc_files_pkey PRIMARY KEY (table_key, commit_id, ord);

ALTER TABLE ONLY dl_column_bounds
    ADD CONSTRAINT dl_column_bounds_pkey PRIMARY KEY (table_key, column_path, commit_id);

ALTER TABLE ONLY dl_domain_metadata
    ADD CONSTRAINT dl_domain_metadata_pkey PRIMARY KEY (table_key, domain, version);

ALTER TABLE ONLY dl_metadata_updates
    ADD CONSTRAINT dl_metadata_updates_pkey PRIMARY KEY (table_key, version);

ALTER TABLE ONLY dl_migrations
    ADD CONSTRAINT dl_migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY dl_mirror_status
    ADD CONSTRAINT dl_mirror_status_pkey PRIMARY KEY (table_key, version);

ALTER TABLE ONLY dl_partition_files
    ADD CONSTRAINT dl_partition_files_pkey PRIMARY KEY (table_key, partition_key, commit_id);

ALTER TABLE ONLY dl_partitions
    ADD CONSTRAINT dl_partitions_pkey PRIMARY KEY (table_key, partition_key);

ALTER TABLE ONLY dl_protocol_updates
    ADD CONSTRAINT dl_protocol_updates_pkey PRIMARY KEY (table_key, version);

ALTER TABLE ONLY dl_remove_files
    ADD CONSTRAINT dl_remove_files_add_key UNIQUE (table_key, add_commit_id, add_ord);

ALTER TABLE ONLY dl_remove_files
    ADD CONSTRAINT dl_remove_files_pkey PRIMARY KEY (table_key, commit_id, ord);

ALTER TABLE ONLY dl_table_versions
    ADD CONSTRAINT dl_table_versions_commit_id_key UNIQUE (commit_id);

ALTER TABLE ONLY dl_table_versions
    ADD CONSTRAINT dl_table_versions_pkey PRIMARY KEY (table_key, version);

ALTER TABLE ONLY dl_tables
    ADD CONSTRAINT dl_tables_pkey PRIMARY KEY (table_key);

ALTER TABLE ONLY dl_tables
    ADD CONSTRAINT dl_tables_table_id_key UNIQUE (table_id);

ALTER TABLE ONLY dl_transactions
    ADD CONSTRAINT dl_transactions_pkey PRIMARY KEY (txn_id);

ALTER TABLE ONLY dl_txn_actions
    ADD CONSTRAINT dl_txn_actions_pkey PRIMARY KEY (table_key, app_id, version);

ALTER TABLE ONLY dl_writes
    ADD CONSTRAINT dl_writes_pkey PRIMARY KEY (txn_id, table_key);

CREATE UNIQUE INDEX dl_add_files_path_key ON dl_add_files USING btree (hashtextextended(path, (((table_key)::bigint << 16) | (path_gen)::bigint))) WHERE (path_gen IS NOT NULL);

CREATE INDEX dl_mirror_status_checkpoint ON dl_mirror_status USING btree (table_key, version) WHERE checkpoint_written;

CREATE INDEX dl_mirror_status_open ON dl_mirror_status USING btree (table_key, version) WHERE (status <> 'SUCCESS'::text);

CREATE INDEX dl_table_versions_txn_id ON dl_table_versions USING btree (txn_id);

CREATE UNIQUE INDEX dl_tables_location_key ON dl_tables USING btree (location) WHERE (dropped_at IS NULL);

CREATE UNIQUE INDEX dl_tables_name_key ON dl_tables USING btree (namespace, name) WHERE (dropped_at IS NULL);

CREATE INDEX dl_transactions_committed_at ON dl_transactions USING btree (committed_at);

CREATE UNIQUE INDEX dl_transactions_manifest ON dl_transactions USING btree (manifest) WHERE (manifest IS NOT NULL);

CREATE INDEX dl_transactions_open ON dl_transactions USING btree (committed_at) WHERE ((manifest IS NULL) AND (tables IS NOT NULL));

ALTER TABLE ONLY dl_writes
    ADD CONSTRAINT dl_writes_table_key_fkey FOREIGN KEY (table_key) REFERENCES dl_tables(table_key);

-- Which rows of dl_add_files hold these paths, and which commit, if any, removed them.
-- A name with a transaction's token leads to that transaction's commit. Any other path's rows sit under path_gen
-- 0, 1, 2 …: probing stops at the first empty place. The stored path is compared as well, so a collision of hashes
-- costs a probe and nothing else; it is reported without a commit_id, because the place is taken.
create function dl_find_files(p_table_key int, p_paths text[])
returns table (path text, path_gen smallint, commit_id bigint, ord int, removed_by bigint, deletion_vector text)
language sql stable rows 100 as $$
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

-- Files of small commits, given as JSON in the same round trip as the commit itself.
create function dl_stage(p_tables jsonb) returns void language plpgsql as $$
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
end $$;

-- What a version holds besides files: few rows, written under the table's lock.
create function dl_write_details(t jsonb, p_version bigint) returns void language plpgsql as $$
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

-- The distinct partitions that a commit touches; nearly always they are known already.
create function dl_note_partitions(p_table_key int, p_partitions jsonb) returns void language plpgsql as $$
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

-- How many of these application transactions were applied already, the latest of each application covering it, and
-- the version that applied the last of them.
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

-- One commit to any number of tables. Locks all heads in key order, decides for every table, then writes.
-- Errors carry the facts as JSON in DETAIL: DL404 table gone, DL409 strict version conflict, DL208 application
-- transactions applied before (DL207: some of them), DL300 winners that the caller has to examine under the lock,
-- DL301 files whose places must be looked up again, DL302 files that another transaction added first.
create function dl_commit(p_txn_id uuid, p_author text, p_message text, p_tables jsonb)
returns table (table_key int, version bigint, committed_at timestamptz)
language plpgsql as $$
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
        at := greatest(at, h.committed_at + interval '1 microsecond');
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
        insert into dl_transactions (txn_id, committed_at, author, message, num_tables)
        values (p_txn_id, at, p_author, p_message, num_tables);
    end if;
    return query with heads as (
        update dl_tables d
        set current_version = d.current_version + 1, committed_at = at,
            num_files = d.num_files + (x->>'growth')::bigint,
            shape_version = case when x ? 'reshapes' then d.current_version + 1 else d.shape_version end
        from jsonb_array_elements(p_tables) x where d.table_key = (x->>'key')::int
        returning d.table_key, d.current_version as version, x
    ), versions as (
        insert into dl_table_versions (table_key, version, commit_id, txn_id, committed_at, committer, operation,
            operation_parameters, read_version, isolation_level, is_blind_append, data_change, has_metadata,
            has_protocol, has_txn, has_domain, num_adds, num_removes, commit_info)
        select v.table_key, v.version, (x->>'commit')::bigint, p_txn_id, at, x->>'committer', x->>'operation',
            x->>'parameters', (x->>'seen')::bigint, x->>'isolation', (x->>'blind')::boolean,
            (x->>'data_change')::boolean, x ? 'metadata', x ? 'protocol', x ? 'txns', x ? 'domains',
            (x->>'num_adds')::int, (x->>'num_removes')::int, x->>'info'
        from heads v
    ), outbox as (
        insert into dl_mirror_status (table_key, version) select v.table_key, v.version from heads v
    )
    select v.table_key, v.version, at from heads v;
end $$;

-- Tables that a transaction only read, and what its tables know of each other.

-- The versions that the tables of a transaction became, as JSON; null for those of earlier releases, whose published commits
-- do not say it.
alter table dl_transactions add column tables text;

-- The manifest that tells outside readers of it: its number, and the versions to read together from then on, as JSON.
alter table dl_transactions add column manifest bigint, add column together text;
create unique index dl_transactions_manifest on dl_transactions (manifest) where manifest is not null;
create index dl_transactions_open on dl_transactions (committed_at) where manifest is null and tables is not null;
create index dl_transactions_committed_at on dl_transactions (committed_at);

-- As before; besides, tables with `check` were only read: they are locked and checked with the others, and get no version.
create or replace function dl_commit(p_txn_id uuid, p_author text, p_message text, p_tables jsonb)
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
end $$;

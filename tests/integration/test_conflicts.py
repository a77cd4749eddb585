"""Each cell of the conflict table: our transaction begins before the winner and commits after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import deltasql
from deltasql import Add, CommitInfo, DomainMetadata, Metadata, Protocol, Reads, Txn
from tests.factories import add, paths, remove

OLD = [
    add("f1.parquet", lo=0, hi=9),
    add("f2.parquet", lo=10, hi=19),
    add("f3.parquet", lo=20, hi=29),
    add("f4.parquet", lo=30, hi=39),
]


class Change:
    """A commit to be staged: its actions, reads and isolation level."""

    def __init__(self, *actions: Any, reads: Reads | None = None, isolation: str | None = None) -> None:
        self.actions, self.reads, self.isolation = actions, reads, isolation


def with_schema(table: deltasql.Table, **configuration: str) -> Metadata:
    state = table.state()
    assert state.metadata is not None
    return Metadata(id=table.id, schema_string=state.metadata.schema_string, configuration=configuration)


def blind_insert(lo: int = 100) -> Change:
    return Change(add(lo=lo, hi=lo + 9), CommitInfo("WRITE"))


def rewrite(file: str, where: str, lo: int, *also_read: str) -> Change:
    """An UPDATE that reads by predicate and replaces one file."""
    reads = Reads(predicates=(where,), files=frozenset({file, *also_read}))
    return Change(remove(file), add(lo=lo, hi=lo + 9), CommitInfo("UPDATE"), reads=reads)


def optimize(*files: str) -> Change:
    removes = [remove(file, data_change=False) for file in files]
    return Change(*removes, add(lo=0, hi=39, data_change=False), CommitInfo("OPTIMIZE"))


def insert_select(where: str, *files: str) -> Change:
    return Change(add(lo=500, hi=509), CommitInfo("WRITE"), reads=Reads(predicates=(where,), files=frozenset(files)))


def overwrite() -> Change:
    removes = [remove(a.path) for a in OLD]
    return Change(
        *removes, add(lo=0, hi=1), CommitInfo("WRITE"), reads=Reads(whole_table=True), isolation="serializable"
    )


def alter(*read: str, whole: bool = False) -> Callable[[deltasql.Table], Change]:
    reads = Reads(files=frozenset(read), whole_table=whole)
    return lambda table: Change(with_schema(table, owner="me"), CommitInfo("SET TBLPROPERTIES"), reads=reads)


CASES: list[tuple[str, Any, Any, type[deltasql.CommitConflict] | None]] = [
    # name, ours, winner, expected conflict (None: ours is rebased)
    ("blind insert / blind insert", blind_insert(), blind_insert(), None),
    ("blind insert / update", blind_insert(), rewrite("f1.parquet", "id = 1", 0), None),
    ("blind insert / optimize", blind_insert(), optimize("f1.parquet", "f2.parquet"), None),
    ("blind insert / metadata", blind_insert(), alter(), deltasql.MetadataChanged),
    ("update / blind insert", rewrite("f1.parquet", "id < 10", 0), blind_insert(5), None),
    ("update / update elsewhere", rewrite("f1.parquet", "id < 10", 0), rewrite("f3.parquet", "id = 25", 20), None),
    (
        "update / update whose rows we match",
        rewrite("f1.parquet", "id < 10", 0),
        rewrite("f3.parquet", "id = 25", 5),
        deltasql.ConcurrentAppend,
    ),
    (
        "update / update of a file we read",
        rewrite("f1.parquet", "id < 20", 0, "f2.parquet"),
        rewrite("f2.parquet", "id = 15", 60),
        deltasql.ConcurrentDeleteRead,
    ),
    (
        "update / delete of the file we rewrite",
        Change(remove("f1.parquet"), add(lo=0, hi=9), reads=Reads()),
        Change(remove("f1.parquet"), CommitInfo("DELETE")),
        deltasql.ConcurrentDeleteDelete,
    ),
    ("update / optimize elsewhere", rewrite("f1.parquet", "id < 10", 0), optimize("f3.parquet", "f4.parquet"), None),
    (
        "update / optimize of a file we only read",
        rewrite("f1.parquet", "id < 20", 0, "f2.parquet"),
        optimize("f2.parquet", "f3.parquet"),
        None,
    ),
    (
        "update / optimize of the file we rewrite",
        rewrite("f1.parquet", "id < 10", 0),
        optimize("f1.parquet", "f2.parquet"),
        deltasql.ConcurrentDeleteDelete,
    ),
    ("update / metadata", rewrite("f1.parquet", "id < 10", 0), alter(), deltasql.MetadataChanged),
    ("insert-select / blind insert", insert_select("id < 10", "f1.parquet"), blind_insert(5), None),
    (
        "insert-select / update in the read set",
        insert_select("id < 10", "f1.parquet"),
        rewrite("f1.parquet", "id = 1", 0),
        deltasql.CommitConflict,
    ),
    (
        "insert-select / update outside the read set",
        insert_select("id < 10", "f1.parquet"),
        rewrite("f3.parquet", "id = 25", 20),
        None,
    ),
    (
        "insert-select / optimize",
        insert_select("id < 10", "f1.parquet"),
        optimize("f1.parquet", "f2.parquet"),
        None,
    ),
    ("insert-select / metadata", insert_select("id < 10"), alter(), deltasql.MetadataChanged),
    ("optimize / blind insert", optimize("f1.parquet", "f2.parquet"), blind_insert(), None),
    ("optimize / update elsewhere", optimize("f1.parquet", "f2.parquet"), rewrite("f3.parquet", "id=25", 5), None),
    (
        "optimize / update of the same files",
        optimize("f1.parquet", "f2.parquet"),
        rewrite("f2.parquet", "id = 15", 10),
        deltasql.CommitConflict,
    ),
    (
        "optimize / optimize elsewhere",
        optimize("f1.parquet", "f2.parquet"),
        optimize("f3.parquet", "f4.parquet"),
        None,
    ),
    (
        "optimize / optimize of the same files",
        optimize("f1.parquet", "f2.parquet"),
        optimize("f2.parquet", "f3.parquet"),
        deltasql.ConcurrentDeleteDelete,
    ),
    ("optimize / metadata", optimize("f1.parquet"), alter(), deltasql.MetadataChanged),
    ("alter / blind insert", alter(), blind_insert(), None),
    ("alter that read the table / blind insert", alter(whole=True), blind_insert(), deltasql.ConcurrentAppend),
    ("alter / update", alter(), rewrite("f1.parquet", "id = 1", 0), deltasql.CommitConflict),
    ("alter / delete", alter(), Change(remove("f1.parquet")), deltasql.ConcurrentDeleteRead),
    ("alter / optimize", alter("f1.parquet"), optimize("f1.parquet", "f2.parquet"), None),
    ("alter / metadata", alter(), alter(), deltasql.MetadataChanged),
    ("overwrite / blind insert", overwrite(), blind_insert(), deltasql.ConcurrentAppend),
    ("overwrite / update", overwrite(), rewrite("f1.parquet", "id = 1", 0), deltasql.CommitConflict),
    ("overwrite / optimize", overwrite(), optimize("f1.parquet"), deltasql.ConcurrentDeleteDelete),
    ("overwrite / metadata", overwrite(), alter(), deltasql.MetadataChanged),
]


@pytest.mark.parametrize(("ours", "winner", "conflict"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_conflict(
    lake: deltasql.Lake,
    make_table: Callable[..., deltasql.Table],
    ours: Any,
    winner: Any,
    conflict: type[deltasql.CommitConflict] | None,
) -> None:
    table = make_table()
    commit(lake, table, Change(*OLD))
    loser = staged(lake, table, ours)
    commit(lake, table, winner, author="winner")
    before = paths(table.files())
    if conflict is None:
        loser.commit()
        assert table.version == 3
        assert_snapshot_is_replay(table)
    else:
        with pytest.raises(conflict) as caught:
            loser.commit()
        assert (caught.value.winner, caught.value.committer) == (2, "winner")
        assert (caught.value.table, caught.value.table_id) == (table.name, table.id)
        assert table.name in str(caught.value)
        assert table.version == 2
        assert paths(table.files()) == before


def staged(lake: deltasql.Lake, table: deltasql.Table, change: Any, **options: Any) -> deltasql.Transaction:
    made = change(table) if callable(change) else change
    tx = lake.begin(isolation=made.isolation, **options)
    tx.stage(table, made.actions, reads=made.reads)
    return tx


def commit(lake: deltasql.Lake, table: deltasql.Table, change: Any, **options: Any) -> None:
    staged(lake, table, change, **options).commit()


def assert_snapshot_is_replay(table: deltasql.Table) -> None:
    """Assert that the files of each version follow from the previous version and the counts in the history."""
    live: set[str] = set()
    for version in range(table.version + 1):
        now = set(paths(table.files(version=version)))
        entry = table.history()[table.version - version]
        assert len(now - live) == entry.num_added_files
        assert len(live - now) == entry.num_removed_files
        live = now
    assert live == set(paths(table.files()))


class TestSerializable:
    """Under `delta.isolationLevel = Serializable`, blind appends conflict with reads that match them."""

    @pytest.mark.parametrize(
        ("ours", "winner", "conflict"),
        [
            (blind_insert(), blind_insert(), None),
            (rewrite("f1.parquet", "id < 10", 0), blind_insert(5), deltasql.ConcurrentAppend),
            (rewrite("f1.parquet", "id < 10", 0), blind_insert(50), None),
            (insert_select("id < 10"), blind_insert(5), deltasql.ConcurrentAppend),
            (optimize("f1.parquet", "f2.parquet"), blind_insert(5), None),
        ],
        ids=["insert", "update matches", "update elsewhere", "insert-select", "optimize"],
    )
    def test_blind_insert_wins(
        self,
        lake: deltasql.Lake,
        make_table: Callable[..., deltasql.Table],
        ours: Change,
        winner: Change,
        conflict: type[deltasql.CommitConflict] | None,
    ) -> None:
        table = make_table(properties={"delta.isolationLevel": "Serializable"})
        commit(lake, table, Change(*OLD))
        loser = staged(lake, table, ours)
        commit(lake, table, winner)
        if conflict is None:
            loser.commit()
            return
        with pytest.raises(conflict):
            loser.commit()


class TestUndecidablePredicates:
    @pytest.mark.parametrize("where", ["id + 1 < 10", "upper(day) = 'X'", "amount > 3", "not sql at all ("])
    def test_predicate(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], where: str) -> None:
        table = make_table()
        commit(lake, table, Change(*OLD))
        loser = staged(lake, table, rewrite("f1.parquet", where, 0))
        commit(lake, table, rewrite("f3.parquet", "id = 25", 20))
        with pytest.raises(deltasql.ConcurrentAppend):
            loser.commit()

    def test_missing_statistics(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table = make_table()
        commit(lake, table, Change(*OLD))
        loser = staged(lake, table, rewrite("f1.parquet", "id < 10", 0))
        commit(lake, table, Change(remove("f3.parquet"), add("plain.parquet"), reads=Reads()))
        with pytest.raises(deltasql.ConcurrentAppend, match=r"plain\.parquet"):
            loser.commit()

    def test_partition_values_decide(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table = make_table(partition_by=["day"])
        days = {d: add(f"day={d}/x.parquet", partition_values={"day": d}) for d in ("2026-01-01", "2026-01-02")}
        commit(lake, table, Change(*days.values()))

        def rewritten(day: str) -> Change:
            old = days[day].path
            new = add(f"day={day}/y-{day}.parquet", partition_values={"day": day})
            return Change(remove(old), new, reads=Reads(predicates=(f"day = '{day}'",), files=frozenset({old})))

        loser = staged(lake, table, rewritten("2026-01-01"))
        commit(lake, table, rewritten("2026-01-02"))
        loser.commit()
        assert table.version == 3


class TestProtocol:
    def test_a_supported_protocol_change_is_no_conflict(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table()
        loser = staged(lake, table, blind_insert())
        commit(lake, table, Change(Protocol(1, 3)))
        loser.commit()
        assert table.version == 2

    def test_both_change_the_protocol(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table = make_table()
        loser = staged(lake, table, Change(Protocol(1, 4)))
        commit(lake, table, Change(Protocol(1, 3)))
        with pytest.raises(deltasql.ProtocolChanged):
            loser.commit()


class TestApplications:
    def test_same_application_same_version_is_applied_once(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        a, b = make_table("a"), make_table("b")
        first, second = (lake.begin(app=("stream", 7)) for _ in range(2))
        for tx in (first, second):
            tx.stage(a, [add()])
            tx.stage(b, [add()])
        assert first.commit() == {a.name: 1, b.name: 1}
        commit(lake, a, blind_insert())
        assert second.commit() == {a.name: 1, b.name: 1}
        assert (a.version, b.version) == (2, 1)
        assert (a.files().num_rows, b.files().num_rows) == (2, 1)

    def test_replay_with_one_more_table_writes_only_that_table(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        a, b = make_table("a"), make_table("b")
        with lake.begin(app=("stream", 1)) as tx:
            tx.stage(a, [add()])
        with lake.begin(app=("stream", 1)) as tx:
            tx.stage(a, [add()])
            tx.stage(b, [add()])
        assert tx.versions == {a.name: 1, b.name: 1}
        assert a.files().num_rows == b.files().num_rows == 1

    @pytest.mark.parametrize("files", [1, 100], ids=["one call", "copy"])
    def test_replay_with_a_remove_in_another_table_is_rejected(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], files: int
    ) -> None:
        """The remove would delete a file that did not exist when the application version was applied."""
        a, b = make_table("a"), make_table("b")
        with lake.begin(app=("stream", 1)) as tx:
            tx.stage(a, [add() for _ in range(files)])
        commit(lake, b, Change(add("late.parquet")))
        with pytest.raises(
            deltasql.ConcurrentTransaction, match=r"already applied to 1 other tables.*separate transaction"
        ):
            with lake.begin(app=("stream", 1)) as tx:
                tx.stage(a, [add() for _ in range(files)])
                tx.stage(b, [remove("late.parquet")])
        assert (a.version, b.version, b.files().num_rows) == (1, 1, 1)

    def test_the_same_application_version_at_the_same_time(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        """The second commit is recognised as already applied, although it would also conflict."""
        table = make_table()
        commit(lake, table, Change(add("old.parquet")))
        both = [lake.begin(app=("stream", 1)) for _ in range(2)]
        for tx in both:
            tx.stage(table, [add() for _ in range(100)], reads=Reads(whole_table=True))
        assert [tx.commit() for tx in both] == [{table.name: 2}] * 2

    def test_a_winner_with_a_lower_version_of_our_application(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table()
        loser = lake.begin()
        loser.stage(table, [add(), Txn("stream", 9)])
        commit(lake, table, Change(add(), Txn("stream", 8)))
        with pytest.raises(deltasql.ConcurrentTransaction, match="stream"):
            loser.commit()

    def test_other_applications_do_not_conflict(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table()
        ours = lake.begin()
        ours.stage(table, [add(), Txn("mine", 1)])
        commit(lake, table, Change(add(), Txn("yours", 1)))
        ours.commit()
        assert table.version == 2

    def test_several_applications_of_which_some_were_applied(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table()
        commit(lake, table, Change(add(), Txn("y", 1)))
        with pytest.raises(deltasql.ConcurrentTransaction, match="only some of the application transactions"):
            commit(lake, table, Change(add(), Txn("y", 1), Txn("z", 1)))
        assert table.version == 1

    def test_same_domain(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table = make_table(properties={"delta.feature.domainMetadata": "supported"})
        loser = staged(lake, table, Change(DomainMetadata("a", "1"), add()))
        other = staged(lake, table, Change(DomainMetadata("b", "1"), add()))
        commit(lake, table, Change(DomainMetadata("a", "2")))
        other.commit()
        with pytest.raises(deltasql.ConcurrentTransaction, match="'a'"):
            loser.commit()


def test_rows_that_were_read_and_rewritten(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    """A delete after an OPTIMIZE still conflicts with the read of the original file."""
    table = make_table()
    commit(lake, table, Change(*OLD))
    ours = staged(lake, table, insert_select("id < 10", "f1.parquet"))
    moved = Change(remove("f1.parquet", data_change=False), add("g.parquet", data_change=False), CommitInfo("OPTIMIZE"))
    commit(lake, table, moved)
    commit(lake, table, Change(remove("g.parquet"), CommitInfo("DELETE")))
    with pytest.raises(deltasql.ConcurrentDeleteRead, match=r"g\.parquet"):
        ours.commit()


def test_the_first_conflict_aborts_every_table(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    a, b, c = (make_table(name) for name in "abc")
    commit(lake, b, Change(*OLD))
    tx = lake.begin()
    tx.stage(a, [add()])
    tx.stage(b, [remove("f1.parquet")])
    tx.stage(c, [add()])
    commit(lake, b, Change(remove("f1.parquet")))
    with pytest.raises(deltasql.ConcurrentDeleteDelete, match=b.name):
        tx.commit()
    assert (a.version, b.version, c.version) == (0, 2, 0)


def test_many_winners_are_examined_in_order(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    table = make_table()
    commit(lake, table, Change(*OLD))
    loser = staged(lake, table, rewrite("f1.parquet", "id < 10", 0))
    for _ in range(5):
        commit(lake, table, blind_insert())
    commit(lake, table, rewrite("f3.parquet", "id = 25", 5))
    commit(lake, table, Change(remove("f1.parquet")))
    with pytest.raises(deltasql.ConcurrentAppend) as caught:
        loser.commit()
    assert caught.value.winner == 7


def test_a_path_added_again_replaces_the_file(lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
    """The newest add of a path counts, and a removed path may be added again, as in the Delta protocol."""
    table = make_table()
    for size in (1, 2, 3):
        commit(lake, table, Change(Add(path="a.parquet", size=size, modification_time=0)))
    assert table.files().select(["path", "size"]).to_pylist() == [{"path": "a.parquet", "size": 3}]
    commit(lake, table, Change(remove("a.parquet")))
    assert table.files().num_rows == 0
    commit(lake, table, Change(*[Add(path=f"{n}.parquet", size=4, modification_time=0) for n in "ab"]))
    assert paths(table.files()) == ["a.parquet", "b.parquet"]
    many = [Add(path=f"{n}.parquet", size=5, modification_time=0) for n in ("a", *range(100))]
    commit(lake, table, Change(*many))
    assert table.files().num_rows == 102
    assert table.files(version=2)["size"].to_pylist() == [2]
    assert lake.tables()[[i.name for i in lake.tables()].index(table.name)].num_files == 102


class TestFilesWithATransactionToken:
    """A path with a transaction token may be removed and added again, and is in the table at most once."""

    def test_added_removed_and_added_again(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table()
        tx = lake.begin()
        path = f"part{tx.token}.parquet"
        tx.stage(table, [add(path), add("plain.parquet")])
        tx.commit()
        for _ in range(3):
            commit(lake, table, Change(remove(path)))
            assert paths(table.files()) == ["plain.parquet"]
            commit(lake, table, Change(add(path)))
            commit(lake, table, Change(add(path)))
            assert paths(table.files()) == [path, "plain.parquet"]

    def test_two_tokens_in_one_name(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table, first, second = make_table(), lake.begin(), lake.begin()
        path = f"part{first.token}{second.token}.parquet"
        second.stage(table, [add(path)])
        second.commit()
        commit(lake, table, Change(add(path)))
        assert paths(table.files()) == [path]
        commit(lake, table, Change(remove(path)))
        assert paths(table.files()) == []

    def test_a_repeated_token_in_one_name(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> None:
        table, tx = make_table(), lake.begin()
        tx.stage(table, [add(f"x{tx.token}/y{tx.token}.parquet"), add("plain.parquet")])
        tx.commit()
        commit(lake, table, Change(add("plain.parquet")))
        assert len(paths(table.files())) == 2
        commit(lake, table, Change(remove("plain.parquet")))
        assert len(paths(table.files())) == 1

    @pytest.mark.parametrize("count", [1, 100], ids=["one call", "copy"])
    def test_files_taken_over_by_another_transaction(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table], count: int
    ) -> None:
        """After another transaction commits the files of a transaction, the latter conflicts."""
        table, owner = make_table(), lake.begin()
        files = [add(f"part-{i}{owner.token}.parquet") for i in range(count)]
        owner.stage(table, files)
        commit(lake, table, Change(*files))
        with pytest.raises(deltasql.ConcurrentTransaction, match="another transaction already added files"):
            owner.commit()
        assert len(paths(table.files())) == count
        commit(lake, table, Change(remove(files[0].path)))
        assert len(paths(table.files())) == count - 1


class TestDeletionVectors:
    """A file is identified by its path and its deletion vector."""

    @pytest.fixture
    def table(self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]) -> deltasql.Table:
        made = make_table(properties={"delta.enableDeletionVectors": "true"})
        commit(lake, made, Change(add("p.parquet")))
        return made

    def test_a_vector_replaces_another(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        commit(lake, table, Change(remove("p.parquet"), add("p.parquet", deletion_vector=vector(1))))
        again = remove("p.parquet", deletion_vector=vector(1))
        commit(lake, table, Change(again, add("p.parquet", deletion_vector=vector(2))))
        assert paths(table.files()) == ["p.parquet"]
        assert f"{2:020d}" in table.files()["deletion_vector"].to_pylist()[0]
        commit(lake, table, Change(remove("p.parquet", deletion_vector=vector(2))))
        assert paths(table.files()) == []

    @pytest.mark.parametrize("action", [add, remove], ids=["add without its remove", "remove of another vector"])
    def test_another_vector_is_another_file(
        self, lake: deltasql.Lake, table: deltasql.Table, action: Callable[..., Any]
    ) -> None:
        with pytest.raises(deltasql.ValidationError, match="deletion vector"):
            commit(lake, table, Change(action("p.parquet", deletion_vector=vector(1))))
        assert table.version == 1

    def test_a_concurrently_changed_vector_is_a_conflict(self, lake: deltasql.Lake, table: deltasql.Table) -> None:
        loser = staged(lake, table, Change(remove("p.parquet"), add("q.parquet")))
        commit(lake, table, Change(remove("p.parquet"), add("p.parquet", deletion_vector=vector(3))))
        with pytest.raises(deltasql.ConcurrentDeleteDelete):
            loser.commit()


def vector(number: int) -> deltasql.DeletionVector:
    return deltasql.DeletionVector("u", f"{number:020d}", 40, number, offset=1)


class TestPartitionColumns:
    def test_change_only_with_all_files_rewritten(
        self, lake: deltasql.Lake, make_table: Callable[..., deltasql.Table]
    ) -> None:
        table = make_table(schema="a BIGINT, b BIGINT", partition_by=["a"])
        metadata = table.state().metadata
        assert metadata is not None
        other = msgspec.structs.replace(metadata, partition_columns=("b",))
        old = [add(f"a={i}/f", partition_values={"a": str(i)}) for i in (1, 2)]
        commit(lake, table, Change(*old))
        new = add("b=1/f", partition_values={"b": "1"})
        with pytest.raises(deltasql.ValidationError, match="1 files are not replaced"):
            commit(lake, table, Change(other, remove("a=1/f"), new))
        late = staged(lake, table, Change(other, *(remove(f.path) for f in old), new))
        commit(lake, table, Change(add("a=3/f", partition_values={"a": "3"})))
        with pytest.raises(deltasql.ConcurrentAppend):
            late.commit()
        empty = make_table("empty", schema="a BIGINT, b BIGINT", partition_by=["a"])
        commit(lake, empty, Change(msgspec.structs.replace(other, id=empty.id)))
        assert empty.partition_columns == ("b",)

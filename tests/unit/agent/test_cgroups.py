"""Where cgroups are looked for, and what is written there."""

from pathlib import Path

import pytest

from ebbtide.agent.cgroups import (
    Group,
    Groups,
    Limits,
    Version1,
    Version2,
    cpu_quota_us,
    find,
    note,
    remove,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def limit(groups: Groups, limits: Limits) -> None:
    groups.known(3)
    groups.limit(3, limits)


def mounts(tree: Path, *controllers: str) -> str:
    lines = [f"cgroup {tree}/{name} cgroup rw,relatime,{name} 0 0" for name in controllers]
    for name in controllers:
        (tree / name).mkdir(parents=True)
    return "\n".join(lines)


def test_every_controller_of_version_1_gets_a_group_below_the_agents_own(tree: Path) -> None:
    text = mounts(tree, "cpu", "memory", "pids")
    own = "3:cpu:/\n2:memory:/mine/deep\n1:pids:/mine\n0::/\n"
    backend = find(Path("/state"), "", own, text)
    assert isinstance(backend, Version1)
    group = Groups(backend).known(0)
    folders = [Path(path).relative_to(tree).parts[:3] for path in group.procs]
    assert folders[0][:2] == ("cpu", "ebbtide")
    assert folders[1] == ("memory", "mine", "deep")


def test_limits_of_version_1_are_written_as_it_wants_them(tree: Path) -> None:
    for name in ("cpu", "memory", "pids"):
        (tree / name).mkdir(parents=True)
    backend = Version1({name: tree / name for name in ("cpu", "memory", "pids")})
    limit(Groups(backend), Limits(1500, 64))
    assert (tree / "cpu/w3/cpu.cfs_quota_us").read_text() == "150000"
    assert (tree / "memory/w3/memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (tree / "pids/w3/pids.max").read_text() == "16384"


def test_limits_of_version_2_are_written_where_the_controller_was_delegated(tree: Path) -> None:
    (tree / "w3").mkdir(parents=True)
    for file in ("cpu.max", "memory.max"):
        (tree / "w3" / file).touch()
    limit(Groups(Version2(tree)), Limits(1500, 64))
    assert (tree / "w3/cpu.max").read_text() == "150000 100000"
    assert (tree / "w3/memory.max").read_text() == str(64 << 20)
    assert not (tree / "w3/pids.max").exists()


def test_a_request_of_nothing_is_no_limit(tree: Path) -> None:
    (tree / "w3").mkdir(parents=True)
    for file in ("cpu.max", "memory.max"):
        (tree / "w3" / file).touch()
    limit(Groups(Version2(tree)), Limits())
    assert (tree / "w3/cpu.max").read_text() == "max 100000"
    assert (tree / "w3/memory.max").read_text() == "max"


def test_version_2_is_used_where_version_1_has_no_controllers(tree: Path) -> None:
    tree.mkdir()
    text = f"cgroup2 {tree} cgroup2 rw 0 0\ncgroup /x cgroup rw,name=systemd 0 0"
    (tree / "cgroup.subtree_control").touch()
    assert isinstance(find(Path("/state"), "", "0::/\n", text), Version2)


def test_a_delegated_group_is_used_instead_of_the_agents_own(tree: Path) -> None:
    tree.mkdir()
    find(Path("/state"), "/delegated", "0::/mine\n", f"cgroup2 {tree} cgroup2 rw 0 0")
    assert (tree / "delegated/ebbtide").is_dir()
    assert not (tree / "mine").exists()


def test_agents_of_one_machine_do_not_meet(tree: Path) -> None:
    tree.mkdir()
    text = f"cgroup2 {tree} cgroup2 rw 0 0"
    for state in ("/one", "/two"):
        find(Path(state), "", "0::/\n", text)
    assert len([path for path in (tree / "ebbtide").iterdir() if path.is_dir()]) == 2


def test_groups_that_are_empty_go_with_their_agent(tree: Path) -> None:
    tree.mkdir()
    groups = Groups(Version2(tree))
    for slot in (0, 1):
        groups.known(slot)
    (tree / "w1" / "busy").mkdir()
    groups.close()
    assert [path.name for path in tree.iterdir()] == ["w1"]


def test_groups_of_a_killed_agent_go_when_its_node_is_ended(tree: Path, tmp_path: Path) -> None:
    backend = Version2(tree)
    note(tmp_path, backend)
    Groups(backend).known(0)
    remove(tmp_path)
    assert not tree.exists()


def test_a_node_that_never_had_groups_is_ended_all_the_same(tmp_path: Path) -> None:
    note(tmp_path, None)
    remove(tmp_path)
    remove(tmp_path / "never")


def test_where_there_are_no_cgroups_workers_run_without(tree: Path) -> None:
    assert find(Path("/state"), "", "0::/\n", "") is None
    assert Groups(None).known(0) == Group()


def test_where_none_can_be_made_workers_run_without(tree: Path) -> None:
    tree.write_text("a file, not a folder")
    text = f"cgroup {tree} cgroup rw,cpu 0 0"
    assert find(Path("/state"), "", "1:cpu:/\n", text) is None


def test_a_quota_is_a_part_of_the_period_and_not_below_what_the_kernel_takes() -> None:
    assert [cpu_quota_us(milli) for milli in (1, 500, 2000)] == [1000, 50_000, 200_000]

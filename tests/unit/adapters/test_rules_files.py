from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.adapters.rules_file import RulesFile, RulesFiles, owner_of
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, **texts: str) -> list[Path]:
    """Files of these names with these texts."""
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def refused(folder: Path, **texts: str) -> list[str]:
    """What is wrong with files, without the folder."""
    with pytest.raises(InvalidRules) as error:
        RulesFiles(written(folder, **texts))
    return [line.replace(f"{folder}/", "") for line in error.value.lines]


def test_files_are_one_rule_set_together(tmp_path: Path) -> None:
    """Rules are in the order of the files, tiers side by side, and every part is found again in its file."""
    paths = written(
        tmp_path,
        one="tiers:\n  free: {price: 0}\nrules:\n  - name: a\n    limits: 1/day\n",
        two="- name: b\n  limits: 2/day\n",
        three="tiers:\n  pro: {}\ndefault_tier: pro\nrules:\n  - name: c\n",
    )
    files = RulesFiles(paths)
    assert files.data == {
        "tiers": {"free": {"price": 0}, "pro": {}},
        "rules": [{"name": "a", "limits": "1/day"}, {"name": "b", "limits": "2/day"}, {"name": "c"}],
        "default_tier": "pro",
    }
    one, two, three = map(str, paths)
    assert files.location(("rules", 0, "limits")) == f"{one}:5"
    assert files.location(("rules", 1, "limits")) == f"{two}:2"
    assert files.location(("rules", 2, "limits")) == f"{three}:5"
    assert files.location(("tiers", "pro", "price")) == f"{three}:2"
    assert files.location(("default_tier",)) == f"{three}:3"
    assert files.location(("rules",)) == f"{one}:3"
    assert files.location(("overrides", 0)) is None


def test_a_name_in_two_files_is_a_problem_that_names_both(tmp_path: Path) -> None:
    """Two files that say different things about one name are refused, and both places are told."""
    lines = refused(
        tmp_path,
        one="tiers: {free: {}}\ndefault_tier: free\nrules:\n  - name: a\n",
        two="tiers:\n  free: {}\ndefault_tier: free\nrules:\n  - name: b\n  - name: a\n",
    )
    assert lines[0].startswith("two.yaml:2: tiers.free: the tier 'free' is also in ")
    assert lines[0].endswith("one.yaml:1")
    assert lines[1].startswith("two.yaml:3: default_tier: 'default_tier' is also in ")
    assert lines[2].startswith("two.yaml:6: rules[1].name: the name 'a' is taken by ")
    assert lines[2].endswith("one.yaml:4")


def test_everything_that_is_wrong_with_any_file_is_told(tmp_path: Path) -> None:
    """A file that is no YAML, one that is missing and one that holds something else are all named."""
    paths = [*written(tmp_path, one="rules: [", two="just text", three="rules: []"), tmp_path / "missing.yaml"]
    with pytest.raises(InvalidRules) as error:
        RulesFiles(paths)
    lines = [line.replace(f"{tmp_path}/", "") for line in error.value.lines]
    assert lines[0].startswith("one.yaml:2: not valid YAML")
    assert lines[1].startswith("missing.yaml: cannot be read")
    assert lines[2] == "two.yaml:1: expected a mapping with rules and tiers, not 'just text'"


def test_what_is_not_as_it_should_be_is_kept_for_the_check(tmp_path: Path) -> None:
    """Putting files together checks nothing else: rules that are no rules stay what they are."""
    paths = written(tmp_path, one="rules: [5, {name: 7}]\ntiers: 3\nwhat: ever\n", two="rules: [5, {name: 7}]\n")
    files = RulesFiles(paths)
    assert files.data == {"rules": [5, {"name": 7}, 5, {"name": 7}], "tiers": 3, "what": "ever"}


def test_files_own_rules_by_their_path(tmp_path: Path) -> None:
    """From the project's root, or whole outside of one; two files of one name are two owners."""
    for folder in ("project/.git", "project/search", "project/login/deep", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    project = tmp_path / "project"
    assert owner_of([project / "rules.yaml"]) == "rules.yaml"
    assert owner_of([project / "search/rules.yaml"]) == "search/rules.yaml"
    assert owner_of([project / "login/../login/deep/rules.yaml"]) == "login/deep/rules.yaml"
    assert owner_of([project / "login/a.yaml", project / "login/deep/b.yaml"]) == "login/"
    assert owner_of([project / "a.yaml", project / "b.yaml"]) == "./"
    assert owner_of([tmp_path / "elsewhere/rules.yaml"]) == f"{tmp_path}/elsewhere/rules.yaml"
    assert RulesFile(project / "search/rules.yaml").owner == "search/rules.yaml"


def test_a_file_behind_a_link_keeps_its_owner(tmp_path: Path) -> None:
    """As in Kubernetes, where each version of a ConfigMap is in a folder of its own, and links name the newest."""
    for version in ("..1", "..2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text("rules: []")
    data, file = tmp_path / "..data", tmp_path / "rules.yaml"
    file.symlink_to("..data/rules.yaml")
    for version in ("..1", "..2"):
        data.unlink(missing_ok=True)
        data.symlink_to(version)
        assert owner_of([file]) == RulesFile(file).owner == str(file)
        assert RulesFile(file).former_owners == {"rules.yaml", str(file), f"{tmp_path}/{version}/rules.yaml"}


def test_a_file_owns_its_rules_under_the_name_it_is_given(tmp_path: Path) -> None:
    """Wherever it is; the rules that it owned by its path are its own still."""
    file = RulesFile(tmp_path / "rules.yaml", "platform")
    assert file.owner == "platform"
    assert f"{tmp_path}/rules.yaml" in file.former_owners


def test_a_project_is_looked_for_where_the_link_is(tmp_path: Path) -> None:
    """Not where the file is that it leads to."""
    for folder in ("project/.git", "other/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "other/deep").mkdir()
    (tmp_path / "project/limits").symlink_to(tmp_path / "other/deep")
    assert owner_of([tmp_path / "project/limits/rules.yaml"]) == "limits/rules.yaml"
    assert owner_of([tmp_path / "project/limits/a.yaml", tmp_path / "project/limits/b.yaml"]) == "limits/"


def test_of_a_long_path_the_end_is_the_owner(tmp_path: Path) -> None:
    """A database has 255 characters for it; files of one folder are told apart by their end."""
    deep = tmp_path.joinpath(*["x" * 100] * 3)
    assert owner_of([deep / "rules.yaml"]) == str(deep / "rules.yaml")[-255:]
    assert owner_of([deep / "a.yaml", deep / "b.yaml"]) == f"{deep}/"[-255:]

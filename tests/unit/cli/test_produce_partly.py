"""`ringlog produce` that fails midway counts what a real producer still had on its way."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode
from tests.support.router import RouterNode


@pytest.fixture
def node():
    with RouterNode(partitions=4) as made:
        made.create("copy")
        yield made


@pytest.mark.parametrize("headers", [{}, {"headers": {"by": "ann"}}], ids=["together", "one by one"])
def test_what_was_on_its_way_when_a_record_was_refused_is_waited_for_and_counted(run, node, headers):
    lines = [json.dumps({"value": str(at), "partition": at % 6, **headers}) for at in range(24)]
    result = run("produce", "copy", "--json", "--bootstrap", node.bootstrap, input="\n".join(lines))
    assert result.exit_code == ExitCode.REFUSED
    told = json.loads(result.stderr.splitlines()[-1])
    assert told["message"].startswith("partition 4: topic 'copy' has 0 to 3") and told["acknowledged"] == 16
    assert json.loads(result.stdout)["acknowledged"] == 16


def test_by_key_takes_what_names_partitions_that_the_topic_does_not_have(run, node):
    lines = [json.dumps({"value": str(at), "partition": at % 6}) for at in range(24)]
    result = run(
        "produce", "copy", "--json", "--by-key", "--bootstrap", node.bootstrap, input="\n".join(lines)
    )
    assert result.exit_code == ExitCode.OK and json.loads(result.stdout)["acknowledged"] == 24

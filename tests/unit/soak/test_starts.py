"""The soak's report on the accuracy of expected starts."""

from dataclasses import replace

from e2e.soak.facts import Cluster, Gang
from e2e.soak.starts import Starts

NOW = 1_800_000_000.0
SHOWN = {
    "time": "2027-01-15T08:01:40Z",
    "earliest": "2027-01-15T08:01:00Z",
    "latest": "2027-01-15T08:03:00Z",
}


def gang(uid: str, shown: dict[str, str] | None = None) -> Gang:
    view = {"expectedStart": shown} if shown else {}
    return Gang(uid, uid, "team", "PyTorchJob", {}, {}, {}, True, False, {}, (), view)


def cluster(*gangs: Gang) -> Cluster:
    return Cluster(at=0.0, nodes={}, pods=(), gangs={gang.uid: gang for gang in gangs})


def test_a_soak_reports_the_accuracy_of_expected_starts() -> None:
    starts = Starts()
    waiting = gang("first", SHOWN), gang("second", {"unknown": "why"}), gang("third")
    starts.record(cluster(*waiting), now=NOW)
    starts.record(cluster(*waiting), now=NOW + 1)
    assert "none of 0 looks" in starts.summary()
    starts.record(cluster(*(replace(gang, suspended=False) for gang in waiting)), now=NOW + 80)
    assert starts.summary() == (
        "expected starts: error / wait 25%, p90 25%; 100% within the range, width / wait 1.5; "
        "1 of 2 looks known"
    )

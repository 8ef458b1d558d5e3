"""The pods of each job, and their duplicates."""

from kfext.state.mirror.members import Members
from tests.builders import job, pod

GANG = job(uid="one").worker(2).build()
OTHER = job(name="other", uid="other").worker(1).build()


def test_pods_are_found_by_their_job_until_they_are_removed() -> None:
    members = Members()
    pods = [pod(GANG, "worker", 0, uid="p0"), pod(GANG, "worker", 1, uid="p1")]
    pods.append(pod(OTHER, "worker", 0, uid="p2"))
    for member in pods:
        members.put(member)
    assert members.pods_of("one", namespace="team") == tuple(pods[:2])
    assert members.pods_of("one", namespace="theirs") == ()
    assert members.pods_of("unknown", namespace="team") == ()
    assert members.all() == tuple(pods)
    members.remove(pods[2])
    members.remove(pods[2])
    assert members.pods_of("other", namespace="team") == ()
    assert members.all() == tuple(pods[:2])


def test_duplicates_are_counted_without_terminating_and_removed_pods() -> None:
    members = Members()
    assert members.duplicates(pod(GANG, "worker", 0)) == 0
    for uid in ("p0", "p1"):
        members.put(pod(GANG, "worker", 0, uid=uid))
        members.put(pod(GANG, "worker", 0, uid=uid, bound="a"))
    members.put(pod(GANG, "worker", 1, uid="p2"))
    assert members.duplicates(pod(GANG, "worker", 0)) == 2
    members.put(pod(GANG, "worker", 0, uid="p0", deleting=True))
    assert members.duplicates(pod(GANG, "worker", 0)) == 1
    for uid in ("p0", "p1"):
        members.remove(pod(GANG, "worker", 0, uid=uid))
    assert members.duplicates(pod(GANG, "worker", 0)) == 0


def test_a_newer_version_of_a_pod_replaces_the_older_version() -> None:
    members = Members()
    old, new = (pod(GANG, "worker", 0, uid="p", bound=node) for node in ("", "a"))
    members.put(old)
    assert members.known(new) == old
    members.put(new)
    assert members.pods_of("one", namespace="team") == (new,)

"""What a tenant with all permissions in one namespace may write to kfext's marks, and see."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.install import protection
from e2e.harness.jobs import (
    Object,
    conditions,
    gated,
    held,
    marks_of,
    pinned_to,
    suspended,
    workers,
)
from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space
from e2e.harness.tenant import MERGE, Tenant, protected
from e2e.harness.wait import until
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
OFF = {names.COLOCATION: "off"}
REFUSAL = "only kfext may add or change"
_JSON = "application/json-patch+json"


@pytest.fixture
def tenant(space: Space, tmp_path: Path) -> Tenant:
    """The tenant of a managed namespace with two nodes, where the policy protects marks."""
    space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    return protected(space, tmp_path)


def placed(space: Space, name: str = "mine") -> Object:
    """Submit a job and wait until it is placed; return its manifest."""
    manifest = space.steer(workers(name, 2, each=GPU))
    space.submit(manifest)
    space.phase(name, "Placed")
    return manifest


# --- what is refused ------------------------------------------------------------------------------


def forged(mark: str, uid: str) -> str:
    """Return a plausible value of a mark."""
    return "true" if mark == names.HELD else json.dumps({"uid": uid, "generation": 1})


@pytest.mark.parametrize("mark", sorted(names.WRITTEN_BY_KFEXT))
def test_a_tenant_can_neither_add_nor_change_a_mark(tenant: Tenant, mark: str) -> None:
    space = tenant.space
    uid = space.submit(workers("bare", 1, each=GPU, annotations=OFF))["metadata"]["uid"]
    answer = tenant.write("bare", mark, forged(mark, uid))
    assert (answer.status, mark in answer.message) == (403, True), answer.message
    assert REFUSAL in answer.message
    assert marks_of(space.job("bare")) == {}

    space.patch_job("bare", {"metadata": {"annotations": {mark: forged(mark, uid)}}})
    changed = forged(mark, uid) + " "
    answer = tenant.write("bare", mark, changed)
    assert (answer.status, REFUSAL in answer.message) == (403, True), answer.message
    # kfext itself may react to the administrator's mark at any time.
    assert changed not in marks_of(space.job("bare")).values()


def test_a_tenant_cannot_add_a_mark_with_any_kind_of_write(tenant: Tenant) -> None:
    space = tenant.space
    manifest = space.steer(workers("bare", 1, each=GPU, annotations=OFF))
    space.submit(manifest)
    forgery = {**manifest, "metadata": {"name": "bare", "annotations": {names.PLAN: "{}"}}}
    only = {key: forgery[key] for key in ("apiVersion", "kind", "metadata")}
    field = [
        {"op": "add", "path": "/metadata/annotations/kfext.dev~1plan", "value": "{}"},
    ]
    path = space.path("pytorchjobs", "bare")
    assert tenant.kube.ask("PATCH", path, field, kind=_JSON).status == 403
    ways = {
        "annotate": ["annotate", "pytorchjob/bare", f"{names.PLAN}={{}}"],
        "apply": ["apply", "-f", "FILE"],
        "apply, server-side and by force": [
            *("apply", "--server-side", "--force-conflicts", "-f", "FILE")
        ],
        "replace": ["replace", "-f", "FILE"],
    }
    for way, arguments in ways.items():
        done = tenant.kubectl(*arguments, given=only if "server-side" in way else forgery)
        assert (done.returncode != 0, REFUSAL in done.stderr) == (True, True), (way, done.stderr)
    # A write of the subresource status changes only the status.
    status = {"metadata": {"annotations": {names.PLAN: "{}"}}, "status": {}}
    tenant.kube.ask("PATCH", f"{path}/status", status, kind=MERGE)
    assert marks_of(space.job("bare")) == {}


def test_only_a_cluster_wide_binding_grants_the_verb_that_writes_marks(
    tenant: Tenant, new_space: Callable[..., Space]
) -> None:
    space, role = tenant.space, f"decide-{tenant.space.name}"
    rule = {"apiGroups": ["kfext.dev"], "resources": ["trainingplans"], "verbs": [names.DECIDE]}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    space.kube.create(roles, {"metadata": {"name": role}, "rules": [rule]})
    cluster_binding = ""
    try:
        space.submit(workers("bare", 1, each=GPU, annotations=OFF))
        tenant.bind("ClusterRole", role, namespace=space.name)
        assert tenant.write("bare", names.HELD, "true").status == 403
        cluster_binding = tenant.bind("ClusterRole", role)
        space.until(
            lambda: tenant.write("bare", names.HELD, "true").ok, "a user with the verb may write"
        )
        # Any user of the job may remove a mark, as `kubectl kfext release` does.
        assert tenant.write("bare", names.HELD, None).ok
    finally:
        for path in filter(None, (cluster_binding, f"{roles}/{role}")):
            space.kube.delete(path)


def test_marks_are_protected_in_namespaces_that_are_not_managed(
    new_space: Callable[..., Space], tmp_path: Path
) -> None:
    tenant = protected(new_space(managed=False), tmp_path)
    stored = tenant.space.submit(workers("bare", 1, each=GPU))
    for mark in names.WRITTEN_BY_KFEXT:
        value = forged(mark, stored["metadata"]["uid"])
        assert tenant.write("bare", mark, value).status == 403, mark


# --- what is allowed ------------------------------------------------------------------------------

Work = Callable[[Tenant, Object], list[Any]]


def apply_twice(tenant: Tenant, manifest: Object) -> list[Any]:
    return [tenant.kubectl("apply", "-f", "FILE", given=manifest) for _ in range(2)]


def apply_twice_on_the_server(tenant: Tenant, manifest: Object) -> list[Any]:
    command = ("apply", "--server-side", "--force-conflicts", "-f", "FILE")
    return [tenant.kubectl(*command, given=manifest) for _ in range(2)]


def edit(tenant: Tenant, manifest: Object) -> list[Any]:
    return [tenant.kubectl("edit", "pytorchjob/mine", editor="sed -i s/OnFailure/Never/")]


def annotate(tenant: Tenant, manifest: Object) -> list[Any]:
    commands = ("annotate", "label")
    return [
        tenant.kubectl(command, "pytorchjob/mine", "example.com/team=a") for command in commands
    ]


def write_back(tenant: Tenant, manifest: Object) -> list[Any]:
    """Replace the job by its stored state with a label; repeat this after a conflict."""

    def written() -> Any:
        stored = tenant.space.job("mine")
        stored["metadata"]["labels"] = {"example.com/team": "a"}
        done = tenant.kubectl("replace", "-f", "FILE", given=stored)
        return None if "the object has been modified" in done.stderr else done

    return [until(written, what="the earlier state is written back")]


KEEPING: dict[str, Work] = {
    "apply twice, client-side": apply_twice,
    "apply twice, server-side": apply_twice_on_the_server,
    "edit": edit,
    "annotate and label": annotate,
    "write an earlier state back": write_back,
}


@pytest.mark.parametrize("work", KEEPING.values(), ids=KEEPING)
def test_the_marks_of_a_placed_job_stay_when_a_tenant_edits_it(tenant: Tenant, work: Work) -> None:
    manifest = placed(tenant.space)
    before = marks_of(tenant.space.job("mine"))
    assert names.PLAN in before
    for done in work(tenant, manifest):
        assert done.returncode == 0, done.stderr
    assert marks_of(tenant.space.job("mine")) == before


def replace_without(tenant: Tenant, manifest: Object) -> list[Any]:
    return [tenant.kubectl("replace", "-f", "FILE", given=manifest)]


def remove(tenant: Tenant, manifest: Object) -> list[Any]:
    return [tenant.kubectl("annotate", "pytorchjob/mine", f"{names.PLAN}-")]


REMOVING: dict[str, Work] = {"replace without them": replace_without, "remove them": remove}


@pytest.mark.parametrize("work", REMOVING.values(), ids=REMOVING)
def test_a_tenant_may_remove_marks_and_no_pod_is_moved(tenant: Tenant, work: Work) -> None:
    manifest = placed(tenant.space)
    before = tenant.space.bound("mine", 2)
    for done in work(tenant, manifest):
        assert done.returncode == 0, done.stderr
    assert names.PLAN not in marks_of(tenant.space.job("mine"))
    placed(tenant.space, "after")
    assert tenant.space.bound("mine", 2) == before


def test_a_tenant_may_scale_a_job_with_the_subresource_scale(tenant: Tenant) -> None:
    placed(tenant.space)
    # a master and two workers, instead of one
    done = tenant.kubectl("scale", "pytorchjob/mine", "--replicas=2")
    assert done.returncode == 0, done.stderr
    tenant.space.bound("mine", 3)
    assert names.PLAN in marks_of(tenant.space.job("mine"))


def test_the_operator_writes_the_status_of_a_job_with_marks(tenant: Tenant) -> None:
    placed(tenant.space)
    tenant.space.until(
        lambda: "Running" in conditions(tenant.space.job("mine")), "the operator reports a run"
    )


# --- copies -------------------------------------------------------------------------------------


def copied(tenant: Tenant) -> Object:
    """Return a placed job with all marks under a new name, as a user might copy it."""
    placed(tenant.space)
    original = tenant.space.job("mine")
    uid = original["metadata"]["uid"]
    missing = {names.STATE: forged(names.STATE, uid), names.HELD: "true"}
    original["metadata"]["annotations"] |= missing
    del original["metadata"]["resourceVersion"]
    original["metadata"]["name"] = "copy"
    return original


def test_a_copied_manifest_starts_afresh_in_a_managed_namespace(tenant: Tenant) -> None:
    done = tenant.kubectl("create", "-f", "FILE", given=copied(tenant))
    assert done.returncode == 0, done.stderr
    tenant.space.phase("copy", "Placed")
    plan = tenant.space.plan("copy")
    assert plan is not None
    assert plan["uid"] == tenant.space.job("copy")["metadata"]["uid"]


def test_a_copied_manifest_runs_as_on_plain_kubernetes_in_an_unmanaged_namespace(
    tenant: Tenant, new_space: Callable[..., Space], tmp_path: Path
) -> None:
    copy = copied(tenant)
    elsewhere = new_space(managed=False)
    (tmp_path / "elsewhere").mkdir()
    other = protected(elsewhere, tmp_path / "elsewhere")
    copy["metadata"]["namespace"] = elsewhere.name
    done = other.kubectl("create", "-f", "FILE", given=copy)
    assert done.returncode == 0, done.stderr
    elsewhere.bound("copy", 2)
    assert not any(pinned_to(pod) for pod in elsewhere.pods("copy"))


def test_a_copied_manifest_runs_where_no_webhook_saw_it(tenant: Tenant, kfext: Kfext) -> None:
    copy = copied(tenant)
    kfext.kill_webhook()
    done = tenant.kubectl("create", "-f", "FILE", "-o", "json", given=copy)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metadata"]["annotations"].keys() >= names.WRITTEN_BY_KFEXT
    tenant.space.bound("copy", 2)
    assert not any(gated(pod) for pod in tenant.space.pods("copy"))


# --- what is shown --------------------------------------------------------------------------------


def test_explain_names_the_jobs_ahead_only_to_users_who_may_list_them(
    tenant: Tenant, new_space: Callable[..., Space]
) -> None:
    required = {names.COLOCATION: "required"}
    other = new_space()
    first = {"priorityClassName": "system-cluster-critical"}
    other.submit(workers("head", 32, each=GPU, annotations=required, pod=first))
    other.phase("head", "Queued")
    tenant.space.submit(workers("late", 32, each=GPU, annotations=required))
    tenant.space.phase("late", "Queued")
    explained = tenant.kfext("explain", "late")
    assert (explained.returncode, other.name in explained.stdout) == (0, False), explained.stderr
    assert f"{other.name}/head" in tenant.kfext("explain", "late", as_administrator=True).stdout
    refused = tenant.kfext("queue", "--all-namespaces")
    assert (refused.returncode, "you may not list" in refused.stderr) == (1, True)


# --- without kfext --------------------------------------------------------------------------------


def test_a_tenant_releases_a_job_while_no_controller_runs(tenant: Tenant, kfext: Kfext) -> None:
    space = tenant.space
    space.submit(workers("queued", 32, each=GPU))
    space.phase("queued", "Queued")
    state = json.dumps({"uid": space.job("queued")["metadata"]["uid"], "message": "an old message"})
    space.patch_job("queued", {"metadata": {"annotations": {names.STATE: state}}})
    kfext.kill_controller()
    kfext.wait_controller_dead()

    done = tenant.kfext("release", "queued")

    assert done.returncode == 0, done.stderr
    assert "queued: unsuspended and marked as released" in done.stdout
    stored = space.job("queued")
    assert (suspended(stored), held(stored)) == (False, False)
    space.until(lambda: len(space.pods("queued")) == 32, "the operator creates its pods")
    assert not any(gated(pod) for pod in space.pods("queued"))
    kfext.ensure()
    message = space.phase("queued", "Released")["message"]
    assert names.REASON_RELEASED_BY_USER in message
    assert "an old message" not in message


@pytest.fixture
def unprotected(kfext: Kfext) -> Iterator[Kfext]:
    """kfext without the binding of its policy; it is restored afterwards."""
    api = kfext.testbed.api
    _, binding = protection()
    api.delete(api.path(binding))
    yield kfext
    api.apply(binding)


def test_without_the_policy_the_controller_warns_and_still_places_jobs(
    unprotected: Kfext, space: Space
) -> None:
    unprotected.stop_controller()
    unprotected.restart_killed_controller()
    log = unprotected.testbed.log(unprotected.controller.name).read_text(errors="replace")
    warnings = [line for line in log.splitlines() if "users may write kfext's marks" in line]
    assert "has no binding" in warnings[-1]
    space.submit(workers("placed", 2, each=GPU))
    space.phase("placed", "Placed")

"""URL paths: names are escaped, and the resource can be read from the path."""

import pytest

from kfext.errors import UserError
from kfext.kube import paths
from kfext.model.kinds.registered import KINDS

PATHS = {
    "a core object": (paths.pods("ns", "p"), "/api/v1/namespaces/ns/pods/p", "pods"),
    "a subresource": (
        paths.pods("ns", "p", "resize"),
        "/api/v1/namespaces/ns/pods/p/resize",
        "pods/resize",
    ),
    "all namespaces": (paths.pods(), "/api/v1/pods", "pods"),
    "a namespace as an object": (paths.namespaces("ns"), "/api/v1/namespaces/ns", "namespaces"),
    "a namespaced collection": (
        paths.jobs(KINDS["TFJob"], "ns"),
        "/apis/kubeflow.org/v1/namespaces/ns/tfjobs",
        "tfjobs",
    ),
    "a cluster-wide object of a group": (
        paths.policies("default"),
        "/apis/kfext.dev/v1alpha1/trainingpolicies/default",
        "trainingpolicies",
    ),
    "a hostile name stays one segment of the path": (
        paths.nodes("../secrets?x=1"),
        "/api/v1/nodes/..%2Fsecrets%3Fx%3D1",
        "nodes",
    ),
}


@pytest.mark.parametrize(("path", "want", "want_resource"), PATHS.values(), ids=PATHS.keys())
def test_the_path_of_a_resource(path: str, want: str, want_resource: str) -> None:
    assert path == want
    assert paths.resource_of(path) == want_resource


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="dots only"):
        paths.pods("ns", name)


def test_a_subresource_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        paths.pods("ns", "", "resize")

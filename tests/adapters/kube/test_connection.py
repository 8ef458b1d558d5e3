"""Where the API server is and what it is shown, in a pod or by a kubeconfig."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kfext.kube.connection import NoAccess, Token, from_kubeconfig, in_cluster, namespace_of


async def test_a_token_is_read_anew_every_minute_and_when_refused() -> None:
    now, tokens = 0.0, iter(["one", "two", "three"])
    token = Token(lambda: next(tokens), monotonic=lambda: now)

    seen = [await token.header(), await token.header()]
    now = 60.0
    seen.append(await token.header())
    token.expire()
    seen.append(await token.header())

    assert [header["Authorization"] for header in seen] == ["one", "one", "two", "three"]


def test_a_missing_service_account_is_said(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoAccess, match="service account"):
        in_cluster(folder=tmp_path)


def test_a_missing_kubeconfig_is_said(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NoAccess, match="absent"):
        from_kubeconfig(tmp_path / "absent")


CONTEXTS = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team-a}}
- {name: bare, context: {cluster: c, user: u}}
"""
CURRENT = {"none": "", "an empty one": 'current-context: ""', "a lost one": "current-context: gone"}


@pytest.mark.parametrize("current", CURRENT.values(), ids=CURRENT)
def test_a_context_that_is_named_needs_no_current_one(tmp_path: Path, current: str) -> None:
    path = tmp_path / "config"
    path.write_text(CONTEXTS + current)
    assert from_kubeconfig(path, context="here").server == "http://127.0.0.1:1"
    assert namespace_of(path, context="here") == "team-a"
    assert namespace_of(path, context="bare") == ""
    with pytest.raises(NoAccess):
        namespace_of(path)


CREDENTIAL = """{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {"token": "made"}}"""
USERS = {
    "a token": ({"token": "given"}, "Bearer given"),
    "a program": (
        {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "echo",
                "args": [CREDENTIAL],
                "interactiveMode": "Never",
            }
        },
        "Bearer made",
    ),
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("user", "want"), USERS.values(), ids=USERS)
async def test_the_user_of_a_kubeconfig_is_shown(
    tmp_path: Path, user: dict[str, Any], want: str | None
) -> None:
    config = yaml.safe_load(CONTEXTS)
    config["users"] = [{"name": "u", "user": user}]
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    header = await from_kubeconfig(path, context="here").token.header()
    assert header.get("Authorization") == want


UNUSABLE = {
    "no YAML": "{",
    "a string": "kubeconfig",
    "a list": "[]",
    "empty": "",
    "another kind": "kind: Pod",
    "a context without a name": "contexts: [{}]",
    "a certificate that is no base64": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "#"'
    ) + "current-context: here",
    "a certificate that is none": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "AAAA"'
    ) + "current-context: here",
}  # fmt: skip


@pytest.mark.parametrize("written", UNUSABLE.values(), ids=UNUSABLE)
def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path, written: str) -> None:
    path = tmp_path / "config"
    path.write_text(written)
    with pytest.raises(NoAccess, match="no usable kubeconfig"):
        from_kubeconfig(path)

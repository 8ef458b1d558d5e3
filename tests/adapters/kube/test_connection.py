"""The address of the API server and the credentials, in a pod or from a kubeconfig."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfext.kube.connection import NoAccess, Token, from_kubeconfig, in_cluster, namespace_of


async def test_a_token_is_read_again_every_minute_and_when_refused() -> None:
    now, tokens = 0.0, iter(["one", "two", "three"])
    token = Token(lambda: next(tokens), monotonic=lambda: now)

    headers = [await token.header(), await token.header()]
    now = 60.0
    headers.append(await token.header())
    token.expire()
    headers.append(await token.header())

    assert [header["Authorization"] for header in headers] == ["one", "one", "two", "three"]


def test_no_service_account_is_reported(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoAccess, match="service account"):
        in_cluster(folder=tmp_path)


def test_a_missing_kubeconfig_is_reported(tmp_path) -> None:  # type: ignore[no-untyped-def]
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
CURRENT = {
    "none": "",
    "an empty name": 'current-context: ""',
    "the name of no context": "current-context: gone",
}


@pytest.mark.parametrize("current", CURRENT.values(), ids=CURRENT)
def test_a_named_context_needs_no_current_context(tmp_path: Path, current: str) -> None:
    path = tmp_path / "config"
    path.write_text(CONTEXTS + current)
    assert from_kubeconfig(path, context="here").server == "http://127.0.0.1:1"
    assert namespace_of(path, context="here") == "team-a"
    assert namespace_of(path, context="bare") == ""
    with pytest.raises(NoAccess):
        namespace_of(path)


def plugin(*command: str) -> dict[str, Any]:
    """Return a user of a kubeconfig with a plugin, a program that prints the credential."""
    fields = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    return {"exec": {**fields, "command": command[0], "args": list(command[1:])}}


def credential(status: Any) -> str:
    """Return the output of a plugin that prints a credential."""
    fields = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return json.dumps({**fields, "status": status})


USERS: dict[str, tuple[dict[str, Any], str | None]] = {
    "a token": ({"token": "given"}, "Bearer given"),
    "a token with a line end": ({"token": "given\n"}, "Bearer given"),
    "a token in a file with a line end": ({"tokenFile": "token"}, "Bearer of-file"),
    "a program": (plugin("echo", credential({"token": "made"})), "Bearer made"),
    "a program that prints a token with a line end": (
        plugin("printf", "%s", credential({"token": "made\n"})),
        "Bearer made",
    ),
    "a name and a password": ({"username": "u", "password": "p"}, "Basic dTpw"),
    "nothing": ({}, None),
}


def kubeconfig_of(folder: Path, user: dict[str, Any]) -> Path:
    (folder / "token").write_text("of-file\r\n")
    (folder / "empty").write_text("\n")
    config = yaml.safe_load(CONTEXTS)
    config["users"] = [{"name": "u", "user": user}]
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize(("user", "want"), USERS.values(), ids=USERS)
async def test_the_credential_of_a_kubeconfig_is_used(
    tmp_path: Path, user: dict[str, Any], want: str | None
) -> None:
    header = await from_kubeconfig(kubeconfig_of(tmp_path, user), context="here").token.header()
    assert header.get("Authorization") == want


WITHOUT_CREDENTIAL: dict[str, tuple[dict[str, Any], str]] = {
    "a program that fails": (
        plugin("sh", "-c", "echo no session >&2; exit 3"),
        "the plugin sh of the user returns no credential: exec: process returned 3. no session",
    ),
    "a program that is absent": (
        plugin("/no/such"),
        "the plugin /no/such of the user returns no credential: .*No such file",
    ),
    "a program that prints no JSON": (
        plugin("echo", "secret"),
        "the plugin echo of the user returns no credential: exec: failed to decode",
    ),
    "a program that prints no credential": (
        plugin("echo", credential({})),
        "the plugin echo of the user returns no credential: exec: missing token",
    ),
    "a program that prints an empty token": (
        plugin("echo", credential({"token": ""})),
        "the plugin echo of the user returns no credential",
    ),
    "an empty file": ({"tokenFile": "empty"}, "tokenFile of the user returns no credential"),
    "a name without a password": ({"username": "u"}, "username of the user returns no credential"),
    "a provider that the client does not know": (
        {"auth-provider": {"name": "x"}},
        "auth-provider of the user returns no credential",
    ),
}


@pytest.mark.parametrize(("user", "message"), WITHOUT_CREDENTIAL.values(), ids=WITHOUT_CREDENTIAL)
def test_a_user_without_a_credential_does_not_become_anonymous(
    tmp_path: Path, user: dict[str, Any], message: str
) -> None:
    """The message does not quote what the plugin prints: it may be a secret."""
    with pytest.raises(NoAccess, match=message) as raised:
        from_kubeconfig(kubeconfig_of(tmp_path, user), context="here")
    assert "secret" not in str(raised.value)
    assert not logging.getLogger().filters


UNUSABLE = {
    "not YAML": "{",
    "a string": "kubeconfig",
    "a list": "[]",
    "empty": "",
    "another kind": "kind: Pod",
    "a context without a name": "contexts: [{}]",
    "a certificate that is not base64": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "#"'
    ) + "current-context: here",
    "a malformed certificate": CONTEXTS.replace(
        '"http://127.0.0.1:1"', '"https://127.0.0.1:1", certificate-authority-data: "AAAA"'
    ) + "current-context: here",
}  # fmt: skip


@pytest.mark.parametrize("written", UNUSABLE.values(), ids=UNUSABLE)
def test_a_malformed_kubeconfig_is_reported(tmp_path: Path, written: str) -> None:
    path = tmp_path / "config"
    path.write_text(written)
    with pytest.raises(NoAccess, match="no usable kubeconfig"):
        from_kubeconfig(path)
